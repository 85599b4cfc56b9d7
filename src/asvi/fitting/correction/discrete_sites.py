"""Takes draws of a model's continuous sites; gives those of its discrete sites that go with them.

Discrete sites are summed out while draws are looked for. Afterwards each draw gets values of them,
from what they are given all others: exactly (:mod:`asvi.density.enumeration`).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from asvi.density.enumeration import Enumerated
from asvi.density.noncentering import BLANK
from asvi.fitting.correction.pool import Pool
from asvi.fitting.particles.base import unit_density
from asvi.fitting.problem import Problem
from asvi.program.run_trace import trace_of

__all__ = ["Completion"]


class Completion:
    """Discrete and deterministic sites of a problem, given its continuous ones."""

    def __init__(self, problem: Problem, summing: Enumerated):
        self.problem, self.summing = problem, summing

    @classmethod
    def of(cls, problem: Problem) -> Completion | None:
        """None where the model has no discrete sites that are summed out."""
        space = problem.noise_space
        return None if space is None or space.summing is None else cls(problem, space.summing)

    def __call__(
        self, values: dict[str, np.ndarray], rng: np.random.Generator
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Values of discrete and deterministic sites at draws (draws, ...), and log p(z | x, y)."""
        types = self.problem.program.values
        names = [site.name for site in self.summing.continuous]
        given = {n: np.asarray(values[n], types[n].dtype) for n in names}
        count = len(next(iter(values.values())))
        uniform = rng.uniform(size=(count, self.summing.size)).astype(self.problem.dtype)
        run = self.problem.bound.map_in_batches("discrete sites", self._one)
        return jax.tree.map(np.asarray, run((given, uniform)))

    def _one(self, _key: None, draw: tuple[dict[str, Any], jax.Array]) -> tuple[Any, jax.Array]:
        values, uniform = draw
        args, kwargs = self.problem.arguments
        model = self.problem.model
        _, tables = self.summing.summed(model, values, {}, args, kwargs)
        drawn, log_prob = self.summing.drawn(tables, uniform)
        met = trace_of(model, jax.random.key(0), {}, {**values, **drawn}, args, kwargs)
        deterministic = {n: m["value"] for n, m in met.items() if m["type"] == "deterministic"}
        return {**drawn, **deterministic}, log_prob

    def pool(self, pool: Pool, rng: np.random.Generator) -> Pool:
        """The same draws, with values of all sites."""
        values, log_prob = self(pool.flat(), rng)
        lead = pool.log_p.shape
        sites = {n: x.reshape(*lead, *x.shape[1:]) for n, x in values.items()}
        own = log_prob.reshape(lead)
        known = {n: x for n, x in pool.sites.items() if n != BLANK}
        if BLANK in pool.sites:  # its own density is no part of the model's
            own = own - unit_density(pool.sites[BLANK])
        return Pool({**known, **sites}, pool.log_p + own, pool.log_q + own)
