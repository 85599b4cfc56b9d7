"""Takes a model; gives a normal through inverse autoregressive flows over its latents."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import Normal, TransformedDistribution
from numpyro.distributions.flows import InverseAutoregressiveTransform
from numpyro.distributions.transforms import PermuteTransform
from numpyro.infer.autoguide import AutoContinuous, AutoGuide

from asvi.errors import FamilyError
from asvi.families.guide_protocol import JointGuide
from asvi.families.joint.common import at_zero
from asvi.families.protocol import JointFamily

__all__ = ["InverseAutoregressiveFlow"]


class InverseAutoregressiveFlow(JointFamily):
    r"""A standard normal through inverse autoregressive flows (Kingma et al. 2016).

    Each flow maps :math:`z_i = \mu_i(\epsilon_{<i}) + \sigma_i(\epsilon_{<i})\,\epsilon_i` with a
    masked network of two hidden layers; the order is reversed between flows.

    :param hidden: units in each hidden layer; the paper's small flow has 8, its large one 512.
    :param flows: number of flows.

    >>> InverseAutoregressiveFlow(8)
    InverseAutoregressiveFlow(hidden=8, flows=2)
    """

    def __init__(self, hidden: int = 8, *, flows: int = 2):
        if hidden < 1 or flows < 1:
            raise FamilyError(
                f"hidden={hidden} and flows={flows} must be at least 1; write "
                "InverseAutoregressiveFlow(512, flows=2)."
            )
        self.hidden, self.flows = hidden, flows

    def guide(self, model: Callable, prefix: str = "auto") -> AutoGuide:
        return _AutoFlow(model, self, prefix)


class _AutoFlow(JointGuide, AutoContinuous):
    """NumPyro's ``AutoIAFNormal`` refuses hidden layers smaller than the latent vector."""

    def __init__(self, model: Callable, family: InverseAutoregressiveFlow, prefix: str):
        super().__init__(model, prefix=prefix, init_loc_fn=at_zero())
        self.family = family

    def get_base_dist(self) -> Any:
        return Normal(jnp.zeros(self.latent_dim), 1.0).to_event(1)

    def _get_posterior(self) -> TransformedDistribution:
        transforms = []
        for i in range(self.family.flows):
            if i > 0:
                transforms.append(PermuteTransform(jnp.arange(self.latent_dim)[::-1]))
            transforms.append(InverseAutoregressiveTransform(self._network(i)))
        return TransformedDistribution(self.get_base_dist(), transforms)

    def _network(self, flow: int) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
        """A masked network (Germain et al. 2015): output i sees inputs before i alone."""
        size, hidden = self.latent_dim, self.family.hidden
        inputs = np.arange(1, size + 1)
        units = np.ceil(np.linspace(1, max(size - 1, 1), hidden + 2)[1:-1])
        within = units[:, None] <= units
        masks = [inputs[:, None] <= units, within, np.tile(units[:, None] < inputs, 2)]
        layers = []
        for k, mask in enumerate(masks):
            name = f"{self.prefix}_flow_{flow}_layer_{k}"
            start = partial(jax.nn.initializers.glorot_uniform(), shape=mask.shape)
            weight: Any = numpyro.param(f"{name}_weight", start)
            bias = numpyro.param(f"{name}_bias", jnp.zeros(mask.shape[1]))
            layers.append((jnp.asarray(mask, weight.dtype) * weight, bias))

        def apply(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            (w0, b0), (w1, b1), (w2, b2) = layers
            out = jnp.tanh(jnp.tanh(x @ w0 + b0) @ w1 + b1) @ w2 + b2
            shift, log_scale = jnp.split(out, 2, -1)
            return shift, log_scale

        return apply
