"""Takes a problem; gives the Gaussian over its noise that is nearest to the posterior.

Of the ends of two ways (:mod:`asvi.fitting.gaussian.newton`) the better one is kept. On both,
natural gradients climb the ELBO of N(m, P⁻¹) (:mod:`asvi.fitting.gaussian.natural_step`). The draws
are made as the guide will make them, with its edges and no others. Everything is computed in double
precision where the model allows.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from asvi.density.arrowhead import Arrow
from asvi.density.curvature import CellsMeet, Curvature, curvature, draws_of, precision
from asvi.density.edge_factor import factor
from asvi.density.gaussian import Gaussian
from asvi.fitting.gaussian.ascent import Where, log_ratios, pairs, refine, rise
from asvi.fitting.gaussian.newton import better_end
from asvi.fitting.problem import Problem
from asvi.guide.edges import listeners

__all__ = ["find_gaussian"]

CLIMB_STEPS, REFINE_STEPS = 60, 15
AFFORDABLE = 5e10  # multiply-adds that may be spent on averages of one start


def find_gaussian(problem: Problem, params: dict[str, Any]) -> Gaussian | None:
    """The Gaussian; None where the model is too large for it or will not do."""
    space = problem.noise_space
    if space is None:
        return None
    hears = listeners(space, problem.guide.edges(space))
    for double in (True, False):
        try:
            look = curvature(space, params, double)
        except NotImplementedError:
            continue  # a model whose types are written down will not run in another precision
        with precision(double), suppress(CellsMeet):
            return _best(look, hears, problem.known_gaussian)
        return None
    return None


def _best(look: Curvature, hears: Arrow, known: Where | None) -> Gaussian | None:
    """The better end of the two ways; the highest mode where there is no way on from either.

    From a Gaussian that is ``known`` there is one way, on from there.
    """
    size = look.cells.size
    draws = draws_of(size)
    steps = int(np.clip(AFFORDABLE / (30 * look.cost * draws), 0, CLIMB_STEPS))
    noise = pairs(np.random.default_rng(2), draws, size)

    def climb(at: Where) -> tuple[float, Where] | None:
        return _climb(look, at, hears, steps, noise)

    found = None
    if known is not None and known[1].cells.is_like(look.cells):
        found = climb(known)
    if found is None:
        found = better_end(look, hears, climb, noise)
    return None if found is None else _told(look, Gaussian(*found[1], found[0]), hears, noise)


def _told(look: Curvature, at: Gaussian, hears: Arrow, noise: np.ndarray) -> Gaussian:
    """The Gaussian with the priors at its mean, and how far they move over draws of it."""
    loc, scale, _ = look.told(at.mean[None])
    draws = at.mean + (factor(at.precision, hears) @ noise.T).T
    moves = np.nan_to_num(np.std(look.told(draws)[0], axis=0), posinf=0.0)
    return replace(at, loc=loc[0], scale=scale[0], loc_sd=moves)


def _climb(
    look: Curvature, at: Where, hears: Arrow, steps: int, noise: np.ndarray
) -> tuple[float, Where] | None:
    """Natural gradients, on fixed draws as far as they rise, then averaged over fresh ones.

    The ELBO of the end is on draws that led nobody, ``noise``: so ends can be compared. None where
    no draw of the start is possible.
    """
    rng, draws = np.random.default_rng(1), len(noise)
    end = rise(look, at, hears, steps, draws, rng)
    if end is None:
        return None
    if steps == CLIMB_STEPS:
        # Lengths of a mean over all of them.
        lengths = [1 / (k + 2) for k in range(REFINE_STEPS)]
        end = refine(look, end, hears, lengths, draws, rng)
    return float(np.mean(log_ratios(look, end, hears, noise))), end
