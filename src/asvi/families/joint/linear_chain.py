"""Takes a model with chains of sites; gives guides that are linear and Gaussian along them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import lax
from numpyro.distributions import Normal, TransformedDistribution, constraints
from numpyro.distributions.transforms import Transform
from numpyro.infer.autoguide import AutoContinuous, AutoGuide

from asvi.families.guide_protocol import JointGuide
from asvi.families.joint.common import at_zero, positive_scale
from asvi.families.parameter import Parameter
from asvi.families.protocol import JointFamily
from asvi.program.program import Program
from asvi.program.site import Site

__all__ = ["AR1", "LinearCoupling", "chains_of"]


class _ChainFamily(JointFamily):
    def __init__(self, *, init_scale: float = 0.1):
        self.init_scale = positive_scale(init_scale)

    def guide(self, model: Callable, prefix: str = "auto") -> AutoGuide:
        return _AutoChain(model, self, prefix)

    @abstractmethod
    def matrix_shape(self, steps: int, size: int) -> tuple[int, ...]:
        """Shape of the coupling matrices of a chain of ``steps + 1`` states of ``size`` numbers."""


class AR1(_ChainFamily):
    r"""Each state of a chain linear and Gaussian in the one before, with its own coefficients.

    .. math:: z_{t+1} \sim N(A_t z_t + b_t,\ \mathrm{diag}(d_t)^2)

    in unconstrained space. A *chain* is what successive steps of a scan, or successive sites of one
    size of which each is a parent of the next, make up; all other sites ("globals") are
    independent.

    >>> AR1()
    AR1(init_scale=0.1)
    """

    def matrix_shape(self, steps: int, size: int) -> tuple[int, ...]:
        return (steps, size, size)


class LinearCoupling(_ChainFamily):
    r"""As :class:`AR1`, with one matrix for all steps: :math:`z_{t+1} \sim N(W z_t + b_t, d_t^2)`.

    >>> LinearCoupling().matrix_shape(29, 3)
    (3, 3)
    """

    def matrix_shape(self, steps: int, size: int) -> tuple[int, ...]:
        return (size, size)


def chains_of(program: Program, positions: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The chains of a program, as positions in the flat vector: one array (states, size) each.

    ``positions`` says where each latent site's unconstrained numbers stand, shaped as the site.
    """
    open_chains: dict[str, list[np.ndarray]] = {}
    for site in map(program.with_parents, program.latent):
        where = positions[site.name]
        states = where.reshape(site.steps[0], -1) if site.steps else where.reshape(1, -1)
        if site.steps and site.name not in site.parents:
            continue  # a local latent in a scan, without memory
        before = next(
            (
                name
                for name in reversed(open_chains)
                if name in site.parents and open_chains[name][-1].shape[-1] == states.shape[-1]
            ),
            None,
        )
        if before is not None:
            open_chains[site.name] = [*open_chains.pop(before), states]
        else:
            open_chains[site.name] = [states]
    found = [np.concatenate(chain) for chain in open_chains.values()]
    return [chain for chain in found if len(chain) > 1]


class _AutoChain(JointGuide, AutoContinuous):
    """The guide of a chain family: noise, made into states along each chain."""

    def __init__(self, model: Callable, family: _ChainFamily, prefix: str):
        super().__init__(model, prefix=prefix, init_loc_fn=at_zero())
        self.family = family
        self.chains: list[np.ndarray] = []

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        super()._setup_prototype(*args, **kwargs)
        with jax.ensure_compile_time_eval():
            places = self._unpack_latent(jnp.arange(self.latent_dim))
        places = {name: np.asarray(x) for name, x in places.items()}
        self.chains = chains_of(Program.of(self.model, *args, **kwargs), places)

    def _get_posterior(self) -> TransformedDistribution:
        start = jnp.full(self.latent_dim, self.family.init_scale)
        loc = numpyro.param(f"{self.prefix}_loc", self._init_latent)
        scale = numpyro.param(f"{self.prefix}_scale", start, constraint=constraints.positive)
        couplings = [
            numpyro.param(name, jnp.zeros(parameter.shape))
            for name, parameter in self.parameters().items()
        ]
        transform = _AlongChains(loc, scale, couplings, self.chains)
        return TransformedDistribution(self.get_base_dist(), transform)

    def parameters(self) -> dict[str, Parameter]:
        """Coupling matrices, whose rows add up."""
        found = {}
        for i, chain in enumerate(self.chains):
            shape = self.family.matrix_shape(len(chain) - 1, chain.shape[1])
            found[f"{self.prefix}_coupling_{i}"] = Parameter(
                shape, step_size=1.0 / np.sqrt(shape[-1])
            )
        return found

    def couples(self, parent: Site, child: Site) -> bool:
        """Neighbours along a chain: of one size, one the other's parent."""
        if parent.name not in child.parents and child.name not in parent.parents:
            return False
        sizes = [prod(site.shape[len(site.steps) :]) for site in (parent, child)]
        return sizes[0] == sizes[1]

    def get_base_dist(self) -> Any:
        return Normal(jnp.zeros(self.latent_dim), 1.0).to_event(1)


class _AlongChains(Transform):
    """z = loc + scale * noise, plus along each chain the coupling times the state before."""

    domain = constraints.real_vector
    codomain = constraints.real_vector

    def __init__(self, loc, scale, couplings, chains):
        self.loc, self.scale, self.couplings, self.chains = loc, scale, couplings, chains

    def __call__(self, x: jax.Array) -> jax.Array:
        z = self.loc + self.scale * x
        for chain, coupling in zip(self.chains, self.couplings, strict=True):
            own = jnp.moveaxis(z[..., chain], -2, 0)  # (states, ..., size)
            per_step = jnp.broadcast_to(coupling, (len(chain) - 1, *coupling.shape[-2:]))

            def step(before, inputs):
                matrix, own = inputs
                state = own + before @ matrix.T
                return state, state

            _, later = lax.scan(step, own[0], (per_step, own[1:]))
            z = z.at[..., chain[1:]].set(jnp.moveaxis(later, 0, -2))
        return z

    def _inverse(self, y: jax.Array) -> jax.Array:
        loc = jnp.broadcast_to(self.loc, y.shape)
        for chain, coupling in zip(self.chains, self.couplings, strict=True):
            before = y[..., chain[:-1]]
            pull = jnp.einsum("...ij,...j->...i", coupling, before)
            loc = loc.at[..., chain[1:]].add(pull)
        return (y - loc) / self.scale

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        return jnp.broadcast_to(jnp.log(self.scale).sum(), jnp.shape(x)[:-1])

    def tree_flatten(self):
        names = ("loc", "scale", "couplings")
        shapes = tuple((chain.shape, chain.tobytes(), chain.dtype.str) for chain in self.chains)
        return (self.loc, self.scale, self.couplings), (names, {"_chains": shapes})

    @classmethod
    def tree_unflatten(cls, aux_data, params):
        chains = [
            np.frombuffer(data, np.dtype(kind)).reshape(shape)
            for shape, data, kind in aux_data[1]["_chains"]
        ]
        loc, scale, couplings = params
        return cls(loc, scale, couplings, chains)

    def __eq__(self, other: object) -> bool:
        return self is other
