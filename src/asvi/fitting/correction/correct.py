"""Takes a Gaussian near the posterior; gives draws of the posterior, by weights or by moves.

1. *Weights.* Where the Gaussian is near, importance weights of its draws are all that it takes.
2. *Moves.* Else particles are led from the Gaussian to the posterior, and moved there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from asvi.fitting.correction.by_moves import by_moves
from asvi.fitting.correction.by_weights import by_weights
from asvi.fitting.correction.result import Correction
from asvi.fitting.correction.settings import Settings
from asvi.fitting.correction.target import Target
from asvi.psis import smooth

__all__ = ["correct"]


def correct(
    target: Target,
    noise: np.ndarray,
    log_ratios: np.ndarray,
    settings: Settings,
    rng: np.random.Generator,
    moves: bool = True,
) -> Correction:
    """Draws of the target, as good as ``settings`` ask for, by as little as it takes.

    ``log_ratios`` (draws,) are those of the target to the unit normal at ``noise`` (draws,
    numbers). Without ``moves``, weights have to do.
    """
    k_hat = smooth(log_ratios).k_hat
    if k_hat <= settings.k_hat or not moves:
        found = by_weights(target, noise, log_ratios, settings, rng)
        k_hat = found.checks.k_hat  # of more draws
        if not moves or (k_hat <= settings.k_hat and found.checks.within(settings.max_error)):
            return found
    found = by_moves(target, settings, rng)
    return replace(found, checks=replace(found.checks, k_hat=k_hat))
