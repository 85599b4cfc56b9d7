"""Takes nothing; gives where a run stands: arrays of all restarts, the rest plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.fitting.training.parallel_optimizer import ParallelState
from asvi.fitting.training.settings import TrainingSettings

__all__ = ["GradientKind", "Phase", "Start", "TrainingState"]

_ARRAYS = ("parallel", "best")


class Phase(StrEnum):
    """What the next chunk of steps is for."""

    EXPLORE = "explore"
    """Every restart goes its own way."""
    DUEL = "duel"
    """Two halves, each of one start."""
    TRY_GRADIENTS = "try gradients"
    """The first chunk after a race with plain gradients: path gradients are compared with them."""
    DESCEND = "descend"
    """In cycles."""
    DONE = "done"

    @property
    def is_race(self) -> bool:
        """Whether several starts are compared."""
        return self in (Phase.EXPLORE, Phase.DUEL)


class Start(StrEnum):
    """Where a restart began."""

    PRIOR = "prior"
    HALF_WAY = "half-way"
    """With the prior weights of hierarchies at 1/2."""
    GAUSSIAN = "gaussian"


class GradientKind(StrEnum):
    """How the ELBO is differentiated."""

    PLAIN = "plain"
    PATH = "path"


@dataclass
class TrainingState:
    """Where a run stands. Lists have one entry a restart."""

    parallel: ParallelState
    best: Any = None
    """Parameters at the best end of a cycle, after the race."""
    phase: Phase = Phase.EXPLORE
    chunks: int = 0
    rates: list[float] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    pools: list[int] = field(default_factory=list)
    """Restarts with the same number share their gradients."""
    first_rate: float = 0.0
    score_shares: list[float] = field(default_factory=list)
    """0 for path gradients, 1 for plain ones."""
    variances: dict[GradientKind, float] = field(default_factory=dict)
    """Of both kinds of gradients, where they were compared."""
    first_cycle: int = TrainingSettings.first_cycle
    """Chunks of the first cycle."""
    cycle: int = 0
    cycle_begin: int = 0
    losses: list[float] = field(default_factory=list)
    noise: float = float("nan")
    """Variance of a gradient over the square of its mean."""
    gains: list[float] = field(default_factory=list)
    """Nats, by cycle."""
    coupling_gain: float | None = None
    more_draws: int = 1
    """Times the plan's, in later cycles."""
    work: int = 0
    """Chunks, those of more draws counted twice."""

    def numbers(self) -> dict[str, Any]:
        """All but the arrays, for a checkpoint."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _ARRAYS}

    @classmethod
    def from_numbers(
        cls, numbers: Mapping[str, Any], parallel: ParallelState, best: Any
    ) -> TrainingState:
        """The state that a checkpoint holds."""
        given = dict(numbers)
        given["phase"] = Phase(given["phase"])
        given["starts"] = [Start(x) for x in given["starts"]]
        given["variances"] = {GradientKind(k): x for k, x in given["variances"].items()}
        return cls(parallel=parallel, best=best, **given)

    def copy(self) -> TrainingState:
        """The same, with lists of its own."""
        return TrainingState(self.parallel, self.best, **deepcopy(self.numbers()))

    def select(self, sources: list[int]) -> None:
        """Restart i becomes a copy of restart ``sources[i]``."""
        self.parallel = _rows(self.parallel, np.array(sources))
        self.rates = [self.rates[i] for i in sources]
        self.starts = [self.starts[i] for i in sources]
        self.score_shares = [self.score_shares[i] for i in sources]
        self.restart_average()

    def restart_average(self) -> None:
        """Begin the mean of the iterates anew."""
        now = self.parallel
        self.parallel = now._replace(average=now.free, averaged=jnp.zeros_like(now.averaged))


@jax.jit
def _rows(parallel: ParallelState, sources: jax.Array) -> ParallelState:
    return jax.tree.map(lambda x: x[sources], parallel)
