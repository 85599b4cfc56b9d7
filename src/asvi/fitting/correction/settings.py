"""Takes nothing; gives how draws are corrected, in numbers with their reasons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asvi.fitting.correction.target import Target

__all__ = ["Settings"]

STEPS = 8  # of a move, as a rule


@dataclass(frozen=True)
class Settings:
    """How draws are corrected."""

    max_error: float = 0.05
    """Two standard errors of every mean, in sds, and of every sd, relative, are to be below it."""
    particles: int = 512
    least_particles: int = 64
    room: float = 4e7  # numbers that an evaluation of all particles may make
    islands: int = 16
    first_moves: int = 16
    most_moves: int = 192
    least_moves: int = 24  # that may be made however dear they are
    budget: float = 1e10  # numbers that all moves may make
    metric_moves: tuple[int, ...] = (4, 8, 16, 32)  # after which the metric is learnt again
    k_hat: float = 0.5  # of weights that may stand for the posterior
    pool: int = 4096  # draws that are taken by weights
    most_weighted: int = 8192  # draws that may be weighted for them

    def particles_for(self, target: Target) -> int:
        """As many as an evaluation has room for, in whole pairs of an island."""
        unit = 2 * self.islands
        room = int(min(self.particles, self.room / target.work)) // unit * unit
        return max(self.least_particles, room)

    def moves_for(self, target: Target) -> int:
        """How many there may be at the most: as many more as the error that is wanted is less."""
        each = self.particles_for(target) * target.work * STEPS
        most = int(np.clip(self.budget / each, self.least_moves, self.most_moves))
        return max(most, int(most * (Settings.max_error / self.max_error) ** 2))
