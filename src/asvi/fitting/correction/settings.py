"""Takes nothing; gives how draws are corrected, in numbers with their reasons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asvi.fitting.particles.settings import MoveSettings, TemperingSettings
from asvi.fitting.particles.target import Target

__all__ = ["CorrectionSettings", "SmoothingSettings"]


@dataclass(frozen=True)
class SmoothingSettings:
    """How the tail of importance weights is smoothed."""

    min_tail_draws: int = 5
    """Draws of a tail that a shape is fitted to."""
    min_tied_share: float = 0.1
    """Share of the draws that must count, for a tail of equal weights to be no warning."""
    max_equal_sd: float = 0.02
    """Sd of log ratios that differ by rounding alone: of the exact posterior, whose weights have
    no tail."""


@dataclass(frozen=True)
class CorrectionSettings:
    """How draws are corrected. *Work* is numbers that evaluations of the density make."""

    max_error: float = 0.05
    """Two standard errors of every mean, in sds, and of every sd, relative, are to be below it."""

    # -------------------------------------------------------------------------------- weights
    guide_draws: int = 1024
    """Of a trained guide, that are weighted first."""
    max_k_hat: float = 0.5
    """Of weights that may stand for the posterior: above it their variance is infinite."""
    wide_k_hat: float = 0.0
    """Above it weights have a tail, and draws of a wider t are added; below, they have a bound."""
    wanted_errors: float = 3.0
    """Standard errors that are brought below ``max_error``: draws cost next to nothing."""
    draws_per_call: int = 512
    """Draws whose weights are had in one call."""
    max_weighted_draws: int = 8192
    pool: int = 4096
    """Draws that are taken by weights."""
    further_draws: int = 4096
    """Further draws that are made in one go, when a user asks for more."""
    smoothing: SmoothingSettings = SmoothingSettings()

    # ------------------------------------------------------------------------------- particles
    particles: int = 512
    min_particles: int = 64
    particle_work: float = 1e7
    """Work of one evaluation of all particles: dear models have fewer."""
    max_particle_work: float = 4e7
    """Work of one evaluation of the fewest particles: of dearer models none are moved."""
    islands: int = 16
    tempering: TemperingSettings = TemperingSettings()

    # ----------------------------------------------------------------------------------- moves
    moves: MoveSettings = MoveSettings()
    steps_per_move: int = 8
    """As a rule, where the work of moves is foretold."""
    first_moves: tuple[int, int] = (16, 32)
    """Least and most moves before errors are asked for: cheap moves are more."""
    first_work: float = 3e8
    """Of the first moves."""
    max_moves: int = 192
    affordable_moves: int = 24
    """Moves that may be made however dear they are."""
    max_work: float = 1e10
    """Of all moves: some ten seconds of NumPy's."""
    min_moves: int = 4
    """Moves that draws can be had from, when a user breaks off."""
    metric_moves: tuple[int, ...] = (4, 8, 16, 32)
    """After so many moves the metric is learnt again."""
    max_drift: float = 4.0
    """Standard errors of a drift that may be chance: all numbers have one, the worst counts."""
    hopeless_moves: int = 32
    """Moves after which what needs more than ``max_moves`` is given up."""
    spare_factor: float = 1.5
    """Moves are more than are thought to do, by this factor: an error is a guess itself."""
    min_growth: float = 1.5
    """Of the number of moves, each time that errors are asked for."""
    leading_directions: int = 5
    """Directions in which particles are spread most, whose tails acceptance is measured in."""
    max_watched_numbers: int = 2_000
    """Numbers whose moments are watched: of more, as many are taken."""

    def has_room_for(self, target: Target) -> bool:
        """Whether an evaluation of the fewest particles is not too large."""
        return self.min_particles * target.work <= self.max_particle_work

    def particles_for(self, target: Target) -> int:
        """The fewer, the dearer an evaluation is, in whole pairs of an island."""
        unit = 2 * self.islands
        count = int(min(self.particles, self.particle_work / target.work)) // unit * unit
        return max(self.min_particles, count)

    def first_moves_for(self, target: Target) -> int:
        """How many there are before errors are asked for."""
        return int(np.clip(self.first_work / self._work_of_move(target), *self.first_moves))

    def _work_of_move(self, target: Target) -> float:
        return self.particles_for(target) * target.work * self.steps_per_move

    def moves_for(self, target: Target) -> int:
        """How many there may be at the most: as many more as the error that is wanted is less."""
        affordable = self.max_work / self._work_of_move(target)
        most = int(np.clip(affordable, self.affordable_moves, self.max_moves))
        return max(most, int(most * (CorrectionSettings.max_error / self.max_error) ** 2))
