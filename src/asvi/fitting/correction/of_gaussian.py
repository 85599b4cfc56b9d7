"""Takes the Gaussian that was found; gives draws of the posterior, as good as was asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np

from asvi.density.curvature import precision
from asvi.density.noncentering import BLANK
from asvi.density.split_keys import seed_of
from asvi.fitting.correction.correct import correct
from asvi.fitting.correction.discrete_sites import Completion
from asvi.fitting.correction.pool import Pool
from asvi.fitting.correction.result import Correction, InPrecision, Source
from asvi.fitting.correction.settings import CorrectionSettings
from asvi.fitting.gaussian.other_modes import mixture_of_modes
from asvi.fitting.gaussian.result import GaussianFit
from asvi.fitting.particles.base import Base, UnitNormal
from asvi.fitting.particles.target import GaussianTarget
from asvi.fitting.problem import Problem

__all__ = ["correct_gaussian"]


def correct_gaussian(
    problem: Problem,
    fit: GaussianFit,
    key: jax.Array | None,
    settings: CorrectionSettings = CorrectionSettings(),
    moves: bool = True,
) -> Correction:
    """By weights, and, where they may be made, by ``moves`` where weights do not do."""
    rng = np.random.default_rng([*seed_of(key), 1])
    target = GaussianTarget(fit.density, fit.mean, fit.spread)
    with precision(fit.is_double):
        base, noise, ratios = _base(fit, target, rng)
        correction = correct(target, base, noise, ratios, settings, rng, moves)
    if correction.source is not None:
        correction.source = InPrecision(correction.source.further, fit.is_double)
    completion = Completion.of(problem)
    if completion is not None:
        correction.pool = completion.pool(correction.pool, rng)
        if correction.checks.effective_draws_of.startswith(BLANK):
            correction.checks = replace(correction.checks, effective_draws_of="")
        further = correction.source
        correction.source = None if further is None else _CompletedSource(further, completion, rng)
    return correction


def _base(
    fit: GaussianFit, target: GaussianTarget, rng: np.random.Generator
) -> tuple[Base, np.ndarray, np.ndarray]:
    """What draws come from, some of them, and their log ratios."""
    if not fit.others:
        return UnitNormal(target.size), fit.noise, fit.log_ratios
    base = mixture_of_modes(fit.mean, fit.spread, fit.elbo, fit.others)
    noise = base.draws_from_noise(fit.noise, rng)
    return base, noise, target(noise)[0] - base(noise)[0]


@dataclass
class _CompletedSource:
    """Further draws, with those of discrete sites."""

    source: Source
    completion: Completion
    rng: np.random.Generator

    def further(self, count: int) -> Pool:
        return self.completion.pool(self.source.further(count), self.rng)
