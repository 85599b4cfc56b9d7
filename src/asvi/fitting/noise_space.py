"""Takes a problem; gives the model's density as a function of its noise.

A number says where in its prior conditional a value lies, :math:`x = T(m + s z)` with m and s at
the parents' values. Chains, and hierarchies with little data, are nearly Gaussian in z; with more
data, in numbers that are partly centred (:mod:`asvi.families.numbers`).
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions.distribution import validation_enabled

from asvi.families.cells import Cells, cells_of
from asvi.families.noise import noise_shape
from asvi.families.numbers import FromNumbers, joined, split_numbers
from asvi.families.structured import AutoStructuredNormal
from asvi.fitting.problem import Problem
from asvi.traces import log_density

__all__ = ["NoiseSpace"]


class NoiseSpace:
    """Layout of the latent numbers of a program in one vector."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.sites = {site.address: site for site in problem.program.latent}
        guide = problem.guide
        if isinstance(guide, AutoStructuredNormal):
            self.shapes, self._cells = guide.shapes, guide.cells
        else:
            shapes = {address: noise_shape(site) for address, site in self.sites.items()}
            self.shapes = {a: self.sites[a].steps + s for a, s in shapes.items() if s is not None}
        self.size = sum(prod(shape) for shape in self.shapes.values())

    @cached_property
    def cells(self) -> Cells:
        """Core and cells of the numbers."""
        found = self._cells
        if found is None:
            raise ValueError("the latent numbers are too many for one core")
        return found

    @cached_property
    def _cells(self) -> Cells | None:
        return cells_of(self.problem.program.latent, self.shapes)

    @staticmethod
    def serves(problem: Problem) -> bool:
        """Whether the density can be had: continuous, without branches, small or in cells."""
        shapes = {s.address: noise_shape(s) for s in problem.program.latent}
        if any(shape is None for shape in shapes.values()):
            return False
        return NoiseSpace(problem)._cells is not None

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
        args, kwargs = self.problem.arguments
        centred = [None if x is None else self.split(x) for x in (centring, anchor)]
        reading = FromNumbers(self.split(vector), *centred)

        def parameters(msg):
            return params.get(msg["name"]) if msg["type"] in ("param", "mutable") else None

        with (
            validation_enabled(False),
            handlers.trace() as trace,
            handlers.seed(rng_seed=jax.random.key(0)),
            handlers.substitute(substitute_fn=parameters),
            reading,
        ):
            self.problem.model(*args, **kwargs)
        density = sum(log_density(s) for s in trace.values() if s["type"] == "sample")
        extras = reading.frame.extras
        slope = sum(jnp.sum(extras[f"slope|{address}"]) for address in self.sites)
        told = {name: joined(extras, name, self.sites) for name in ("loc", "scale", "width")}
        return {"log_density": density + slope, "log_volume": slope, **told, "met": trace}
