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
from asvi.fitting.numpyro_check import Recheck
from asvi.fitting.particles.base import UnitNormal, unit_density
from asvi.fitting.particles.target import GuideTarget
from asvi.fitting.problem import Problem

__all__ = ["correct_guide"]

DRAWS, CHECKED = 1024, 4  # that are weighted first, and that NumPyro is asked of


def correct_guide(
    problem: Problem, params: dict[str, Any], key: jax.Array | None, max_error: float
) -> Correction | None:
    """Draws of a trained guide, by weights or by moves in its noise.

    None where its draws are not made of noise alone, and where the model is too large.
    """
    space, settings = (
        problem.guide.guide_space(problem.bound),
        CorrectionSettings(max_error=max_error),
    )
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
        noise = rng.normal(size=(DRAWS, space.size))
        _ask_numpyro(problem, params, target, noise[:CHECKED], double)
        with precision(double):
            ratios = target.values(noise) - unit_density(noise)
            made = correct(target, UnitNormal(space.size), noise, ratios, settings, rng)
        if made.source is not None:
            made.source = InPrecision(made.source.further, double)
        return made
    return None


def _ask_numpyro(
    problem: Problem, params: dict[str, Any], target: GuideTarget, noise: np.ndarray, double: bool
) -> None:
    """Raise where NumPyro's density of some draws is not the one that they are corrected to."""
    with precision(double):
        sites, volume = target.sites(noise)
        found = target.values(noise) - volume
    values = {site.name: sites[site.name] for site in problem.program.latent}
    Recheck(problem, params, {n: x[0] for n, x in values.items()})(values, params, found)
