"""Takes a problem; gives optimised parameters: explore, keep the best lane, anneal, stop.

The whole plan is a small state machine on the host. Its state is plain numbers, so that a
checkpoint can hold it and go on to the same result.

1. *Explore.* Every lane starts from its own draw of the start and has its own learning rate. The
   data are faded in (temperature 0.1 to 1) over the first chunks, so that chains find their basin.
   Then all lanes are measured on the same draws and the best one is copied into all.
2. *Descend.* Lanes pool their gradients: one step has ``lanes x draws`` draws. The plain or the
   path gradient is used, whichever had the smaller noise when both were tried. While the loss falls
   by more than its Monte Carlo error, the learning rate stays; when it no longer does, it halves.
3. *Stop*, when two halvings in a row have gained less than the tolerance and its error, or when the
   rate is a hundredth of the first. The mean of the last level's iterates is measured against the
   last iterate, and the better is kept.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.fitting.lanes import Lanes, Settings, advance, evaluate, new_lanes
from asvi.fitting.problem import Problem

__all__ = ["Plan", "State", "begin", "candidates", "finished", "step_chunk"]

RATES = (0.05, 0.02, 0.01, 0.005)


@dataclass(frozen=True)
class Plan:
    """What a run is allowed and asked to do."""

    lanes: int = 8
    draws: int = 2
    chunk: int = 250
    explore_chunks: int = 4
    max_steps: int = 20_000
    tolerance: float = 0.01
    rates: tuple[float, ...] = RATES
    judge_draws: int = 128


@dataclass
class State:
    """Where a run stands: arrays in ``lanes``, the rest plain numbers."""

    lanes: Lanes
    phase: str = "explore"
    chunks: int = 0
    rate: float = 0.0
    first_rate: float = 0.0
    score_share: float = 1.0
    trial: dict[str, float] = field(default_factory=dict)
    level: list[float] = field(default_factory=list)
    level_error: list[float] = field(default_factory=list)
    level_means: list[float] = field(default_factory=list)
    small_gains: int = 0
    losses: list[float] = field(default_factory=list)
    noise: float = float("nan")
    gain_per_chunk: float = float("nan")

    def numbers(self) -> dict[str, Any]:
        """All but the arrays, for a checkpoint."""
        return {k: v for k, v in asdict(self).items() if k != "lanes"}


def begin(problem: Problem, arrays: list, key: jax.Array, plan: Plan) -> State:
    """Lanes at their starts."""
    make = problem.jit(("initial", plan.lanes), lambda: jax.vmap(problem.initial, (0, None)))
    return State(new_lanes(make(jax.random.split(key, plan.lanes), arrays)))


def finished(state: State, plan: Plan) -> bool:
    return state.phase == "done" or state.chunks * plan.chunk >= plan.max_steps


def step_chunk(problem: Problem, arrays: list, key: jax.Array, plan: Plan, state: State) -> State:
    """One compiled chunk of steps and the decision after it; ``key`` is that of the whole run."""
    chunk_key = jax.random.fold_in(key, state.chunks)
    exploring = state.phase == "explore"
    settings = _settings(problem, plan, state)
    lanes, seen = advance(
        problem, state.lanes, arrays, chunk_key, settings, steps=plan.chunk, draws=plan.draws
    )
    losses = np.asarray(seen["loss"], float)
    state.lanes, state.chunks = lanes, state.chunks + 1
    if exploring:
        state.losses.append(float(np.nanmin(np.nanmean(losses[-50:], 0))))
        if state.chunks >= plan.explore_chunks:
            _choose(problem, arrays, jax.random.fold_in(key, 10**6), plan, state)
        return state
    per_step = np.nanmean(np.where(np.isfinite(losses), losses, np.nan), 1)
    state.losses.append(float(np.nanmean(per_step)))
    state.noise = float(np.nanmean(seen["noise"]))
    _decide(plan, state, per_step, float(np.nanmean(seen["spread"])))
    return state


def _settings(problem: Problem, plan: Plan, state: State) -> Settings:
    dtype, lanes = problem.dtype, plan.lanes
    if state.phase == "explore":
        rates = jnp.asarray([plan.rates[i % len(plan.rates)] for i in range(lanes)], dtype)
        fade = max(1, plan.explore_chunks // 2)
        ramp = np.interp([state.chunks, state.chunks + 1], [0, fade], [0.1, 1.0])
        pool = jnp.eye(lanes, dtype=dtype)
        return Settings(rates, pool, jnp.asarray(ramp, dtype), jnp.asarray(1.0, dtype))
    return Settings(
        jnp.full(lanes, state.rate, dtype),
        jnp.full((lanes, lanes), 1.0 / lanes, dtype),
        jnp.ones(2, dtype),
        jnp.asarray(state.score_share, dtype),
    )


def _choose(problem: Problem, arrays: list, key: jax.Array, plan: Plan, state: State) -> None:
    """Copy the lane of the best ELBO into all."""
    keys = jax.random.split(key, plan.judge_draws)
    same = jnp.broadcast_to(keys, (plan.lanes, plan.judge_draws))
    draws = np.asarray(
        evaluate(problem, state.lanes.free, arrays, same, draws=plan.judge_draws), float
    )
    elbos = np.where(np.isfinite(draws).all(1), draws.mean(1), -np.inf)
    best = int(np.argmax(elbos))
    state.lanes = jax.tree.map(lambda x: jnp.broadcast_to(x[best], x.shape), state.lanes)
    state.rate = state.first_rate = float(plan.rates[best % len(plan.rates)])
    state.phase = "try plain" if problem.has_path else "descend"
    _restart_average(state)


def _decide(plan: Plan, state: State, per_step: np.ndarray, spread: float) -> None:
    if state.phase == "try plain":
        state.trial["plain"], state.score_share, state.phase = spread, 0.0, "try path"
        return
    if state.phase == "try path":
        state.trial["path"] = spread
        state.score_share = 0.0 if spread < state.trial["plain"] else 1.0
        state.phase = "descend"
        return
    half = len(per_step) // 2
    state.level += [float(per_step[:half].mean()), float(per_step[half:].mean())]
    state.level_error += [
        float(part.std() / np.sqrt(half)) for part in (per_step[:half], per_step[half:])
    ]
    if len(state.level) < 4:
        return
    # A line through the level's half-chunks: is the loss still falling by more than its error?
    recent, errors = np.array(state.level[-6:]), np.array(state.level_error[-6:])
    time = np.arange(len(recent)) - (len(recent) - 1) / 2
    slope = float(time @ recent / (time @ time))
    error = float(np.sqrt(np.mean(errors**2) / (time @ time)))
    state.gain_per_chunk = -2 * slope
    if -slope > max(2 * error, plan.tolerance / 8):
        return
    # Nothing more to gain at this rate.
    mean = float(np.mean(recent[-4:]))
    before = state.level_means[-1] if state.level_means else np.inf
    state.level_means.append(mean)
    noise = float(np.sqrt(np.mean(errors[-4:] ** 2) / 4))
    small = before - mean < max(plan.tolerance, 2 * noise)
    state.small_gains = state.small_gains + 1 if small else 0
    if (state.small_gains >= 2 and state.rate <= state.first_rate / 16) or (
        state.rate <= state.first_rate / 100
    ):
        state.phase = "done"
        return
    state.rate /= 2
    state.level, state.level_error = [], []
    _restart_average(state)


def _restart_average(state: State) -> None:
    lanes = state.lanes
    state.lanes = lanes._replace(average=lanes.free, averaged=jnp.zeros_like(lanes.averaged))


def candidates(
    problem: Problem, arrays: list, key: jax.Array, plan: Plan, state: State
) -> dict[str, jax.Array]:
    """Vectors that may be the result: the mean of the last iterates, the last iterate."""
    if state.phase == "explore":  # interrupted before the lanes were compared
        _choose(problem, arrays, key, plan, state)
    return {"averaged": state.lanes.average[0], "last": state.lanes.free[0]}
