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
from asvi.fitting.gaussian.other_modes import base_of
from asvi.fitting.gaussian.search import GaussianFit
from asvi.fitting.particles.base import Base, UnitNormal
from asvi.fitting.particles.target import GaussianTarget
from asvi.fitting.problem import Problem

__all__ = ["correct_gaussian"]


def correct_gaussian(
    problem: Problem, found: GaussianFit, key: jax.Array | None, max_error: float, moves: bool
) -> Correction:
    """By weights, and, where they may be made, by ``moves`` where weights do not do."""
    rng = np.random.default_rng([*seed_of(key), 1])
    target = GaussianTarget(found.density, found.mean, found.spread)
    settings, double = CorrectionSettings(max_error=max_error), found.is_double
    with precision(double):
        base, noise, ratios = _base(found, target, rng)
        made = correct(target, base, noise, ratios, settings, rng, moves)
    if made.source is not None:
        made.source = InPrecision(made.source.further, double)
    completion = Completion.of(problem)
    if completion is not None:
        made.pool = completion.pool(made.pool, rng)
        if made.checks.effective_draws_of.startswith(BLANK):
            made.checks = replace(made.checks, effective_draws_of="")
        further = made.source
        made.source = None if further is None else _Completed(further, completion, rng)
    return made


def _base(
    found: GaussianFit, target: GaussianTarget, rng: np.random.Generator
) -> tuple[Base, np.ndarray, np.ndarray]:
    """What draws come from, some of them, and their log ratios."""
    if not found.others:
        return UnitNormal(target.size), found.noise, found.log_ratios
    base = base_of(found.mean, found.spread, found.elbo, found.others)
    noise = base.placed(found.noise, rng)
    return base, noise, target(noise)[0] - base(noise)[0]


@dataclass
class _Completed:
    """Further draws, with those of discrete sites."""

    source: Source
    completion: Completion
    rng: np.random.Generator

    def further(self, count: int) -> Pool:
        return self.completion.pool(self.source.further(count), self.rng)
