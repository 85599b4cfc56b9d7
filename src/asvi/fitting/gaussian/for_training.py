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

from asvi.density.arrowhead import Arrowhead
from asvi.density.curvature import (
    BlockDensity,
    BlocksMeet,
    block_density,
    precision,
)
from asvi.density.edge_factor import factor_on_edges
from asvi.density.gaussian import Gaussian
from asvi.density.refusal import Refusal
from asvi.fitting.gaussian.ascent import (
    Where,
    antithetic_draws,
    ascend_fixed_draws,
    ascend_fresh_draws,
    log_ratios,
)
from asvi.fitting.gaussian.newton import find_better_end
from asvi.fitting.gaussian.settings import TrainingSearchSettings
from asvi.fitting.problem import Problem
from asvi.guide.edges import build_edge_mask

__all__ = ["find_gaussian"]


def find_gaussian(
    problem: Problem,
    params: dict[str, Any],
    settings: TrainingSearchSettings = TrainingSearchSettings(),
) -> Gaussian | None:
    """The Gaussian; None where the model is too large for it or will not do."""
    space = problem.noise_space
    if space is None:
        return None
    edge_mask = build_edge_mask(space, problem.guide.edges(space))
    for double in (True, False):
        density = block_density(space, params, double)
        if isinstance(density, Refusal):
            continue  # a model whose types are written down will not run in another precision
        with precision(double), suppress(BlocksMeet):
            return _find_best(density, edge_mask, problem.known_gaussian, settings)
        return None
    return None


def _find_best(
    density: BlockDensity,
    edge_mask: Arrowhead,
    known: Where | None,
    settings: TrainingSearchSettings,
) -> Gaussian | None:
    """The better end of the two ways; the highest mode where there is no way on from either.

    From a Gaussian that is ``known`` there is one way, on from there.
    """
    size = density.structure.size
    draws = density.averaged_draws
    affordable = settings.max_multiply_adds / (30 * density.cost * draws)
    steps = int(np.clip(affordable, 0, settings.ascent.max_steps))
    noise = antithetic_draws(np.random.default_rng(2), draws, size)

    def climb(at: Where) -> tuple[float, Where] | None:
        return _climb(density, at, edge_mask, steps, noise, settings)

    end = None
    if known is not None and known[1].structure.is_like(density.structure):
        end = climb(known)
    if end is None:
        end = find_better_end(
            density, edge_mask, climb, noise, settings.enough_nat, settings.newton
        )
    if end is None:
        return None
    return _with_prior_moments(density, Gaussian(*end[1], end[0]), edge_mask, noise)


def _with_prior_moments(
    density: BlockDensity, at: Gaussian, edge_mask: Arrowhead, noise: np.ndarray
) -> Gaussian:
    """The Gaussian with the priors at its mean, and how far they move over draws of it."""
    loc, scale, _ = density.prior_moments(at.mean[None])
    draws = at.mean + (factor_on_edges(at.precision, edge_mask) @ noise.T).T
    moves = np.nan_to_num(np.std(density.prior_moments(draws)[0], axis=0), posinf=0.0)
    return replace(at, loc=loc[0], scale=scale[0], loc_sd=moves)


def _climb(
    density: BlockDensity,
    at: Where,
    edge_mask: Arrowhead,
    steps: int,
    noise: np.ndarray,
    settings: TrainingSearchSettings,
) -> tuple[float, Where] | None:
    """Natural gradients, on fixed draws as far as they rise, then averaged over fresh ones.

    The ELBO of the end is on draws that led nobody, ``noise``: so ends can be compared. None where
    no draw of the start is possible.
    """
    rng, draws = np.random.default_rng(1), len(noise)
    ascent = replace(settings.ascent, max_steps=steps)
    end = ascend_fixed_draws(density, at, edge_mask, draws, rng, ascent)
    if end is None:
        return None
    if steps == settings.ascent.max_steps:
        # Lengths of a mean over all of them.
        lengths = [1 / (k + 2) for k in range(settings.fresh_steps)]
        end = ascend_fresh_draws(density, end, edge_mask, lengths, draws, rng)
    return float(np.mean(log_ratios(density, end, edge_mask, noise))), end
