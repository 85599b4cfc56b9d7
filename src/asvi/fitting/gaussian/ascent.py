"""Takes a Gaussian and looks at a density; gives one with a higher ELBO, by natural gradients.

On fixed draws as far as they rise, or on fresh ones by steps of given lengths.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asvi.density.arrowhead import Arrowhead
from asvi.density.curvature import BlockDensity
from asvi.density.edge_factor import factor_on_edges
from asvi.fitting.gaussian.natural_step import natural_step

__all__ = [
    "Where",
    "antithetic_draws",
    "ascend_fixed_draws",
    "ascend_fresh_draws",
    "average",
    "log_ratios",
]

SETTLED, SETS = 0.02, 2
SHORTEST = 1e-3  # step of a natural gradient, below which there is no way on

Where = tuple[np.ndarray, Arrowhead]  # mean and precision


def ascend_fixed_draws(
    density: BlockDensity,
    at: Where,
    edge_mask: Arrowhead,
    steps: int,
    draws: int,
    rng: np.random.Generator,
    sets: int = SETS,
    settled: float = SETTLED,
    shortest: float = SHORTEST,
    near: bool = False,
    trail: list[float] | None = None,
) -> Where | None:
    """Natural gradients on fixed draws, as far as they rise.

    A rise below ``settled`` is small; after it, or where the end is ``near`` from the first, steps
    below ``shortest`` are not tried. Where no step rises, or little, it may be the draws: other
    ones are tried, ``sets`` in all. The ELBO of each step is added to ``trail``.
    """
    mean, precision = at
    known, length, small, seen = None, 1.0, 0, 0
    for _ in range(steps):
        if known is None:
            fixed = antithetic_draws(rng, draws, len(mean))
            known = average(density, mean, factor_on_edges(precision, edge_mask), fixed)
            if known is None:
                return None
        elbo, slope, hessian = known
        ahead = natural_step(mean, precision, slope, hessian, length)
        found = None
        if ahead is not None:
            found = average(density, ahead[0], factor_on_edges(ahead[1], edge_mask), fixed)
        if ahead is not None and found is not None and found[0] > elbo:
            small = small + 1 if found[0] - elbo < settled else 0
            (mean, precision), known, length = ahead, found, min(1.0, 2 * length)
        else:
            length /= 4
        if trail is not None:
            trail.append(known[0])
        if small == 2 or length < (shortest if near or small else SHORTEST):
            known, length, small, seen = None, 1.0, 0, seen + 1
            if seen == sets:
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
        found = average(density, mean, factor_on_edges(precision, edge_mask), fresh)
        if found is not None:
            ahead = natural_step(mean, precision, found[1], found[2], length)
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
    found = density(mean + (spread @ draws.T).T)
    if found is None:
        return None
    entropy = np.sum(np.log(spread.diagonal())) + 0.5 * len(mean) * np.log(2 * np.pi)
    elbo = entropy + np.mean(found.value + 0.5 * np.sum(draws**2, -1))
    return float(elbo), found.slope, -found.hessian


def log_ratios(
    density: BlockDensity, at: Where, edge_mask: Arrowhead, noise: np.ndarray
) -> np.ndarray:
    """Log ratios of the model's density to the Gaussian's, at draws made of ``noise``."""
    spread = factor_on_edges(at[1], edge_mask)
    values = density.values(at[0] + (spread @ noise.T).T)
    volume = np.sum(np.log(spread.diagonal())) + 0.5 * len(at[0]) * np.log(2 * np.pi)
    return values + 0.5 * np.sum(noise**2, -1) + volume
