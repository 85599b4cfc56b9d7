"""Takes a model and its arguments; gives the model's density as a function of its noise.

A number says where in its prior conditional a value lies, :math:`x = T(m + s z)` with m and s at
the parents' values. Chains, and hierarchies with little data, are nearly Gaussian in z; with more
data, in numbers that are partly centred (:mod:`asvi.density.noncentering`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions import Normal
from numpyro.distributions.distribution import validation_enabled

from asvi.density.block_structure import BlockStructure, find_blocks
from asvi.density.bound_model import BoundModel
from asvi.density.enumeration import Enumerated
from asvi.density.noncentering import BLANK, RunFromNoise, join_numbers, split_numbers
from asvi.distributions.standardize import noise_shape
from asvi.program.run_trace import log_density
from asvi.program.site import Site

__all__ = ["NoiseSpace"]


@dataclass
class NoiseSpace:
    """Layout of the latent numbers of a program in one vector."""

    bound: BoundModel
    sites: dict[str, Site]
    """By address, those that are made of numbers."""
    shapes: dict[str, tuple[int, ...]]
    """Of each site's numbers, by address."""
    structure: BlockStructure
    """Core and blocks of the numbers."""
    summing: Enumerated | None = None
    """How discrete sites are summed out."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Values of discrete sites, by address, in a run that asks for the others."""

    @classmethod
    def of(cls, bound: BoundModel) -> NoiseSpace | None:
        """The noise of all latent sites; None where some have none, or they are too many."""
        sites = {site.address: site for site in bound.program.latent}
        shapes = {}
        for address, site in sites.items():
            shape = noise_shape(site)
            if shape is None:
                return None
            shapes[address] = site.steps + shape
        structure = find_blocks(list(sites.values()), shapes, bound.settings.blocks)
        return None if structure is None else cls(bound, sites, shapes, structure)

    @property
    def size(self) -> int:
        return sum(prod(shape) for shape in self.shapes.values())

    def split(self, vector: jax.Array) -> dict[str, jax.Array]:
        return split_numbers(vector, self.shapes)

    def numbers(self) -> dict[str, jax.Array]:
        """The index of every latent number in the vector, in the sites' shapes."""
        return self.split(jnp.arange(self.size))

    def run(
        self,
        vector: jax.Array,
        params: dict[str, Any],
        centring: jax.Array | None = None,
        anchor: jax.Array | None = None,
    ) -> dict[str, Any]:
        """The model at these numbers: log density, each number's location, scale and width.

        And ``met``, the sites' distributions and values, and the log volume of the values over that
        of the numbers.
        """
        args, kwargs = self.bound.arguments
        centred = [None if x is None else self.split(x) for x in (centring, anchor)]
        summing = self.summing
        reading = RunFromNoise(self.split(vector), *centred, fixed=dict(self.fixed))

        def parameters(msg):
            return params.get(msg["name"]) if msg["type"] in ("param", "mutable") else None

        with (
            validation_enabled(False),
            handlers.trace() as trace,
            handlers.seed(rng_seed=jax.random.key(0)),
            handlers.substitute(substitute_fn=parameters),
            reading,
        ):
            self.bound.model(*args, **kwargs)
        if summing is None:
            density: Any = sum(log_density(s) for s in trace.values() if s["type"] == "sample")
        else:
            values = {site.name: trace[site.name]["value"] for site in self.sites.values()}
            density = summing.summed(self.bound.model, values, params, args, kwargs)[0]
        extras = reading.body.outputs
        slope = sum(jnp.sum(extras["slope", address]) for address in self.sites)
        if not self.sites:
            return self._blank(vector, density, trace)
        prior_moments = {
            name: join_numbers(extras, name, self.sites) for name in ("loc", "scale", "width")
        }
        given = {"log_density": density + slope, "log_volume": slope, **prior_moments, "met": trace}
        if summing is not None:  # what depends on discrete sites is not known before they are drawn
            given["values"] = values
        return given

    def _blank(self, vector: jax.Array, density: jax.Array, trace: Any) -> dict[str, Any]:
        """The same of a model whose latent sites are all summed out: its one number is free."""
        prior_moments = {
            name: jnp.full(1, x) for name, x in (("loc", 0.0), ("scale", 1.0), ("width", 1.0))
        }
        own = jnp.sum(Normal(0.0, 1.0).log_prob(vector))
        about = {"log_density": density + own, "log_volume": jnp.zeros(()), **prior_moments}
        return {**about, "met": trace, "values": {BLANK: vector}}
