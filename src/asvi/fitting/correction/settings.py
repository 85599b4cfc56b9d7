"""Takes nothing; gives how draws are corrected, in numbers with their reasons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asvi.fitting.particles.target import Target

__all__ = ["CorrectionSettings"]

STEPS = 8  # of a move, as a rule


@dataclass(frozen=True)
class CorrectionSettings:
    """How draws are corrected."""

    max_error: float = 0.05
    """Two standard errors of every mean, in sds, and of every sd, relative, are to be below it."""
    particles: int = 512
    least_particles: int = 64
    work: float = 1e7  # numbers that an evaluation of all particles makes: dear models have fewer
    room: float = 4e7  # numbers that an evaluation of the fewest particles may make
    islands: int = 16
    first_moves: tuple[int, int] = (16, 32)  # before errors are asked for: cheap moves are more
    first_budget: float = 3e8  # numbers that the first moves may make
    most_moves: int = 192
    least_moves: int = 24  # that may be made however dear they are
    budget: float = 1e10  # numbers that all moves may make
    metric_moves: tuple[int, ...] = (4, 8, 16, 32)  # after which the metric is learnt again
    k_hat: float = 0.5  # of weights that may stand for the posterior
    pool: int = 4096  # draws that are taken by weights
    most_weighted: int = 8192  # draws that may be weighted for them

    def has_room_for(self, target: Target) -> bool:
        """Whether an evaluation of the fewest particles is not too large."""
        return self.least_particles * target.work <= self.room

    def particles_for(self, target: Target) -> int:
        """The fewer, the dearer an evaluation is, in whole pairs of an island."""
        unit = 2 * self.islands
        count = int(min(self.particles, self.work / target.work)) // unit * unit
        return max(self.least_particles, count)

    def first_moves_for(self, target: Target) -> int:
        """How many there are before errors are asked for."""
        return int(np.clip(self.first_budget / self._each(target), *self.first_moves))

    def _each(self, target: Target) -> float:
        """Numbers that a move makes."""
        return self.particles_for(target) * target.work * STEPS

    def moves_for(self, target: Target) -> int:
        """How many there may be at the most: as many more as the error that is wanted is less."""
        most = int(np.clip(self.budget / self._each(target), self.least_moves, self.most_moves))
        return max(most, int(most * (CorrectionSettings.max_error / self.max_error) ** 2))
