"""Takes errors of numbers by name; gives the worst of them: how far draws can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Checks", "NumberErrors", "worst"]


@dataclass(frozen=True)
class NumberErrors:
    """How far moments of each number are known; (numbers,) each."""

    names: list[str]
    mean_error: np.ndarray
    """Standard error of the mean, in posterior sds."""
    sd_error: np.ndarray
    """Relative standard error of the sd."""
    r_hat: np.ndarray | None = None
    """Nested R-hat, where draws were moved."""


@dataclass(frozen=True)
class Checks:
    """How far moments of the draws can be trusted; ``of`` is the number where it is worst."""

    mean_error: float  # standard error of a mean, in posterior sds
    mean_error_of: str
    sd_error: float  # relative standard error of an sd
    sd_error_of: str
    effective_draws: float
    effective_draws_of: str
    k_hat: float = float("nan")
    r_hat: float | None = None
    r_hat_of: str = ""
    rank_error: float = 0.0  # of mean or sd, of ranks made normal
    rank_error_of: str = ""
    drift: float = 0.0  # of early to late moves, in standard errors
    drift_of: str = ""
    walls: float = 0.0  # share of moves that met a wall
    tail_acceptance: float = 1.0  # of the outermost twentieth along the leading directions
    moves: int = 0
    temperatures: int = 0
    particles: int = 0

    def within(self, max_error: float) -> bool:
        """Whether two standard errors of every mean and sd are below it."""
        return bool(2 * max(self.mean_error, self.sd_error) <= max_error)


def worst(names: list[str], values: np.ndarray) -> tuple[float, str]:
    """The largest, and whose it is; none where all numbers are constants."""
    if not names:
        return 0.0, ""
    k = int(np.argmax(values))
    return float(values[k]), names[k]
