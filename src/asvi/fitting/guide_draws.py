"""Takes a problem and parameters; gives draws of its guide, their densities and their weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.errors import AsviError
from asvi.fitting.correction.pareto_smoothing import SmoothedWeights, pareto_smooth
from asvi.fitting.problem import Problem
from asvi.program.random_key import as_key
from asvi.program.run_trace import joint_log_density, log_density, trace_of

__all__ = ["Draws", "GuideDraws"]

Draws = dict[str, Any]


class GuideDraws:
    """The guide of a problem at these parameters.

    All draws are dictionaries by site name, with the draws' axes first.
    """

    def __init__(self, problem: Problem, params: dict[str, jax.Array]):
        self.problem, self.params = problem, params

    def draw(self, key: jax.Array, shape: int | tuple[int, ...]) -> tuple[Draws, jax.Array]:
        """Draws, deterministic sites among them, and the guide's log density at each.

        Of plates that are seen in parts a draw has the rows, by the plate's name.
        """

        def one(key, _row, params):
            return self.draw_one(key, params)

        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        run = self.problem.bound.map_in_batches("draw", one)
        drawn, log_q = run((), self.params, key=key, count=prod(shape))
        reshaped = {k: v.reshape(shape + v.shape[1:]) for k, v in drawn.items()}
        return reshaped, log_q.reshape(shape)

    def draw_one(self, key: jax.Array, params: dict[str, Any]) -> tuple[Draws, jax.Array]:
        """One draw and its log density, to be recorded."""
        problem = self.problem
        drawn = trace_of(problem.guide, key, params, {}, *problem.arguments)
        latent, log_q = _split(drawn)
        rows = {name: drawn[name]["value"] for name in self.parts if name in drawn}
        given = {**latent, **rows}
        met = trace_of(problem.model, jax.random.key(0), params, given, *problem.arguments)
        deterministic = {n: s["value"] for n, s in met.items() if s["type"] == "deterministic"}
        return {**given, **deterministic}, log_q

    @cached_property
    def parts(self) -> dict[str, int]:
        """Plates that are seen in parts, by name, and how many of their members are seen."""
        plates = [p for site in self.problem.program.sites for p in site.plates]
        return {p.name: p.subsample_size for p in plates if p.subsample_size != p.size}

    def log_prob(self, draws: Draws) -> jax.Array:
        """Log density of the fitted distribution at draws of all latent sites."""

        def one(_key, values, params):
            args, kwargs = self.problem.arguments
            return self.problem.guide.log_density(params, values, args, kwargs)

        run = self.problem.bound.map_in_batches("log_prob", one)
        return self._over(draws, self.deciding(draws), run)

    def model_log_prob(self, draws: Draws) -> jax.Array:
        """The model's joint log density of data and draws; unnormalised posterior density.

        It is that of :func:`numpyro.infer.util.log_density`. Where plates are seen in parts, it is
        that of the rows that the draws have by the plates' names.
        """
        self.problem.arguments.require_data("model_log_prob()")
        names = self.deciding(draws)

        def one(_key, values, params):
            met = self.met_at(values, params)
            return sum(log_density(s) for s in met.values() if s["type"] == "sample")

        return self._over(draws, names, self.problem.bound.map_in_batches("model_log_prob", one))

    def met_at(self, values: Draws, params: dict[str, Any]) -> dict[str, Any]:
        """The model's sites at one draw."""
        return trace_of(
            self.problem.model, jax.random.key(0), params, values, *self.problem.arguments
        )

    def _over(self, draws: Draws, names: list[str], run: Callable) -> jax.Array:
        """Apply ``run`` to draws with any leading axes."""
        program = self.problem.program
        event = len(program[names[0]].shape)
        lead = jnp.shape(draws[names[0]])[: jnp.ndim(draws[names[0]]) - event]
        flat = {}
        for name in names:
            value = jnp.asarray(draws[name])
            shape = (self.parts[name],) if name in self.parts else program[name].shape
            if value.shape != lead + shape:
                raise AsviError(
                    f"site {name!r}: the draws given have shape {value.shape}; wanted is {lead} "
                    f"for the draws and {shape} for the site."
                )
            flat[name] = value.reshape((prod(lead), *shape))
        return run(flat, self.params).reshape(lead)

    def deciding(self, draws: Draws) -> list[str]:
        """What of the draws decides a density: all latent sites, and rows of plates."""
        latent = self.problem.program.latent
        names = [site.name for site in latent]
        missing = [name for name in names if name not in draws]
        if missing:
            raise AsviError(
                f"The draws lack {', '.join(missing)}; a joint density needs every latent site."
            )
        for site in latent:
            for plate in site.plates:
                if plate.name in self.parts and plate.name not in draws:
                    raise AsviError(
                        f"The draws lack the rows of plate {plate.name!r}, of whose members "
                        f"{site.name!r} has {plate.subsample_size} of {plate.size}.\n"
                        f"Keep them: draws = result.posterior.sample(key, (1000,)) has them as "
                        f"draws[{plate.name!r}]."
                    )
        return names + [name for name in self.parts if name in draws]

    def importance(self, rng_key: Any, num_samples: int = 2000) -> tuple[Draws, SmoothedWeights]:
        """Draws, and their Pareto-smoothed weights against the exact posterior."""
        self.problem.arguments.require_data("importance weights")
        drawn, log_q = self.draw(as_key(rng_key), (num_samples,))
        log_p, log_q = np.asarray(self.model_log_prob(drawn), float), np.asarray(log_q, float)
        # A draw beyond what floats hold has no density at all: it weighs nothing.
        log_ratio = log_p - np.where(np.isfinite(log_q), log_q, np.inf)
        return drawn, pareto_smooth(log_ratio)


def _split(drawn: dict[str, Any]) -> tuple[Draws, jax.Array]:
    """Values of the latent sites in a guide's trace, and their joint log density."""
    latent = {
        name: site["value"]
        for name, site in drawn.items()
        if site["type"] == "sample" and not site["infer"].get("is_auxiliary")
    }
    return latent, joint_log_density(drawn)
