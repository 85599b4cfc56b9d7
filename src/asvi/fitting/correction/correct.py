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
    found = correct_by_weights(target, base, noise, log_ratios, settings, rng)
    trusted = found.checks.k_hat <= settings.k_hat
    if not moves or (trusted and found.checks.within(settings.max_error)):
        return found
    found = correct_by_moves(target, settings, rng, base, log_ratios)
    return replace(found, checks=replace(found.checks, k_hat=pareto_smooth(log_ratios).k_hat))
