"""Takes starts; gives starts whose ELBO is finite, or an error that names the site."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from asvi.errors import SiteError
from asvi.fitting.problem import Problem
from asvi.fitting.training.parallel_optimizer import ParallelState, draw_elbos
from asvi.fitting.training.settings import TrainingSettings

__all__ = ["finite_starts"]


def finite_starts(
    problem: Problem, parallel: ParallelState, key: jax.Array, plan: TrainingSettings
) -> ParallelState:
    """Replace starts without a finite ELBO; raise, naming the site to blame, where none has one.

    A start counts as finite where a share of its draws are: a few draws at the edge of the support
    are skipped by the optimiser. The search moves starts by growing random steps.
    """
    free = parallel.free
    for attempt in range(plan.start_tries):
        probe = jax.random.fold_in(key, 1000 + attempt)
        draws = np.asarray(draw_elbos(problem, free, probe, draws=plan.start_draws))
        fine = np.isfinite(draws).mean(1) >= plan.min_finite_share
        if fine.all():
            return parallel._replace(free=free, average=free)
        if fine.any():
            first = int(np.argmax(fine))
            kept = jnp.asarray(np.where(fine, np.arange(len(fine)), first))
            free, unit = free[kept], parallel.unit[kept]
            return parallel._replace(free=free, average=free, unit=unit)
        noise = jax.random.normal(jax.random.fold_in(key, attempt), free.shape, free.dtype)
        free = parallel.free + plan.start_step * (attempt + 1) * noise
    raise _blame(problem, parallel.free[0], key)


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
