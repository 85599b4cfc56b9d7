"""Takes a whole model; gives a guide for all its sites at once, in unconstrained space.

The other families work site by site and keep the model's program; these see one flat vector of all
latent numbers, as NumPyro's own autoguides do. They are the usual baselines, and they serve any
model with continuous latents of fixed supports::

    guide = asvi.autoguide(model, family=asvi.families.MultivariateNormal())
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from jax.example_libraries import stax
from numpyro.infer import init_to_uniform
from numpyro.infer.autoguide import AutoGuide, AutoIAFNormal, AutoMultivariateNormal

from asvi.errors import FamilyError
from asvi.families.base import Comparable

__all__ = ["InverseAutoregressiveFlow", "MultivariateNormal", "WholeFamily"]


class WholeFamily(Comparable, ABC):
    """A family of joint distributions over all latent sites."""

    @abstractmethod
    def guide(self, model: Callable, prefix: str = "auto") -> AutoGuide:
        """A NumPyro guide for ``model``."""


def at_zero():
    """Start where every unconstrained number is 0."""
    return init_to_uniform(radius=0.0)


class MultivariateNormal(WholeFamily):
    r"""A Gaussian with full covariance over all unconstrained latents: P + P(P+1)/2 parameters.

    NumPyro's ``AutoMultivariateNormal``, started at mean 0 and covariance ``init_scale**2 * I``.

    >>> import jax, numpyro, numpyro.distributions as dist, optax, asvi
    >>> def model():
    ...     x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(x, 1.0))
    >>> guide = asvi.autoguide(model, family=MultivariateNormal())
    >>> svi = numpyro.infer.SVI(model, guide, optax.adam(0.05), asvi.ELBO(num_particles=16))
    >>> fit = svi.run(jax.random.key(0), 500, progress_bar=False)
    >>> bool(abs(fit.losses[-1]) < 0.2)     # the model itself is Gaussian
    True
    """

    def __init__(self, *, init_scale: float = 0.1):
        if not init_scale > 0:
            raise FamilyError(f"init_scale must be positive, got {init_scale}; write init_scale=0.1.")
        self.init_scale = init_scale

    def guide(self, model: Callable, prefix: str = "auto") -> AutoGuide:
        return AutoMultivariateNormal(
            model, prefix=prefix, init_scale=self.init_scale, init_loc_fn=at_zero()
        )


class InverseAutoregressiveFlow(WholeFamily):
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
        return AutoIAFNormal(
            model,
            prefix=prefix,
            init_loc_fn=at_zero(),
            num_flows=self.flows,
            hidden_dims=[self.hidden, self.hidden],
            nonlinearity=stax.Tanh,
        )
