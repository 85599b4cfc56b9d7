"""Takes nothing; gives what a run is asked to do, and the state that it is in, as plain numbers."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, fields
from typing import Any

import optax

from asvi.fitting.training.parallel_optimizer import ADAM, ParallelState

__all__ = ["TrainingSettings", "TrainingState"]

_ARRAYS = ("lanes", "best")
RATES = (0.05, 0.02, 0.01, 0.005)
GAUSSIAN_RATES = (0.01, 0.03)  # that start is near its end


@dataclass(frozen=True)
class TrainingSettings:
    """What a run is allowed and asked to do."""

    lanes: int = 8
    draws: int = 2
    chunk: int = 250
    explore_chunks: int = 4
    duel_chunks: int = 4
    first_cycle: int = 6
    max_steps: int = 24_000
    tolerance: float = 0.01
    rates: tuple[float, ...] = RATES
    gaussian_rates: tuple[float, ...] = GAUSSIAN_RATES
    evaluation_draws: int = 128
    optimizer: optax.GradientTransformation = ADAM

    @property
    def has_own_optimizer(self) -> bool:
        """Whether it is a user's."""
        return self.optimizer is not ADAM

    def draws_of(self, lanes: int) -> int:
        """Draws per lane and step where there are this many lanes: of all together as many."""
        return max(1, self.lanes * self.draws // lanes)

    def numbers(self) -> dict[str, Any]:
        """All but the optimiser, which is functions."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "optimizer"}


@dataclass
class TrainingState:
    """Where a run stands: arrays in ``lanes``, the rest plain numbers."""

    lanes: ParallelState
    best: Any = None  # parameters at the best end of a cycle, after the race
    phase: str = "explore"
    chunks: int = 0
    rates: list[float] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    pools: list[int] = field(default_factory=list)
    first_rate: float = 0.0
    score_shares: list[float] = field(default_factory=list)
    trial: dict[str, float] = field(default_factory=dict)
    first_cycle: int = TrainingSettings.first_cycle  # chunks
    cycle: int = 0
    cycle_begin: int = 0
    losses: list[float] = field(default_factory=list)
    noise: float = float("nan")
    gains: list[float] = field(default_factory=list)
    coupling_gain: float | None = None
    more_draws: int = 1  # times the plan's, in later cycles
    work: int = 0  # chunks, those of more draws counted twice

    def numbers(self) -> dict[str, Any]:
        """All but the arrays, for a checkpoint."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _ARRAYS}

    def copy(self) -> TrainingState:
        """The same, with lists of its own."""
        return TrainingState(self.lanes, self.best, **deepcopy(self.numbers()))
