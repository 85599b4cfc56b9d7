"""Takes a trained guide; gives draws of the posterior, by weights or by moves in its noise."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from asvi.density.curvature import precision
from asvi.density.evaluators import SlopeEvaluator
from asvi.density.refusal import Refusal
from asvi.density.split_keys import seed_of
from asvi.fitting.correction.correct import correct
from asvi.fitting.correction.result import Correction, InPrecision
from asvi.fitting.correction.settings import CorrectionSettings
from asvi.fitting.numpyro_check import NumpyroCheck
from asvi.fitting.particles.base import UnitNormal, unit_density
from asvi.fitting.particles.target import GuideTarget
from asvi.fitting.problem import Problem
from asvi.fitting.settings import NumpyroCheckSettings

__all__ = ["correct_guide"]


def correct_guide(
    problem: Problem,
    params: dict[str, Any],
    key: jax.Array | None,
    settings: CorrectionSettings = CorrectionSettings(),
    check: NumpyroCheckSettings = NumpyroCheckSettings(),
) -> Correction | None:
    """Draws of a trained guide, by weights or by moves in its noise.

    None where its draws are not made of noise alone, and where the model is too large.
    """
    space = problem.guide.guide_space(problem.bound)
    if space is None:
        return None
    rng = np.random.default_rng([*seed_of(key), 2])
    for double in (True, False):
        evaluator = SlopeEvaluator.build(space, params, double, problem.bound.settings.evaluator)
        if isinstance(evaluator, Refusal):
            continue
        target = GuideTarget(evaluator)
        if not settings.has_room_for(target):
            return None
        noise = rng.normal(size=(settings.guide_draws, space.size))
        _check_density(problem, params, target, noise[: check.draws], double, check)
        with precision(double):
            ratios = target.values(noise) - unit_density(noise)
            correction = correct(target, UnitNormal(space.size), noise, ratios, settings, rng)
        if correction.source is not None:
            correction.source = InPrecision(correction.source.further, double)
        return correction
    return None


def _check_density(
    problem: Problem,
    params: dict[str, Any],
    target: GuideTarget,
    noise: np.ndarray,
    double: bool,
    settings: NumpyroCheckSettings,
) -> None:
    """Raise where NumPyro's density of some draws is not the one that they are corrected to."""
    with precision(double):
        sites, volume = target.sites(noise)
        log_p = target.values(noise) - volume
    values = {site.name: sites[site.name] for site in problem.program.latent}
    example = {name: x[0] for name, x in values.items()}
    NumpyroCheck(problem, params, example, settings=settings)(values, params, log_p)
