"""Takes a problem; gives the Gaussian over its noise that is nearest to the posterior.

Two ways lead there, and the better end is kept:

* a Newton path from the prior's centre to a mode. It finds location, scale and correlation of
  posteriors on which stochastic gradients take very long: raw predictors, collinear columns,
  coefficients whose scales span 10⁴; and the path of a chain;
* the prior's centre itself. Where scales of a hierarchy are unknown, the joint mode is no guide.

From either, natural gradients climb the ELBO of N(m, P⁻¹) (:mod:`asvi.fitting.natural_step`). The
draws are made as the guide will make them, with its edges and no others. Everything is computed in
double precision where the model allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asvi.families.cells import Cells
from asvi.fitting.arrow import Arrow, Eigen
from asvi.fitting.curvature import CellsMeet, Curvature, Seen, curvature, draws_of, precision
from asvi.fitting.natural_step import natural_step
from asvi.fitting.noise_space import NoiseSpace
from asvi.fitting.problem import Problem
from asvi.fitting.wiring import factor, listeners, wiring

__all__ = ["Gaussian", "find_gaussian"]

NEWTON_STEPS = 100
SEVERAL, OTHERS = 100, 3  # latent numbers up to which further starts are tried, and how many
SOLVED = 1e-3  # expected gain of the next step, in nats
NARROW = (16.0, 1e3, 1e5)  # precisions, over the prior's, of the start at the prior's centre
CLIMB_STEPS, SETTLED, SETS = 60, 0.02, 2
REFINE_STEPS = 15
SHORTEST = 1e-3  # step of a natural gradient, below which there is no way on
AFFORDABLE = 5e10  # multiply-adds that may be spent on averages of one start


Where = tuple[np.ndarray, Arrow]  # mean and precision


@dataclass
class Gaussian:
    """Mean and precision over the noise; once told, each number's prior at the mean."""

    mean: np.ndarray
    precision: Arrow
    elbo: float
    loc: Any = None  # (numbers,)
    scale: Any = None
    loc_sd: np.ndarray | float = 0.0  # how far the prior location moves with the other numbers


def find_gaussian(problem: Problem, params: dict[str, Any]) -> Gaussian | None:
    """The Gaussian; None where the model is too large for it or will not do."""
    if not NoiseSpace.serves(problem):
        return None
    space = NoiseSpace(problem)
    hears = listeners(space, wiring(problem, space))
    for double in (True, False):
        try:
            look = curvature(space, params, double)
        except NotImplementedError:
            continue  # a model whose types are written down will not run in another precision
        with precision(double), suppress(CellsMeet):
            return _best(look, hears)
        return None
    return None


def _best(look: Curvature, hears: Arrow) -> Gaussian | None:
    """The better end of the two ways."""
    cells, cost, size = look.cells, look.cost, look.cells.size
    starts = [np.zeros(size)]
    if size <= SEVERAL:
        # Posteriors of dynamics have false modes near the prior's centre.
        starts += list(np.random.default_rng(0).normal(size=(OTHERS, size)))
    held = scaling(look, cells) if cells.groups else np.zeros(size, bool)
    modes = [mode for start in starts if (mode := newton(look, start, held)) is not None]
    begins = sorted(modes, key=lambda mode: -mode.elbo)[:1]
    draws = draws_of(size)
    steps = int(np.clip(AFFORDABLE / (30 * cost * draws), 0, CLIMB_STEPS))
    ends = [
        end for begin in begins if (end := _climb(look, begin, hears, steps, draws)) is not None
    ]
    centre = look(np.zeros((1, size)))
    if centre is not None and not (ends and cells.groups):
        for narrow in NARROW:
            at = narrow * Arrow.identity(cells)
            end = _climb(look, Gaussian(np.zeros(size), at, -np.inf), hears, steps, draws)
            if end is not None:
                ends.append(end)
                break
    if ends:
        return max(ends, key=lambda end: end.elbo)
    return _told(look, begins[0]) if begins else None


def _told(look: Curvature, at: Gaussian, spread: np.ndarray | None = None) -> Gaussian:
    """The Gaussian with the priors at its mean; ``spread`` are draws of it."""
    loc, scale, _ = look.told(at.mean[None])
    moves = 0.0 if spread is None else np.std(look.told(spread)[0], axis=0)
    return replace(at, loc=loc[0], scale=scale[0], loc_sd=moves)


def scaling(look: Curvature, cells: Cells) -> np.ndarray:
    """Which numbers of the core set the scale of others, (numbers,).

    Of many groups with an unknown scale, the joint mode has none: the larger the scale, the smaller
    the noise that makes the same effects.
    """
    held = np.zeros(cells.size, bool)
    calls = max(1, -(-len(cells.core) // (draws_of(cells.size) - 1)))
    for some in np.array_split(cells.core, calls):
        points = np.zeros((1 + len(some), cells.size))
        points[1 + np.arange(len(some)), some] = 1e-3
        width = look.told(points)[-1]
        held[some] = (np.abs(width[1:] / width[0] - 1) > 1e-6).any(1)
    return held


def newton(
    look: Curvature, start: np.ndarray, held: np.ndarray, steps: int = NEWTON_STEPS
) -> Gaussian | None:
    """Newton's path from one start; None where the density or its curvature is not finite.

    The Hessian's eigenvalues are taken by their size, so that a step goes uphill, and damped until
    the density rises. Numbers that are ``held`` stay where they are. The ELBO is Laplace's estimate
    of the log evidence.
    """
    x, damping, known = start, 0.0, _holding(held, look(start[None]))
    if known is None:
        return None
    curve = _uphill(-known.hessian)
    for _ in range(steps):
        step = curve.solve(known.slope)
        if 0.5 * float(known.slope @ step) < SOLVED:
            break
        if damping:
            step = _uphill(-known.hessian, damping).solve(known.slope)
        ahead = _holding(held, look((x + step)[None]))
        if ahead is not None and ahead.value[0] > known.value[0]:
            x, known = x + step, ahead
            curve = _uphill(-known.hessian)
            damping = 0.0 if damping < 1e-3 else damping / 10
        else:
            damping = max(1.0, 10 * damping)
            if damping > 1e12:
                break
    evidence = float(known.value[0]) - 0.5 * (curve.log_det() - len(x) * np.log(2 * np.pi))
    precision = curve.arrow() if isinstance(curve, Eigen) else curve
    return Gaussian(x, precision, evidence)


def _uphill(curve: Arrow, damping: float = 0.0) -> Arrow | Eigen:
    """This matrix, with ``damping`` added, where it is positive; else its eigenvalues by size."""
    damped = curve + damping * Arrow.identity(curve.cells) if damping else curve
    return damped if damped.is_positive() else curve.by_size(damping)


def _holding(held: np.ndarray, seen: Seen | None) -> Seen | None:
    """What was seen, as if these numbers had a mode where they are, and knew nothing of others."""
    if seen is None or not held.any():
        return seen
    free = 1.0 * ~held
    own = (NARROW[0] * Arrow.identity(seen.hessian.cells)).scaled(1 - free, 1 - free)
    return replace(seen, slope=free * seen.slope, hessian=seen.hessian.scaled(free, free) - own)


def _climb(
    look: Curvature, begin: Gaussian, hears: Arrow, steps: int, draws: int
) -> Gaussian | None:
    """Natural gradients, on fixed draws as far as they rise, then averaged over fresh ones.

    None where no draw of the start is possible.
    """
    rng = np.random.default_rng(1)
    at = rise(look, (begin.mean, begin.precision), hears, steps, draws, rng)
    if at is None:
        return None
    if steps == CLIMB_STEPS:
        # Lengths of a mean over all of them.
        at = refine(look, at, hears, [1 / (k + 2) for k in range(REFINE_STEPS)], draws, rng)
    return ended(look, at, hears, draws)


def rise(
    look: Curvature,
    at: Where,
    hears: Arrow,
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
            fixed = pairs(rng, draws, len(mean))
            known = average(look, mean, factor(precision, hears), fixed)
            if known is None:
                return None
        elbo, slope, hessian = known
        ahead = natural_step(mean, precision, slope, hessian, length)
        found = None
        if ahead is not None:
            found = average(look, ahead[0], factor(ahead[1], hears), fixed)
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


def refine(
    look: Curvature,
    at: Where,
    hears: Arrow,
    lengths: Sequence[float],
    draws: int,
    rng: np.random.Generator,
) -> Where:
    """Natural gradients of these lengths, each on fresh draws."""
    mean, precision = at
    for length in lengths:
        fresh = pairs(rng, draws, len(mean))
        found = average(look, mean, factor(precision, hears), fresh)
        if found is not None:
            ahead = natural_step(mean, precision, found[1], found[2], length)
            mean, precision = ahead if ahead is not None else (mean, precision)
    return mean, precision


def ended(look: Curvature, at: Where, hears: Arrow, draws: int) -> Gaussian | None:
    """The Gaussian there, with an ELBO on draws that led nobody: so ends can be compared."""
    mean, precision = at
    held_out = pairs(np.random.default_rng(2), draws, len(mean))
    spread = factor(precision, hears)
    end = average(look, mean, spread, held_out)
    if end is None:
        return None
    return _told(look, Gaussian(mean, precision, end[0]), mean + (spread @ held_out.T).T)


def pairs(rng: np.random.Generator, draws: int, size: int) -> np.ndarray:
    """Standard normal draws, each with its mirror image."""
    half = rng.normal(size=(draws // 2, size))
    return np.concatenate([half, -half])


def average(
    look: Curvature, mean: np.ndarray, spread: Arrow, draws: np.ndarray
) -> tuple[float, np.ndarray, Arrow] | None:
    """ELBO, gradient and negative Hessian, averaged over the Gaussian."""
    found = look(mean + (spread @ draws.T).T)
    if found is None:
        return None
    entropy = np.sum(np.log(spread.diagonal())) + 0.5 * len(mean) * np.log(2 * np.pi)
    elbo = entropy + np.mean(found.value + 0.5 * np.sum(draws**2, -1))
    return float(elbo), found.slope, -found.hessian
