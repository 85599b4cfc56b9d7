"""Takes a Gaussian near the posterior; gives draws of the posterior, by weights or by moves.

1. *Weights.* Where the Gaussian is near, importance weights of its draws are all that it takes.
2. *Moves.* Else particles are led from the Gaussian to the posterior, and moved there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from asvi.fitting.correction.by_moves import correct_by_moves
from asvi.fitting.correction.by_weights import correct_by_weights
from asvi.fitting.correction.pareto_smoothing import pareto_smooth
from asvi.fitting.correction.result import Correction
from asvi.fitting.correction.settings import CorrectionSettings
from asvi.fitting.particles.base import Base
from asvi.fitting.particles.target import Target

__all__ = ["correct"]


def correct(
    target: Target,
    base: Base,
    noise: np.ndarray,
    log_ratios: np.ndarray,
    settings: CorrectionSettings,
    rng: np.random.Generator,
    moves: bool = True,
) -> Correction:
    """Draws of the target, as good as ``settings`` ask for, by as little as it takes.

    ``log_ratios`` (draws,) are those of the target to the base at ``noise`` (draws,
    numbers). Without ``moves``, weights have to do.
    """
    weighted = correct_by_weights(target, base, noise, log_ratios, settings, rng)
    is_trusted = weighted.checks.k_hat <= settings.max_k_hat
    if not moves or (is_trusted and weighted.checks.within(settings.max_error)):
        return weighted
    moved = correct_by_moves(target, settings, rng, base, log_ratios)
    k_hat = pareto_smooth(log_ratios, settings.smoothing).k_hat
    return replace(moved, checks=replace(moved.checks, k_hat=k_hat))
