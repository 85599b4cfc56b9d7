"""Takes a run's state; gives which compiled program the next chunk of steps is, and its inputs."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from asvi.fitting.problem import Problem
from asvi.fitting.training.parallel_optimizer import ChunkInputs
from asvi.fitting.training.settings import TrainingSettings
from asvi.fitting.training.state import Start, TrainingState

__all__ = [
    "chunk_inputs",
    "chunk_program",
    "has_cheap_draws",
    "has_one_program",
    "next_chunk_program",
]


def chunk_program(
    problem: Problem, plan: TrainingSettings, restarts: int, more: int, share: float | None
) -> dict[str, Any]:
    """What a compiled chunk of steps is made for, with ``more`` times the plan's draws."""
    return {
        "steps": plan.chunk,
        "draws": more * plan.draws_of(restarts),
        "optimizer": plan.optimizer,
        "clipping": plan.clipping,
        "score_share": share if problem.has_path else 1.0,
    }


def next_chunk_program(
    problem: Problem, plan: TrainingSettings, state: TrainingState
) -> dict[str, Any]:
    """That of the next chunk; where all restarts have one kind of gradient, with no other."""
    shares = set(state.score_shares)
    share = shares.pop() if len(shares) == 1 else None
    return chunk_program(problem, plan, len(state.starts), state.more_draws, share)


def chunk_inputs(problem: Problem, plan: TrainingSettings, state: TrainingState) -> ChunkInputs:
    """Learning rates, pools and temperatures of the next chunk."""
    dtype = problem.dtype
    pools = np.array(state.pools)
    together = (pools[:, None] == pools).astype(float)
    fade = max(1, plan.explore_chunks // 2)
    now = [state.chunks, state.chunks + 1]
    ramp = np.interp(now, [0, fade], [plan.first_temperature, 1.0])
    # The Gaussian was found with the data in: nothing is to be faded in.
    temperatures = [[1.0, 1.0] if start is Start.GAUSSIAN else ramp for start in state.starts]
    return ChunkInputs(
        jnp.asarray(state.rates, dtype),
        jnp.asarray(together / together.sum(1, keepdims=True), dtype),
        jnp.asarray(np.array(temperatures), dtype),
        jnp.asarray(state.score_shares, dtype),
    )


def has_one_program(problem: Problem, plan: TrainingSettings) -> bool:
    """Whether a run from the Gaussian has all draws of its last cycles from the first step on.

    A second program, for more draws, is dear where there are many parameters.
    """
    return (
        problem.size > plan.min_params_one_program and problem.has_path and has_cheap_draws(problem)
    )


def has_cheap_draws(problem: Problem) -> bool:
    """Whether a run from the Gaussian may have more draws in place of as many steps.

    Not in models of many groups: there each draw is dear.
    """
    space = problem.noise_space
    return space is not None and not problem.may_have_scores and not space.structure.groups
