"""Takes the Gaussian that was found; gives draws of the posterior, as good as was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from asvi.fitting.correction.correct import correct
from asvi.fitting.correction.pool import Pool
from asvi.fitting.correction.result import Correction
from asvi.fitting.correction.settings import Settings
from asvi.fitting.correction.target import GaussianTarget
from asvi.fitting.curvature import precision
from asvi.fitting.structured import Found

__all__ = ["EFFORTS", "correct_gaussian", "seed_of"]

EFFORTS = ("quick", "auto", "thorough")


def seed_of(key: jax.Array | None) -> np.ndarray:
    """Numbers for NumPy's generator: nothing is compiled for them."""
    return np.zeros(2, np.uint32) if key is None else np.asarray(jax.random.key_data(key)).ravel()


def correct_gaussian(
    found: Found, key: jax.Array | None, max_error: float, effort: str
) -> Correction:
    """By weights, and, unless the effort is to be ``"quick"``, by moves where weights do not do."""
    rng = np.random.default_rng([*seed_of(key), 1])
    target = GaussianTarget(found.look, found.mean, found.spread)
    settings, double = Settings(max_error=max_error), found.is_double
    with precision(double):
        made = correct(target, found.noise, found.log_ratios, settings, rng, effort != "quick")
    if made.source is not None:
        made.source = _Precisely(made.source.further, double)
    return made


@dataclass
class _Precisely:
    """Further draws, in the precision of the first."""

    make: Callable[[int], Pool]
    double: bool

    def further(self, count: int) -> Any:
        with precision(self.double):
            return self.make(count)
