"""Takes a problem; gives optimised parameters: explore, duel, descend in cycles, stop.

The whole plan is a small state machine on the host. Its state is plain numbers, so that a
checkpoint can hold it and go on to the same result.

1. *Explore.* Every lane goes its own way, at its own learning rate. A quarter of the lanes start
   at the Gaussian over the noise nearest to the posterior, where one is found. Half of the others
   start at the family's own start, which for the convex update is the prior; half with the prior
   weights of hierarchies (not of chains) at 1/2, half-way to mean field: their posteriors have
   optima near either. For these the data are faded in (temperature 0.1 to 1) over the first
   chunks, so that chains find their basin. Where importance weights say that the Gaussian is
   within a few nats of the posterior, all lanes start there, and 1 and 2 are left out.
2. *Duel.* The best lanes of the two best kinds of start, measured on the same draws, are copied
   over a half each, whose lanes now pool their gradients. The winner is copied into all.
3. *Descend*, in cycles. The winner goes on alone, with all draws: a step has ``lanes x draws``. Its
   gradients are path gradients; where the race was run with plain ones and these turn out to have
   the smaller variance, they are taken again. In a cycle the learning rate falls to
   nothing along a cosine; each cycle is twice as long as the one before and begins at a lower rate.
   From the third one on, where gradients are nothing but noise and the run began at the Gaussian, a
   step of a small model has four times the draws instead, which cost less than as many steps, and
   cycles grow no longer. Where there are many parameters steps have them from the first on, so
   that no second program is compiled.
4. *Stop*, when a cycle gained less than the tolerance, or than twice its Monte Carlo error, over
   the best before, measured on the same draws; or little more, and the next one would, if gains go
   on falling as they did. The best end of a cycle is kept.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asvi.fitting.problem import Problem
from asvi.fitting.training.gaussian_start import gaussian_start, mean_elbos
from asvi.fitting.training.parallel_optimizer import (
    ChunkInputs,
    ParallelState,
    advance,
    advance_soon,
    draw_elbos,
    new_state,
)
from asvi.fitting.training.settings import TrainingSettings, TrainingState
from asvi.fitting.training.step_sizes import step_sizes, upper_limits
from asvi.fitting.training.stopping import NEARLY, gain_over, is_enough

__all__ = ["begin", "candidates", "finished", "step_chunk"]

POOLED_GAIN = 3.0
MORE_DRAWS = 4  # times the plan's
NOISY = 1.0  # variance of one lane's gradient over the square of the pooled one
SMALL, LARGE = 50_000, 20_000  # parameters
FAR = 0.5  # nats
LOST = 0.1  # of a chunk's steps
WORSE, SLOWER = 0.1, 0.2  # nats that a cycle lost: the next one, from the best, is as much slower
KINDS = ("prior", "half-way", "gaussian")


def begin(problem: Problem, key: jax.Array, plan: TrainingSettings) -> TrainingState:
    """Lanes at their starts."""
    # Small programs first: they would wait for a large one that is being compiled.
    make = problem.bound.jit(("initial", plan.lanes), lambda: partial(_starts, problem, plan.lanes))
    free = np.array(make(key))
    unit = np.array(np.broadcast_to(np.asarray(step_sizes(problem)), free.shape))
    furthest = upper_limits(problem)
    more = MORE_DRAWS if _has_one_program(problem) else 1
    # Near its optimum a guide has path gradients of little variance; far from it they do not help.
    if problem.noise_space is not None:
        advance_soon(problem, 1, **_program(problem, plan, 1, more, 0.0))
    else:
        advance_soon(problem, plan.lanes, **_program(problem, plan, plan.lanes, 1, 1.0))
    kinds = [KINDS[i % 2] for i in range(plan.lanes)]
    rates = [plan.rates[i // 2 % len(plan.rates)] for i in range(plan.lanes)]
    found = gaussian_start(problem, jnp.asarray(free[0]), key, plan.lanes, plan.evaluation_draws)
    if found is not None:
        taken = plan.lanes if found.is_near else max(1, plan.lanes // 4)
        for k in range(taken):
            lane, rate = plan.lanes - 1 - k, plan.gaussian_rates[k % len(plan.gaussian_rates)]
            free[lane], unit[lane] = found.vector, found.unit
            kinds[lane], rates[lane] = "gaussian", rate
    limit = np.maximum(furthest, free)  # a start further out is left there
    lanes = new_state(jnp.asarray(free), jnp.asarray(unit), plan.optimizer, jnp.asarray(limit))
    shares = [0.0 if kind == "gaussian" else 1.0 for kind in kinds]
    pools = list(range(plan.lanes))
    state = TrainingState(lanes, rates=rates, kinds=kinds, pools=pools, score_shares=shares)
    state.first_cycle = plan.first_cycle
    state.coupling_gain = None if found is None else found.coupling_gain
    if found is not None and found.is_near:
        state.more_draws = more
        if problem.noise_space is not None and problem.noise_space.structure.groups:
            # Steps are dear there, and two cycles are run in any case.
            state.first_cycle = max(1, plan.first_cycle // 2)
        _descend(plan, state, 0, max(plan.gaussian_rates))
    else:
        advance_soon(problem, plan.lanes, **_program_of(problem, plan, state))
        advance_soon(problem, 1, **_program(problem, plan, 1, 1, 0.0))
    return state


def _has_one_program(problem: Problem) -> bool:
    """Whether a run from the Gaussian has all draws of its last cycles from the first step on.

    A second program, for more draws, is dear where there are many parameters.
    """
    return problem.size > LARGE and problem.has_path and _has_cheap_draws(problem)


def _has_cheap_draws(problem: Problem) -> bool:
    """Whether a run from the Gaussian may have more draws in place of as many steps.

    Not in models of many cells: there each draw is dear.
    """
    space = problem.noise_space
    return space is not None and not problem.may_have_scores and not space.structure.groups


def _program(
    problem: Problem, plan: TrainingSettings, lanes: int, more: int, share: float | None
) -> dict[str, Any]:
    """What a compiled chunk of steps is made for."""
    return {
        "steps": plan.chunk,
        "draws": more * plan.draws_of(lanes),
        "optimizer": plan.optimizer,
        "score_share": share if problem.has_path else 1.0,
    }


def _program_of(problem: Problem, plan: TrainingSettings, state: TrainingState) -> dict[str, Any]:
    """That for the next chunk; where all lanes have the same kind of gradient, with no other."""
    shares = set(state.score_shares)
    share = shares.pop() if len(shares) == 1 else None
    return _program(problem, plan, len(state.kinds), state.more_draws, share)


def _starts(problem: Problem, count: int, key: jax.Array) -> jax.Array:
    """Lanes of the first two kinds, (lanes, parameters)."""
    rows = jax.vmap(problem.initial)(jax.random.split(key, count))
    half_way = jnp.asarray([KINDS[i % 2] == "half-way" for i in range(count)])
    return jnp.where(half_way[:, None], jax.vmap(problem.start_half_mean_field)(rows), rows)


def finished(state: TrainingState, plan: TrainingSettings) -> bool:
    return state.phase == "done" or state.work * plan.chunk >= plan.max_steps


def step_chunk(
    problem: Problem, key: jax.Array, plan: TrainingSettings, state: TrainingState
) -> TrainingState:
    """One compiled chunk of steps and the decision after it; ``key`` is that of the whole run."""
    chunk_key = jax.random.fold_in(key, state.chunks)
    racing = state.phase in ("explore", "duel")
    settings = _settings(problem, plan, state)
    program = _program_of(problem, plan, state)
    lanes, seen = advance(problem, state.lanes, chunk_key, settings, **program)
    losses = np.asarray(seen["loss"], float)
    lost = float(jnp.mean(lanes.skipped - state.lanes.skipped)) / plan.chunk
    state.lanes, state.chunks = lanes, state.chunks + 1
    state.work += 1 if state.more_draws == 1 else 2
    if racing:
        means = losses[-50:].mean(0)
        state.losses.append(float(min(means[np.isfinite(means)], default=np.nan)))
        if state.phase == "explore" and state.chunks >= plan.explore_chunks:
            _pair_off(problem, jax.random.fold_in(key, 10**6), plan, state)
        elif state.chunks >= plan.explore_chunks + plan.duel_chunks:
            variances = _variances(plan, np.asarray(seen["spread"], float))
            _choose(problem, jax.random.fold_in(key, 10**6 + 1), plan, state, variances)
        return state
    state.losses.append(_finite(losses))
    variance, square = _parts(lanes, np.asarray(seen["square"], float))
    state.noise = variance / square
    _spread_out(plan, state, lost)
    if state.phase == "try gradients":
        _choose_gradient(plan, state, variance)
    if state.chunks - state.cycle_begin >= _length(state):
        _end_cycle(problem, jax.random.fold_in(key, 2 * 10**6), plan, state)
    else:
        _set_rate(state)
    return state


def _finite(values: Any, middle: Any = np.mean) -> float:
    """The mean (or median) of what is finite; infinite where nothing is."""
    values = np.asarray(values, float)
    fine = values[np.isfinite(values)]
    return float(middle(fine)) if len(fine) else float("inf")


def _spread_out(plan: TrainingSettings, state: TrainingState, lost: float) -> None:
    """Where many steps are lost, share the draws among all lanes again.

    A draw that is not finite spoils the step of its lane, and only of its lane.
    """
    if len(state.kinds) == 1 < plan.lanes and lost > LOST:
        _copy(state, [0] * plan.lanes)
        state.pools, state.more_draws = [0] * plan.lanes, 1


def _parts(lanes: ParallelState, squares: np.ndarray) -> tuple[float, float]:
    """Variance of a gradient, and square of its mean, told from the last steps of a single lane.

    Adam's mean over some ten steps holds a 19th of a gradient's variance. A single draw far out
    would sway a mean of the squares: their median is taken.
    """
    mean = optax.tree_utils.tree_get(lanes.inner, "mu", None)
    if mean is None:  # another optimiser
        return float("nan"), float("nan")
    size, left = _finite(squares[-50:], np.median), float(jnp.sum(jnp.square(mean[0])))
    variance = max(0.0, size - left) * 19 / 18
    return variance, max(left - variance / 19, 1e-6 * size, 1e-30)


def _variances(plan: TrainingSettings, spreads: np.ndarray) -> np.ndarray:
    """Variance of one lane's gradient in the duel, by lane: as of all draws together."""
    half = plan.lanes // 2
    later = spreads[len(spreads) // 2 :]
    middle = np.array([_finite(later[:, i], np.median) for i in range(plan.lanes)])
    return middle * half / max(1, half - 1) / plan.lanes


def _settings(problem: Problem, plan: TrainingSettings, state: TrainingState) -> ChunkInputs:
    dtype = problem.dtype
    pools = np.array(state.pools)
    together = (pools[:, None] == pools).astype(float)
    fade = max(1, plan.explore_chunks // 2)
    ramp = np.interp([state.chunks, state.chunks + 1], [0, fade], [0.1, 1.0])
    # The Gaussian was found with the data in: nothing is to be faded in.
    temperatures = [[1.0, 1.0] if kind == "gaussian" else ramp for kind in state.kinds]
    return ChunkInputs(
        jnp.asarray(state.rates, dtype),
        jnp.asarray(together / together.sum(1, keepdims=True), dtype),
        jnp.asarray(np.array(temperatures), dtype),
        jnp.asarray(state.score_shares, dtype),
    )


def _measure(
    problem: Problem, key: jax.Array, plan: TrainingSettings, state: TrainingState
) -> np.ndarray:
    """ELBO of every lane, all on the same draws; -inf where it is not finite."""
    same = [0] * plan.lanes
    found = draw_elbos(problem, state.lanes.free, key, draws=plan.evaluation_draws, streams=same)
    return mean_elbos(found)


@jax.jit
def _rows(lanes: ParallelState, sources: jax.Array) -> ParallelState:
    return jax.tree.map(lambda x: x[sources], lanes)


def _copy(state: TrainingState, sources: list[int]) -> None:
    """Lane i becomes a copy of lane ``sources[i]``."""
    state.lanes = _rows(state.lanes, np.array(sources))
    state.rates = [state.rates[i] for i in sources]
    state.kinds = [state.kinds[i] for i in sources]
    state.score_shares = [state.score_shares[i] for i in sources]
    _restart_average(state)


def _pair_off(
    problem: Problem, key: jax.Array, plan: TrainingSettings, state: TrainingState
) -> None:
    """Copy the best lanes of the two best kinds of start over a half each, which pool gradients."""
    elbos = _measure(problem, key, plan, state)
    if plan.lanes < 4:
        _choose(problem, key, plan, state)
        return
    best = []
    for kind in KINDS:
        mine = [i for i in range(plan.lanes) if state.kinds[i] == kind]
        if mine:
            best.append(max(mine, key=lambda i: elbos[i]))
    first, second = sorted(best, key=lambda i: -elbos[i])[:2]
    half = plan.lanes // 2
    _copy(state, [first] * half + [second] * (plan.lanes - half))
    state.pools = [0] * half + [1] * (plan.lanes - half)
    state.phase = "duel"


def _choose(
    problem: Problem,
    key: jax.Array,
    plan: TrainingSettings,
    state: TrainingState,
    variances: np.ndarray | None = None,
) -> None:
    """The lane of the best ELBO goes on alone."""
    best = int(np.argmax(_measure(problem, key, plan, state)))
    plain = problem.has_path and state.score_shares[best] == 1
    if plain and variances is not None:
        state.trial["plain"] = float(variances[best])
    # All draws together have the noise of several lanes less than the one that won the race.
    _descend(plan, state, best, min(max(plan.rates), POOLED_GAIN * state.rates[best]))
    if "plain" in state.trial:
        state.phase = "try gradients"


def _descend(plan: TrainingSettings, state: TrainingState, lane: int, rate: float) -> None:
    """Begin the first cycle, at this lane."""
    _copy(state, [lane])
    state.first_rate = rate
    state.pools = [0]
    state.phase = "descend"
    state.score_shares = [0.0]
    state.cycle_begin = state.chunks
    state.best = state.lanes.free[0]
    _set_rate(state)


def _choose_gradient(plan: TrainingSettings, state: TrainingState, variance: float) -> None:
    """After a chunk of path gradients: go back to the race's plain ones if they varied less."""
    state.trial["path"] = variance
    if state.trial["plain"] < variance:
        state.score_shares = [1.0]
    state.phase = "descend"


def _length(state: TrainingState) -> int:
    """Chunks in this cycle."""
    if state.more_draws > 1:  # cost is in draws: these cycles grow no longer
        return state.first_cycle * 2 ** min(state.cycle, 1)
    return state.first_cycle * 2**state.cycle


def _set_rate(state: TrainingState) -> None:
    """The learning rate of the next chunk: a cosine from the cycle's first rate to 1% of it."""
    done = (state.chunks - state.cycle_begin) / _length(state)
    top = state.first_rate * 0.6**state.cycle
    rate = top * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * done)))
    state.rates = [float(rate)] * len(state.kinds)


def _end_cycle(
    problem: Problem, key: jax.Array, plan: TrainingSettings, state: TrainingState
) -> None:
    """Keep the better of this cycle's end and the best before; stop where little was gained."""
    new = state.lanes.free[0]
    gain, error = gain_over(state.best, new, problem, key, plan)
    state.gains.append(gain)
    # A start at the Gaussian is no plateau; from elsewhere two short cycles may both lie on one.
    cycles = 3
    if state.kinds[0] == "gaussian":
        cycles = 1 if abs(gain) + 2 * error < NEARLY * plan.tolerance else 2
    if gain > 0:
        state.best = new
    if gain < -WORSE:
        state.first_rate *= SLOWER
    if len(state.gains) >= cycles and is_enough(state.gains, plan.tolerance, error):
        state.phase = "done"
        return
    state.cycle += 1
    state.cycle_begin = state.chunks
    near = state.kinds[0] == "gaussian"  # from elsewhere steps are what a run needs most
    if near and _has_cheap_draws(problem) and state.noise > NOISY and len(state.kinds) == 1:
        # Gradients are all noise. In small models draws are cheaper than steps.
        if state.cycle >= 2:
            state.more_draws = MORE_DRAWS
        elif gain > FAR:  # seldom followed by one cycle only
            soon = _program(problem, plan, 1, MORE_DRAWS, state.score_shares[0])
            advance_soon(problem, 1, **soon)
    state.lanes = state.lanes._replace(free=jnp.broadcast_to(state.best, state.lanes.free.shape))
    _restart_average(state)
    _set_rate(state)


def _restart_average(state: TrainingState) -> None:
    lanes = state.lanes
    state.lanes = lanes._replace(average=lanes.free, averaged=jnp.zeros_like(lanes.averaged))


def candidates(
    problem: Problem, key: jax.Array, plan: TrainingSettings, state: TrainingState
) -> dict[str, jax.Array]:
    """Vectors that may be the result: the mean of the last iterates, the last iterate."""
    if state.phase in ("explore", "duel"):  # interrupted before the lanes were compared
        _choose(problem, key, plan, state)
    return {
        "averaged": state.lanes.average[0],
        "last": state.lanes.free[0],
        "best": state.best,
    }
