"""Takes nothing; gives the record of what a rung of the ladder found, or why it did not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from asvi.density.refusal import Refusal
from asvi.fitting.correction.result import Correction
from asvi.fitting.details import Details
from asvi.fitting.problem import Problem

__all__ = ["Outcome", "Refusal"]


@dataclass
class Outcome:
    """What was found: plain numbers, arrays, and the problem that they are of."""

    elbo: float
    elbo_se: float
    losses: np.ndarray
    params: dict[str, jax.Array]
    converged: bool
    message: str
    num_steps: int
    """Gradient steps, or natural ones."""
    seconds: float
    run: Details
    """What the search or the training tells of itself."""
    problem: Problem = field(repr=False)
    family_reason: str = ""
    """Which family it is of, and why, in words."""
    correction: Correction | None = field(default=None, repr=False)
    """Draws of the posterior, where the guide's were corrected."""
    start: Any = field(default=None, repr=False)
    """Mean and precision of the Gaussian over the program's noise that a next rung begins at."""

    @property
    def was_stopped(self) -> bool:
        """Whether the user broke it off."""
        return "interrupted" in self.message
