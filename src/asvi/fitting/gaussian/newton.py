"""Takes a density and a climb; gives the better end of two ways to a Gaussian.

* A Newton path from the prior's centre to a mode. It finds location, scale and correlation of
  posteriors on which stochastic gradients take very long: raw predictors, collinear columns,
  coefficients whose scales span 10⁴; and the path of a chain.
* The prior's centre itself. Where scales of a hierarchy are unknown, the joint mode is no guide.

Where the Gaussian at the mode is the posterior, that is the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from asvi.density.arrowhead import Arrowhead, ArrowheadEigen
from asvi.density.block_structure import BlockStructure
from asvi.density.curvature import BlockDensity, MeanDerivatives
from asvi.fitting.gaussian.ascent import Where, log_ratios
from asvi.fitting.gaussian.settings import NewtonSettings

__all__ = ["Mode", "find_better_end", "find_mode", "find_scale_numbers", "is_near"]

Climb = Callable[[Where], tuple[float, Where] | None]


class Mode(NamedTuple):
    """Where a path of Newton's ends: the Gaussian there, and Laplace's estimate of its ELBO."""

    mean: np.ndarray
    precision: Arrowhead
    elbo: float


def find_better_end(
    density: BlockDensity,
    edge_mask: Arrowhead,
    climb: Climb,
    noise: np.ndarray,
    enough_nat: float,
    settings: NewtonSettings = NewtonSettings(),
) -> tuple[float, Where] | None:
    """ELBO, mean and precision of the better end of the two ways; None where there is no start.

    ``climb`` leads on from a start, to its ELBO on ``noise`` (draws, numbers) and where that is.
    Large models go one way, if it has an end. No other way is looked for from an end within
    ``enough_nat`` of the posterior.
    """

    def is_enough(end: tuple[float, Where]) -> bool:
        return is_near(log_ratios(density, end[1], edge_mask, noise), enough_nat)

    size = density.structure.size
    fixed = np.zeros(size, bool)
    if density.structure.groups:
        fixed = find_scale_numbers(density, density.structure)
    first = find_mode(density, np.zeros(size), fixed, settings)
    ends = []
    if first is not None:
        start = first.mean, first.precision
        ratios = log_ratios(density, start, edge_mask, noise)
        if is_near(ratios, enough_nat):
            return float(np.mean(ratios)), start
        ends = [end for end in [climb(start)] if end is not None]
        if ends and is_enough(ends[0]):
            return ends[0]
    best = _find_highest_mode(density, first, fixed, settings)
    if best is not None and best is not first:
        ends = [end for end in [climb((best.mean, best.precision))] if end is not None]
        if ends and is_enough(ends[0]):
            return ends[0]
    if not ends or density.may_be_dense:
        for narrow in settings.start_precisions:
            end = climb((np.zeros(size), narrow * Arrowhead.identity(density.structure)))
            if end is not None:
                ends.append(end)
                break
    ends = [end for end in ends if np.isfinite(end[0])]
    if ends:
        return max(ends, key=lambda end: end[0])
    return None if best is None else (best.elbo, (best.mean, best.precision))


def _find_highest_mode(
    density: BlockDensity, first: Mode | None, fixed: np.ndarray, settings: NewtonSettings
) -> Mode | None:
    """The mode of most mass, by Laplace's estimate, of the first one and those of further starts.

    Posteriors of dynamics have false modes near the prior's centre.
    """
    modes, size = [] if first is None else [first], density.structure.size
    if size <= settings.max_numbers_for_extra_starts:
        for start in np.random.default_rng(0).normal(size=(settings.extra_starts, size)):
            mode = find_mode(density, start, fixed, settings)
            modes += [] if mode is None else [mode]
    return max(modes, key=lambda mode: mode.elbo, default=None)


def is_near(ratios: np.ndarray, nats: float) -> bool:
    """Whether a Gaussian is this near to the posterior, by log ratios at its draws.

    Near the posterior the divergence is half their variance.
    """
    return bool(np.var(ratios) < 2 * nats)


def find_scale_numbers(density: BlockDensity, structure: BlockStructure) -> np.ndarray:
    """Which numbers of the core set the scale of others, (numbers,).

    Of many groups with an unknown scale, the joint mode has none: the larger the scale, the smaller
    the noise that makes the same effects.
    """
    sets_scales = np.zeros(structure.size, bool)
    calls = max(1, -(-len(structure.core) // (density.averaged_draws - 1)))
    for some in np.array_split(structure.core, calls):
        points = np.zeros((1 + len(some), structure.size))
        points[1 + np.arange(len(some)), some] = 1e-3
        width = density.prior_moments(points)[-1]
        sets_scales[some] = (np.abs(width[1:] / width[0] - 1) > 1e-6).any(1)
    return sets_scales


def find_mode(
    density: BlockDensity,
    start: np.ndarray,
    fixed: np.ndarray,
    settings: NewtonSettings = NewtonSettings(),
) -> Mode | None:
    """Newton's path from one start; None where the density or its curvature is not finite.

    The Hessian's eigenvalues are taken by their size, so that a step goes uphill, and damped until
    the density rises. Numbers that are ``fixed``, (numbers,), stay where they are. The ELBO is
    Laplace's estimate of the log evidence.
    """

    def derivatives_at(x: np.ndarray) -> MeanDerivatives | None:
        return _hold_fixed(fixed, density(x[None]), settings.start_precisions[0])

    x, damping, known = start, 0.0, derivatives_at(start)
    if known is None:
        return None
    curve = _make_positive(-known.hessian)
    for _ in range(settings.max_steps):
        step = curve.solve(known.slope)
        if 0.5 * float(known.slope @ step) < settings.min_gain:
            break
        if damping:
            step = _make_positive(-known.hessian, damping).solve(known.slope)
        ahead = derivatives_at(x + step)
        if ahead is not None and ahead.value[0] > known.value[0]:
            x, known = x + step, ahead
            curve = _make_positive(-known.hessian)
            damping = 0.0 if damping < 1e-3 else damping / 10
        else:
            damping = max(1.0, 10 * damping)
            if damping > settings.max_damping:
                break
    evidence = float(known.value[0]) - 0.5 * (curve.log_det() - len(x) * np.log(2 * np.pi))
    precision = curve.to_arrowhead() if isinstance(curve, ArrowheadEigen) else curve
    return Mode(x, precision, evidence)


def _make_positive(curve: Arrowhead, damping: float = 0.0) -> Arrowhead | ArrowheadEigen:
    """This matrix, with ``damping`` added, where it is positive; else its eigenvalues by size."""
    damped = curve + damping * Arrowhead.identity(curve.structure) if damping else curve
    return damped if damped.is_positive() else curve.by_size(damping)


def _hold_fixed(
    fixed: np.ndarray, derivatives: MeanDerivatives | None, precision: float
) -> MeanDerivatives | None:
    """These, as if fixed numbers had a mode of this precision where they are, apart from others."""
    if derivatives is None or not fixed.any():
        return derivatives
    free, hessian = 1.0 * ~fixed, derivatives.hessian
    own = (precision * Arrowhead.identity(hessian.structure)).scaled(1 - free, 1 - free)
    return replace(
        derivatives, slope=free * derivatives.slope, hessian=hessian.scaled(free, free) - own
    )
