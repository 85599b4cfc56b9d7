"""Takes a Gaussian and a density; gives one with a higher ELBO, by natural gradients.

On fixed draws as far as they rise, or on fresh ones by steps of given lengths.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asvi.density.arrowhead import Arrowhead
from asvi.density.curvature import BlockDensity
from asvi.density.edge_factor import factor_on_edges
from asvi.fitting.gaussian.natural_step import natural_step
from asvi.fitting.gaussian.settings import AscentSettings

__all__ = [
    "Where",
    "antithetic_draws",
    "ascend_fixed_draws",
    "ascend_fresh_draws",
    "average",
    "log_ratios",
]

Where = tuple[np.ndarray, Arrowhead]  # mean and precision


def ascend_fixed_draws(
    density: BlockDensity,
    at: Where,
    edge_mask: Arrowhead,
    draws: int,
    rng: np.random.Generator,
    settings: AscentSettings = AscentSettings(),
    trail: list[float] | None = None,
) -> Where | None:
    """Natural gradients on fixed draws, as far as they rise.

    After a small gain, or from a start near the end, steps are shortened less far. Where no step
    rises, or little, it may be the draws: other sets are tried. The ELBO of each step is added to
    ``trail``. None where no draw is possible.
    """
    mean, precision = at
    known, length, small_gains, sets = None, 1.0, 0, 0
    for _ in range(settings.max_steps):
        if known is None:
            fixed = antithetic_draws(rng, draws, len(mean))
            known = average(density, mean, factor_on_edges(precision, edge_mask), fixed)
            if known is None:
                return None
        elbo, slope, hessian = known
        ahead = natural_step(mean, precision, slope, hessian, length)
        after = None
        if ahead is not None:
            after = average(density, ahead[0], factor_on_edges(ahead[1], edge_mask), fixed)
        if ahead is not None and after is not None and after[0] > elbo:
            small_gains = small_gains + 1 if after[0] - elbo < settings.small_gain else 0
            (mean, precision), known, length = ahead, after, min(1.0, 2 * length)
        else:
            length /= 4
        if trail is not None:
            trail.append(known[0])
        is_near = settings.starts_near or small_gains
        if small_gains == 2 or length < (settings.min_step_near if is_near else settings.min_step):
            known, length, small_gains, sets = None, 1.0, 0, sets + 1
            if sets == settings.draw_sets:
                break
    return mean, precision


def ascend_fresh_draws(
    density: BlockDensity,
    at: Where,
    edge_mask: Arrowhead,
    lengths: Sequence[float],
    draws: int,
    rng: np.random.Generator,
) -> Where:
    """Natural gradients of these lengths, each on fresh draws."""
    mean, precision = at
    for length in lengths:
        fresh = antithetic_draws(rng, draws, len(mean))
        averages = average(density, mean, factor_on_edges(precision, edge_mask), fresh)
        if averages is not None:
            ahead = natural_step(mean, precision, averages[1], averages[2], length)
            mean, precision = ahead if ahead is not None else (mean, precision)
    return mean, precision


def antithetic_draws(rng: np.random.Generator, draws: int, size: int) -> np.ndarray:
    """Standard normal draws, each with its mirror image."""
    half = rng.normal(size=(draws // 2, size))
    return np.concatenate([half, -half])


def average(
    density: BlockDensity, mean: np.ndarray, spread: Arrowhead, draws: np.ndarray
) -> tuple[float, np.ndarray, Arrowhead] | None:
    """ELBO, gradient and negative Hessian, averaged over the Gaussian."""
    derivatives = density(mean + (spread @ draws.T).T)
    if derivatives is None:
        return None
    entropy = np.sum(np.log(spread.diagonal())) + 0.5 * len(mean) * np.log(2 * np.pi)
    elbo = entropy + np.mean(derivatives.value + 0.5 * np.sum(draws**2, -1))
    return float(elbo), derivatives.slope, -derivatives.hessian


def log_ratios(
    density: BlockDensity, at: Where, edge_mask: Arrowhead, noise: np.ndarray
) -> np.ndarray:
    """Log ratios of the model's density to the Gaussian's, at draws made of ``noise``."""
    spread = factor_on_edges(at[1], edge_mask)
    values = density.values(at[0] + (spread @ noise.T).T)
    volume = np.sum(np.log(spread.diagonal())) + 0.5 * len(at[0]) * np.log(2 * np.pi)
    return values + 0.5 * np.sum(noise**2, -1) + volume
