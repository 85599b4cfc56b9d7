"""Takes a problem; gives the restart that goes on alone: starts, their race, and the choice."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from asvi.fitting.problem import Problem
from asvi.fitting.training.chunk_program import (
    chunk_program,
    has_one_program,
    next_chunk_program,
)
from asvi.fitting.training.descent import begin_descent, finite_center
from asvi.fitting.training.far_starts import far_starts, kinds_of_far_starts
from asvi.fitting.training.gaussian_start import gaussian_start, mean_elbos
from asvi.fitting.training.parallel_optimizer import advance_soon, draw_elbos, new_state
from asvi.fitting.training.settings import TrainingSettings
from asvi.fitting.training.state import GradientKind, Phase, Start, TrainingState
from asvi.fitting.training.step_sizes import step_sizes, upper_limits

__all__ = ["begin", "choose", "decide_race", "measure", "pair_off", "pooled_variances"]


def begin(problem: Problem, key: jax.Array, plan: TrainingSettings) -> TrainingState:
    """Restarts at their starts."""
    count = plan.restarts
    kinds = kinds_of_far_starts(count)
    # Small programs first: they would wait for a large one that is being compiled.
    make = problem.bound.jit(("initial", count), lambda: partial(far_starts, problem, kinds))
    free = np.array(make(key))
    unit = np.array(np.broadcast_to(np.asarray(step_sizes(problem)), free.shape))
    furthest = upper_limits(problem)
    more = plan.later_draw_factor if has_one_program(problem, plan) else 1
    # Near its optimum a guide has path gradients of little variance; far from it they do not help.
    if problem.noise_space is not None:
        advance_soon(problem, 1, **chunk_program(problem, plan, 1, more, 0.0))
    else:
        advance_soon(problem, count, **chunk_program(problem, plan, count, 1, 1.0))
    starts = list(kinds)
    rates = [plan.rates[i // 2 % len(plan.rates)] for i in range(count)]
    found = gaussian_start(problem, jnp.asarray(free[0]), key, plan)
    if found is not None:
        taken = count if found.is_near else max(1, int(plan.gaussian_share * count))
        for k in range(taken):
            i, rate = count - 1 - k, plan.gaussian_rates[k % len(plan.gaussian_rates)]
            free[i], unit[i] = found.vector, found.unit
            starts[i], rates[i] = Start.GAUSSIAN, rate
    limit = np.maximum(furthest, free)  # a start further out is left there
    parallel = new_state(jnp.asarray(free), jnp.asarray(unit), plan.optimizer, jnp.asarray(limit))
    shares = [0.0 if start is Start.GAUSSIAN else 1.0 for start in starts]
    state = TrainingState(
        parallel,
        rates=rates,
        starts=starts,
        pools=list(range(count)),
        score_shares=shares,
        first_cycle=plan.first_cycle,
        coupling_gain=None if found is None else found.coupling_gain,
    )
    if found is not None and found.is_near:
        state.more_draws = more
        if problem.noise_space is not None and problem.noise_space.structure.groups:
            # Steps are dear there, and two cycles are run in any case.
            state.first_cycle = max(1, plan.first_cycle // 2)
        begin_descent(plan, state, 0, max(plan.gaussian_rates))
    else:
        advance_soon(problem, count, **next_chunk_program(problem, plan, state))
        advance_soon(problem, 1, **chunk_program(problem, plan, 1, 1, 0.0))
    return state


def decide_race(
    problem: Problem,
    key: jax.Array,
    plan: TrainingSettings,
    state: TrainingState,
    spreads: np.ndarray,
) -> None:
    """After a chunk of the race: the duel, or the choice, where it is time for them.

    ``spreads`` (steps, restarts) are the gradients' variances over the restarts of a pool.
    """
    if state.phase is Phase.EXPLORE and state.chunks >= plan.explore_chunks:
        pair_off(problem, jax.random.fold_in(key, 10**6), plan, state)
    elif state.chunks >= plan.explore_chunks + plan.duel_chunks:
        variances = pooled_variances(plan, spreads)
        choose(problem, jax.random.fold_in(key, 10**6 + 1), plan, state, variances)


def pair_off(
    problem: Problem, key: jax.Array, plan: TrainingSettings, state: TrainingState
) -> None:
    """Copy the best restarts of the two best starts over a half each, which pool gradients."""
    elbos = measure(problem, key, plan, state)
    if plan.restarts < 4:
        choose(problem, key, plan, state)
        return
    best = []
    for start in Start:
        mine = [i for i in range(plan.restarts) if state.starts[i] is start]
        if mine:
            best.append(max(mine, key=lambda i: elbos[i]))
    first, second = sorted(best, key=lambda i: -elbos[i])[:2]
    half = plan.restarts // 2
    state.select([first] * half + [second] * (plan.restarts - half))
    state.pools = [0] * half + [1] * (plan.restarts - half)
    state.phase = Phase.DUEL


def choose(
    problem: Problem,
    key: jax.Array,
    plan: TrainingSettings,
    state: TrainingState,
    variances: np.ndarray | None = None,
) -> None:
    """The restart of the best ELBO goes on alone."""
    best = int(np.argmax(measure(problem, key, plan, state)))
    is_plain = problem.has_path and state.score_shares[best] == 1
    if is_plain and variances is not None:
        state.variances[GradientKind.PLAIN] = float(variances[best])
    rate = min(max(plan.rates), plan.pooled_rate_factor * state.rates[best])
    begin_descent(plan, state, best, rate)
    if GradientKind.PLAIN in state.variances:
        state.phase = Phase.TRY_GRADIENTS


def measure(
    problem: Problem, key: jax.Array, plan: TrainingSettings, state: TrainingState
) -> np.ndarray:
    """ELBO of every restart, all on the same draws; -inf where it is not finite."""
    same = [0] * plan.restarts
    free = state.parallel.free
    return mean_elbos(draw_elbos(problem, free, key, draws=plan.evaluation_draws, streams=same))


def pooled_variances(plan: TrainingSettings, spreads: np.ndarray) -> np.ndarray:
    """Variance of one restart's gradient in the duel, by restart: as of all draws together."""
    half = plan.restarts // 2
    later = spreads[len(spreads) // 2 :]
    middle = np.array([finite_center(later[:, i], np.median) for i in range(plan.restarts)])
    return middle * half / max(1, half - 1) / plan.restarts
