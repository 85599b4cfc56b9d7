"""Takes lanes at their start; gives lanes whose ELBO is finite, or an error that names the site."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from asvi.errors import SiteError
from asvi.fitting.problem import Problem
from asvi.fitting.training.parallel_optimizer import ParallelState, draw_elbos

__all__ = ["finite_starts"]

TRIES = 5
PROBE_DRAWS = 128


def finite_starts(problem: Problem, lanes: ParallelState, key: jax.Array) -> ParallelState:
    """Replace lanes without a finite ELBO; raise, naming the site to blame, where none has one.

    A lane counts as finite where a quarter of its draws are: a few draws at the edge of the support
    are skipped by the optimiser. The search moves starts by growing random steps.
    """
    free = lanes.free
    for attempt in range(TRIES):
        probe = jax.random.fold_in(key, 1000 + attempt)
        draws = np.asarray(draw_elbos(problem, free, probe, draws=PROBE_DRAWS))
        fine = np.isfinite(draws).mean(1) >= 0.25
        if fine.all():
            return lanes._replace(free=free, average=free)
        if fine.any():
            first = int(np.argmax(fine))
            kept = jnp.asarray(np.where(fine, np.arange(len(fine)), first))
            return lanes._replace(free=free[kept], average=free[kept], unit=lanes.unit[kept])
        noise = jax.random.normal(jax.random.fold_in(key, attempt), free.shape, free.dtype)
        free = lanes.free + 0.3 * (attempt + 1) * noise
    raise _blame(problem, lanes.free[0], key)


def _blame(problem: Problem, free: jax.Array, key: jax.Array) -> SiteError:
    terms = jax.jit(jax.vmap(problem.site_terms, (None, 0)))
    found = terms(free, jax.random.split(key, 64))
    bad = {name: float(np.mean(~np.isfinite(np.asarray(x)))) for name, x in found.items()}
    name = max(bad, key=lambda n: (bad[n], n in problem.observed))
    values = np.asarray(found[name])
    kind = "NaN" if np.isnan(values).any() else "-inf"
    if name in problem.observed:
        return SiteError(
            name,
            f"the log likelihood of the data is {kind} in {bad[name]:.0%} of draws from the start, "
            "and no other start was found",
            'numpyro.sample("y", dist.StudentT(4.0, loc, scale), obs=y)',
            advice="Check that the data lie in the distribution's support and that its scale "
            "cannot be 0; a distribution with heavier tails forgives a poor start.",
        )
    return SiteError(
        name,
        f"its log density is {kind} in {bad[name]:.0%} of draws from the start, and no other start "
        "was found",
        advice="Look for a scale that reaches 0, a logarithm of 0 or an overflowing exponential in "
        "what its parameters are computed from.",
    )
