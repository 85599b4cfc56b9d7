"""Takes a problem; gives optimised parameters: explore, duel, descend in cycles, stop.

The whole plan is a small state machine on the host, by
:class:`~asvi.fitting.training.state.Phase`. Its state is plain numbers, so that a checkpoint can
hold it and go on to the same result.

1. *Explore* (:mod:`~asvi.fitting.training.race`). Every restart goes its own way, at its own
   learning rate. A quarter of them start at the Gaussian over the noise nearest to the posterior,
   where one is found. Half of the others start at the family's own start, which for the convex
   update is the prior; half with the prior weights of hierarchies (not of chains) at 1/2, half-way
   to mean field: their posteriors have optima near either. For these the data are faded in
   (temperature 0.1 to 1) over the first chunks, so that chains find their basin. Where importance
   weights say that the Gaussian is within a few nats of the posterior, all start there, and 1 and 2
   are left out.
2. *Duel.* The best restarts of the two best kinds of start, measured on the same draws, are copied
   over a half each, which now pool their gradients. The winner is copied into all.
3. *Descend*, in cycles (:mod:`~asvi.fitting.training.descent`). The winner goes on alone, with all
   draws: a step has ``restarts x draws``. Its gradients are path gradients; where the race was run
   with plain ones and these turn out to have the smaller variance, they are taken again. In a cycle
   the learning rate falls to nothing along a cosine; each cycle is twice as long as the one before
   and begins at a lower rate.
   From the third one on, where gradients are nothing but noise and the run began at the Gaussian, a
   step of a small model has four times the draws instead, which cost less than as many steps, and
   cycles grow no longer. Where there are many parameters steps have them from the first on, so
   that no second program is compiled.
4. *Stop*, when a cycle gained less than the tolerance, or than twice its Monte Carlo error, over
   the best before, measured on the same draws; or little more, and the next one would, if gains go
   on falling as they did. The best end of a cycle is kept.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from asvi.fitting.problem import Problem
from asvi.fitting.training.chunk_program import chunk_inputs, next_chunk_program
from asvi.fitting.training.descent import decide_descent, finite_center
from asvi.fitting.training.parallel_optimizer import advance
from asvi.fitting.training.race import choose, decide_race
from asvi.fitting.training.settings import TrainingSettings
from asvi.fitting.training.state import Phase, TrainingState

__all__ = ["candidates", "finished", "step_chunk"]


def finished(state: TrainingState, plan: TrainingSettings) -> bool:
    """Whether there is nothing more to do, or nothing more allowed."""
    return state.phase is Phase.DONE or state.work * plan.chunk >= plan.max_steps


def step_chunk(
    problem: Problem, key: jax.Array, plan: TrainingSettings, state: TrainingState
) -> TrainingState:
    """One compiled chunk of steps and the decision after it; ``key`` is that of the whole run."""
    before, is_race = state.parallel, state.phase.is_race
    inputs = chunk_inputs(problem, plan, state)
    program = next_chunk_program(problem, plan, state)
    chunk_key = jax.random.fold_in(key, state.chunks)
    state.parallel, seen = advance(problem, before, chunk_key, inputs, **program)
    losses = np.asarray(seen["loss"], float)
    lost = float(jnp.mean(state.parallel.skipped - before.skipped)) / plan.chunk
    state.chunks += 1
    state.work += 1 if state.more_draws == 1 else 2
    if is_race:
        means = losses[-plan.recent_steps :].mean(0)
        state.losses.append(float(min(means[np.isfinite(means)], default=np.nan)))
        decide_race(problem, key, plan, state, np.asarray(seen["spread"], float))
    else:
        state.losses.append(finite_center(losses))
        squares = np.asarray(seen["square"], float)
        decide_descent(problem, key, plan, state, squares, lost)
    return state


def candidates(
    problem: Problem, key: jax.Array, plan: TrainingSettings, state: TrainingState
) -> dict[str, jax.Array]:
    """Vectors that may be the result: the mean of the last iterates, the last iterate."""
    if state.phase.is_race:  # interrupted before the restarts were compared
        choose(problem, key, plan, state)
    return {
        "averaged": state.parallel.average[0],
        "last": state.parallel.free[0],
        "best": state.best,
    }
