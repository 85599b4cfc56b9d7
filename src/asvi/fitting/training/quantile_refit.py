r"""Takes a fitted vector; gives it with the globals' splines led through weighted quantiles.

The ELBO hardly feels a tail that is left out. One per cent of the mass there costs some 0.005 nat,
less than optimisation can see, and may hold half of a variance. Importance weights see it. With all
else held, the splines that minimise :math:`KL(p\,\|\,q)`, which does feel what is left out, need no
optimisation: log q has :math:`S_j` only in the density of :math:`w_j = S_j(z_j)`, and what others
have of the number is :math:`w_j` itself, so that the best :math:`S_j` is the one that takes the
noise's quantiles to the posterior's,

.. math:: S_j'(z) = S_j(G_j(z)), \qquad G_j = \hat F_p^{-1} \circ \hat F_q,

with the distribution functions of :math:`z_j` over draws with and without their weights, at the
knots. Both use the same draws: an exact guide is left as it is. Weights are cut at a multiple of
their median, so that no single draw has a say. Where all the way costs more ELBO than the
tolerance, half of it is tried, and where that does, nothing is changed. A round has no more draws
than the whole run had, and runs that had few go without.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.distributions.spline import KNOTS, spline_forward, weights_through
from asvi.fitting.problem import Problem
from asvi.fitting.training.parallel_optimizer import draw_elbos, evaluate_with_noise
from asvi.fitting.training.settings import QuantileRefitSettings, TrainingSettings

__all__ = ["compose_spline", "cut_weights", "quantile_map", "refit_splines"]


def refit_splines(
    problem: Problem,
    flat: jax.Array,
    key: jax.Array,
    plan: TrainingSettings,
    max_draws: int | None = None,
) -> tuple[jax.Array, dict[str, Any]]:
    """The vector (parameters,) that is kept, and what was measured; nothing without splines.

    ``max_draws`` bounds the draws of each round, beside the settings.
    """
    settings = plan.quantile_refit
    most = min(settings.max_draws, settings.max_draws if max_draws is None else max_draws)
    sampled = any(p.size != p.subsample_size for s in problem.program.sites for p in s.plates)
    if not problem.splines or problem.may_have_scores or sampled or most < settings.min_draws:
        return flat, {}  # with scores or subsamples a draw's ELBO is no log ratio
    calls = max(1, most // (plan.restarts * plan.evaluation_draws))
    measured: dict[str, list[float]] = {"gains": [], "refused": []}
    for i in range(settings.rounds):
        least = -plan.tolerance - sum(measured["gains"])
        for new, gain in _trials(problem, flat, jax.random.fold_in(key, i), plan, calls):
            measured["gains" if gain > least else "refused"].append(gain)
            if gain > least:
                flat = new
                break
        else:
            break
    return flat, measured


def _trials(
    problem: Problem, flat: jax.Array, key: jax.Array, plan: TrainingSettings, calls: int
) -> Iterator[tuple[jax.Array, float]]:
    """Vectors led all the way and half of it, and the ELBO that each gains, on the same draws."""
    settings = plan.quantile_refit
    keys = [jax.random.fold_in(key, i) for i in range(calls)]
    rows = jnp.broadcast_to(flat, (plan.restarts, flat.size))
    found = jax.device_get(
        [evaluate_with_noise(problem, rows, k, draws=plan.evaluation_draws) for k in keys]
    )
    before = np.array([elbos for elbos, _ in found], float)
    fine = np.isfinite(before).ravel()
    if not fine.any() or not found[0][1]:
        return
    weights = cut_weights(before.ravel()[fine], settings.max_weight)
    maps = {}
    for site in found[0][1]:
        noise = np.array([z[site] for _, z in found], float).reshape(fine.size, -1)[fine]
        maps[site] = np.array([quantile_map(z, weights, settings) for z in noise.T])
    params = problem.found_params(flat)
    few = max(1, calls // 4)
    for share in (1.0, 0.5):  # half of the way costs a quarter
        new = dict(params)
        for site, where_to in maps.items():
            name = problem.splines[site]
            old = np.asarray(params[name])
            to = share * where_to + (1 - share) * KNOTS[1:-1]
            rows_of = zip(old.reshape(-1, old.shape[-1]), to, strict=True)
            led = np.reshape(
                [compose_spline(spline, where) for spline, where in rows_of], old.shape
            )
            new[name] = jnp.asarray(led, old.dtype)
        changed = problem.free(new)
        rows = jnp.broadcast_to(changed, rows.shape)
        after = [draw_elbos(problem, rows, k, draws=plan.evaluation_draws) for k in keys[:few]]
        change = (np.array(jax.device_get(after), float) - before[:few]).ravel()
        yield changed, float(np.mean(change[fine[: change.size]]))


def cut_weights(log_ratios: np.ndarray, largest: float) -> np.ndarray:
    """Importance weights that sum to 1, none above so many of their medians."""
    weights = np.exp(np.minimum(log_ratios - np.median(log_ratios), np.log(largest)))
    return weights / weights.sum()


def quantile_map(
    z: np.ndarray,
    weights: np.ndarray,
    settings: QuantileRefitSettings = QuantileRefitSettings(),
) -> np.ndarray:
    """Where the inner knots go if draws z (n,) of the guide have these weights, which sum to 1.

    >>> import numpy as np
    >>> z = np.random.default_rng(0).normal(size=20_000)
    >>> same = quantile_map(z, np.full(len(z), 1 / len(z)))
    >>> bool(np.allclose(same, KNOTS[1:-1]))
    True
    >>> weights = np.exp(0.5 * z)                   # the posterior lies half a unit further right
    >>> moved = quantile_map(z, weights / weights.sum())
    >>> [round(float(x), 1) for x in moved[2:-2] - KNOTS[3:-3]]
    [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    """
    order = np.argsort(z)
    z, weights = z[order], weights[order]
    inner = KNOTS[1:-1]
    plain = np.interp(inner, z, (np.arange(len(z)) + 0.5) / len(z))
    to = np.interp(plain, np.cumsum(weights) - 0.5 * weights, z)
    beyond = len(z) * np.minimum(plain, 1 - plain)
    to = np.where(beyond < settings.min_tail_draws, inner, to)
    # In order, and apart, also beside knots that stayed.
    gaps = settings.min_gap * np.arange(1, len(to) + 1)
    to = np.minimum(to, KNOTS[-1] - gaps[::-1])
    return np.maximum(np.maximum.accumulate(to - gaps) + gaps, KNOTS[0] + gaps)


def compose_spline(spline: np.ndarray, to: np.ndarray) -> np.ndarray:
    """The spline of these weights after a map that takes the inner knots to ``to``."""
    widths = np.diff(KNOTS)
    steps = np.diff(np.concatenate([KNOTS[:1], to, KNOTS[-1:]])) / widths
    left, right = widths[:-1], widths[1:]
    slopes = (right * steps[:-1] + left * steps[1:]) / (left + right)
    everywhere = np.broadcast_to(spline, (len(to), len(spline)))
    values, log_slopes = jax.jit(spline_forward)(to.astype(spline.dtype), everywhere)
    return weights_through(np.asarray(values, float), slopes * np.exp(np.asarray(log_slopes)))
