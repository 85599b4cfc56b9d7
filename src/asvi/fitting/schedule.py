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
3. *Descend*, in cycles. The winner is copied into two lanes, which share all draws and pool their
   gradients: one step has ``lanes x draws`` draws. In the first chunk one of them uses plain and
   one path gradients; the one of smaller variance stays. A model of many parameters whose run
   begins at the Gaussian has one lane, path gradients and four times the draws from the first step:
   one program is compiled and no other. In a cycle the learning rate falls to
   nothing along a cosine; each cycle is twice as long as the one before and begins at a lower rate.
   From the third one on, where gradients are nothing but noise and the run began at the Gaussian, a
   step of a small model has four times the draws instead, in one lane, which cost less than as many
   steps, and cycles grow no longer.
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

from asvi.fitting.gaussian_start import gaussian_start, may_have_gaussian, mean_elbos
from asvi.fitting.lanes import (
    Lanes,
    Settings,
    advance,
    advance_soon,
    evaluate,
    new_lanes,
)
from asvi.fitting.plan import Plan, State
from asvi.fitting.problem import Problem
from asvi.fitting.stopping import NEARLY, gain_over, is_enough
from asvi.fitting.units import limits, units

__all__ = ["begin", "candidates", "finished", "step_chunk"]

POOLED_GAIN = 3.0
MORE_DRAWS = 4  # times the plan's
NOISY = 1.0  # variance of one lane's gradient over the square of the pooled one
SMALL, LARGE = 50_000, 20_000  # parameters
FAR = 0.5  # nats
KINDS = ("prior", "half-way", "gaussian")


def begin(problem: Problem, arrays: list, key: jax.Array, plan: Plan) -> State:
    """Lanes at their starts."""
    after_race, alone = plan.lanes_after_race(), _is_alone(problem)
    if alone:
        advance_soon(problem, arrays, 1, **_program(plan, 1, MORE_DRAWS, 0.0))
    else:
        advance_soon(problem, arrays, after_race, **_program(plan, after_race))
    make = problem.jit(("initial", plan.lanes), lambda: partial(_starts, problem, plan.lanes))
    kinds = [KINDS[i % 2] for i in range(plan.lanes)]
    free = np.array(make(key, arrays))
    unit = np.array(np.broadcast_to(np.asarray(units(problem)), free.shape))
    rates = [plan.rates[i // 2 % len(plan.rates)] for i in range(plan.lanes)]
    found = gaussian_start(problem, arrays, jnp.asarray(free[0]), key, plan.lanes, plan.judge_draws)
    if found is not None:
        taken = plan.lanes if found.is_near else max(1, plan.lanes // 4)
        for k in range(taken):
            lane, rate = plan.lanes - 1 - k, plan.gaussian_rates[k % len(plan.gaussian_rates)]
            free[lane], unit[lane] = found.vector, found.unit
            kinds[lane], rates[lane] = "gaussian", rate
    limit = np.maximum(limits(problem), free)  # a start further out is left there
    lanes = new_lanes(jnp.asarray(free), jnp.asarray(unit), plan.optimizer, jnp.asarray(limit))
    # Near its optimum a guide has path gradients of little variance; far from it they do not help.
    shares = [0.0 if kind == "gaussian" else 1.0 for kind in kinds]
    pools = list(range(plan.lanes))
    state = State(lanes, rates=rates, kinds=kinds, pools=pools, score_shares=shares)
    state.coupling_gain = None if found is None else found.coupling_gain
    if found is not None and found.is_near:
        _descend(problem, plan, state, 0, max(plan.gaussian_rates), alone)
    else:
        advance_soon(problem, arrays, plan.lanes, **_program(plan, plan.lanes))
        advance_soon(problem, arrays, after_race, **_program(plan, after_race))
    return state


def _is_alone(problem: Problem) -> bool:
    """Whether a run from the Gaussian has one lane and path gradients from its first step on.

    They are the better ones there. A second program, to compare them with others or to have more
    draws, is dear where there are many parameters.
    """
    large = problem.size > LARGE and not problem.may_have_scores
    return large and problem.has_path and may_have_gaussian(problem)


def _program(plan: Plan, lanes: int, more: int = 1, share: float | None = None) -> dict[str, Any]:
    """What a compiled chunk of steps is made for."""
    draws = more * plan.draws_of(lanes)
    optimizer = plan.optimizer
    return {"steps": plan.chunk, "draws": draws, "optimizer": optimizer, "score_share": share}


def _later(plan: Plan, state: State, more: int) -> dict[str, Any]:
    """The same for cycles of more draws: one lane, the gradient that was chosen and no other."""
    return _program(plan, 1, more, state.score_shares[0])


def _starts(problem: Problem, count: int, key: jax.Array, arrays: list) -> jax.Array:
    """Lanes of the first two kinds, (lanes, parameters)."""
    rows = jax.vmap(problem.initial, (0, None))(jax.random.split(key, count), arrays)
    half_way = jnp.asarray([KINDS[i % 2] == "half-way" for i in range(count)])
    return jnp.where(half_way[:, None], jax.vmap(problem.half_way)(rows), rows)


def finished(state: State, plan: Plan) -> bool:
    return state.phase == "done" or state.work * plan.chunk >= plan.max_steps


def step_chunk(problem: Problem, arrays: list, key: jax.Array, plan: Plan, state: State) -> State:
    """One compiled chunk of steps and the decision after it; ``key`` is that of the whole run."""
    chunk_key = jax.random.fold_in(key, state.chunks)
    racing = state.phase in ("explore", "duel")
    settings = _settings(problem, plan, state)
    more = state.more_draws
    program = _program(plan, len(state.kinds)) if more == 1 else _later(plan, state, more)
    lanes, seen = advance(problem, state.lanes, arrays, chunk_key, settings, **program)
    losses = np.asarray(seen["loss"], float)
    state.lanes, state.chunks = lanes, state.chunks + 1
    state.work += 1 if state.more_draws == 1 else 2
    if racing:
        means = losses[-50:].mean(0)
        state.losses.append(float(min(means[np.isfinite(means)], default=np.nan)))
        if state.phase == "explore" and state.chunks >= plan.explore_chunks:
            _pair_off(problem, arrays, jax.random.fold_in(key, 10**6), plan, state)
        elif state.chunks >= plan.explore_chunks + plan.duel_chunks:
            _choose(problem, arrays, jax.random.fold_in(key, 10**6 + 1), plan, state)
        return state
    state.losses.append(_finite(losses))
    if len(state.kinds) > 1:
        state.noise = _finite(seen["noise"])
    else:
        state.noise = _noise_alone(lanes, np.asarray(seen["square"], float))
    if state.phase == "try gradients":
        _choose_gradient(plan, state, np.asarray(seen["square"], float))
    if state.chunks - state.cycle_begin >= _length(plan, state):
        _end_cycle(problem, arrays, jax.random.fold_in(key, 2 * 10**6), plan, state)
    else:
        _set_rate(plan, state)
    return state


def _finite(values: Any, middle: Any = np.mean) -> float:
    """The mean (or median) of what is finite; infinite where nothing is."""
    values = np.asarray(values, float)
    fine = values[np.isfinite(values)]
    return float(middle(fine)) if len(fine) else float("inf")


def _noise_alone(lanes: Lanes, squares: np.ndarray) -> float:
    """Variance of a gradient over the square of its mean, told from the steps of a single lane.

    Adam's mean over some ten steps holds a 19th of a gradient's variance.
    """
    mean = optax.tree_utils.tree_get(lanes.inner, "mu", None)
    if mean is None:  # another optimiser
        return float("nan")
    size, left = _finite(squares[-50:]), float(jnp.sum(jnp.square(mean)))
    variance = max(0.0, size - left) * 19 / 18
    return variance / max(left - variance / 19, 1e-6 * size, 1e-30)


def _settings(problem: Problem, plan: Plan, state: State) -> Settings:
    dtype = problem.dtype
    pools = np.array(state.pools)
    together = (pools[:, None] == pools).astype(float)
    fade = max(1, plan.explore_chunks // 2)
    ramp = np.interp([state.chunks, state.chunks + 1], [0, fade], [0.1, 1.0])
    # The Gaussian was found with the data in: nothing is to be faded in.
    temperatures = [[1.0, 1.0] if kind == "gaussian" else ramp for kind in state.kinds]
    return Settings(
        jnp.asarray(state.rates, dtype),
        jnp.asarray(together / together.sum(1, keepdims=True), dtype),
        jnp.asarray(np.array(temperatures), dtype),
        jnp.asarray(state.score_shares, dtype),
    )


def _measure(
    problem: Problem, arrays: list, key: jax.Array, plan: Plan, state: State
) -> np.ndarray:
    """ELBO of every lane, all on the same draws; -inf where it is not finite."""
    keys = jax.random.split(key, plan.judge_draws)
    same = jnp.broadcast_to(keys, (plan.lanes, plan.judge_draws))
    found = evaluate(problem, state.lanes.free, arrays, same, draws=plan.judge_draws)
    return mean_elbos(found)


@jax.jit
def _rows(lanes: Lanes, sources: jax.Array) -> Lanes:
    return jax.tree.map(lambda x: x[sources], lanes)


def _copy(state: State, sources: list[int]) -> None:
    """Lane i becomes a copy of lane ``sources[i]``."""
    state.lanes = _rows(state.lanes, np.array(sources))
    state.rates = [state.rates[i] for i in sources]
    state.kinds = [state.kinds[i] for i in sources]
    state.score_shares = [state.score_shares[i] for i in sources]
    _restart_average(state)


def _pair_off(problem: Problem, arrays: list, key: jax.Array, plan: Plan, state: State) -> None:
    """Copy the best lanes of the two best kinds of start over a half each, which pool gradients."""
    elbos = _measure(problem, arrays, key, plan, state)
    if plan.lanes < 4:
        _choose(problem, arrays, key, plan, state)
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


def _choose(problem: Problem, arrays: list, key: jax.Array, plan: Plan, state: State) -> None:
    """Copy the lane of the best ELBO into all; from here on they are one."""
    best = int(np.argmax(_measure(problem, arrays, key, plan, state)))
    # A pooled gradient has the noise of several lanes less than the one that won the race.
    _descend(problem, plan, state, best, min(max(plan.rates), POOLED_GAIN * state.rates[best]))


def _descend(
    problem: Problem, plan: Plan, state: State, lane: int, rate: float, alone: bool = False
) -> None:
    """Begin the first cycle, all lanes at this one."""
    lanes = 1 if alone else plan.lanes_after_race()
    if alone:
        state.more_draws = MORE_DRAWS
    _copy(state, [lane] * lanes)
    state.first_rate = rate
    state.pools = [0] * lanes
    state.phase = "descend"
    if problem.has_path and lanes >= 2:
        # One chunk with half the lanes on each estimator; see _choose_gradient.
        state.pools = [2 * i // lanes for i in range(lanes)]
        state.score_shares = [1.0 - p for p in state.pools]
        state.phase = "try gradients"
    state.cycle_begin = state.chunks
    state.best = state.lanes.free[0]
    _set_rate(plan, state)


def _choose_gradient(plan: Plan, state: State, square: np.ndarray) -> None:
    """Stay with the estimator, and the lanes, of the smaller variance: plain or path.

    Both have the same mean, so the one of the smaller mean square has the smaller variance. Of
    the chunk's later half the median is taken: a single draw far out would sway the mean.
    """
    later = square[len(square) // 2 :]
    plain, path = (_finite(later[:, np.array(state.pools) == pool], np.median) for pool in (0, 1))
    state.trial |= {"plain": plain, "path": path}
    lanes = plan.lanes_after_race()
    _copy(state, [lanes - 1 if path < plain else 0] * lanes)
    state.pools = [0] * lanes
    state.phase = "descend"


def _length(plan: Plan, state: State) -> int:
    """Chunks in this cycle."""
    if state.more_draws > 1:  # cost is in draws: these cycles grow no longer
        return plan.first_cycle * 2 ** min(state.cycle, 1)
    return plan.first_cycle * 2**state.cycle


def _set_rate(plan: Plan, state: State) -> None:
    """The learning rate of the next chunk: a cosine from the cycle's first rate to 1% of it."""
    done = (state.chunks - state.cycle_begin) / _length(plan, state)
    top = state.first_rate * 0.6**state.cycle
    rate = top * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * done)))
    state.rates = [float(rate)] * len(state.kinds)


def _end_cycle(problem: Problem, arrays: list, key: jax.Array, plan: Plan, state: State) -> None:
    """Keep the better of this cycle's end and the best before; stop where little was gained."""
    new = state.lanes.free[0]
    gain, error = gain_over(state.best, new, problem, arrays, key, plan)
    state.gains.append(gain)
    # A start at the Gaussian is no plateau; from elsewhere two short cycles may both lie on one.
    cycles = 3
    if state.kinds[0] == "gaussian":
        cycles = 1 if abs(gain) + 2 * error < NEARLY * plan.tolerance else 2
    if gain > 0:
        state.best = new
    if len(state.gains) >= cycles and is_enough(state.gains, plan.tolerance, error):
        state.phase = "done"
        return
    state.cycle += 1
    state.cycle_begin = state.chunks
    near = state.kinds[0] == "gaussian"  # from elsewhere steps are what a run needs most
    if near and problem.size <= SMALL and state.noise > NOISY and not problem.may_have_scores:
        # Gradients are all noise. In small models draws are cheaper than steps.
        if state.cycle >= 2:
            state.more_draws = MORE_DRAWS
            _copy(state, [0])
            state.pools = [0]
        elif gain > FAR:  # seldom followed by one cycle only
            advance_soon(problem, arrays, 1, **_later(plan, state, MORE_DRAWS))
    state.lanes = state.lanes._replace(free=jnp.broadcast_to(state.best, state.lanes.free.shape))
    _restart_average(state)
    _set_rate(plan, state)


def _restart_average(state: State) -> None:
    lanes = state.lanes
    state.lanes = lanes._replace(average=lanes.free, averaged=jnp.zeros_like(lanes.averaged))


def candidates(
    problem: Problem, arrays: list, key: jax.Array, plan: Plan, state: State
) -> dict[str, jax.Array]:
    """Vectors that may be the result: the mean of the last iterates, the last iterate."""
    if state.phase in ("explore", "duel"):  # interrupted before the lanes were compared
        _choose(problem, arrays, key, plan, state)
    return {
        "averaged": state.lanes.average[0],
        "last": state.lanes.free[0],
        "best": state.best,
    }
