"""Takes a run of one restart; gives it after its cycles: rates, kinds of gradients, draws, stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asvi.fitting.problem import Problem
from asvi.fitting.training.chunk_program import chunk_program, has_cheap_draws
from asvi.fitting.training.parallel_optimizer import ParallelState, advance_soon
from asvi.fitting.training.settings import TrainingSettings
from asvi.fitting.training.state import GradientKind, Phase, Start, TrainingState
from asvi.fitting.training.stopping import gain_over, is_enough

__all__ = [
    "begin_descent",
    "choose_gradient",
    "decide_descent",
    "end_cycle",
    "finite_center",
    "gradient_moments",
]


def begin_descent(plan: TrainingSettings, state: TrainingState, restart: int, rate: float) -> None:
    """Begin the first cycle, at this restart."""
    state.select([restart])
    state.first_rate = rate
    state.pools = [0]
    state.phase = Phase.DESCEND
    state.score_shares = [0.0]
    state.cycle_begin = state.chunks
    state.best = state.parallel.free[0]
    _set_rate(plan, state)


def decide_descent(
    problem: Problem,
    key: jax.Array,
    plan: TrainingSettings,
    state: TrainingState,
    squares: np.ndarray,
    lost: float,
) -> None:
    """After a chunk: which gradients, how many restarts, how fast; and whether to stop.

    ``squares`` (steps, restarts) are the gradients' lengths, squared; ``lost`` is the share of
    steps that were not finite.
    """
    variance, square = gradient_moments(state.parallel, squares, plan.recent_steps)
    state.noise = variance / square
    _spread_out(plan, state, lost)
    if state.phase is Phase.TRY_GRADIENTS:
        choose_gradient(state, variance)
    if state.chunks - state.cycle_begin >= _cycle_length(state):
        end_cycle(problem, jax.random.fold_in(key, 2 * 10**6), plan, state)
    else:
        _set_rate(plan, state)


def finite_center(values: Any, center: Callable[..., Any] = np.mean) -> float:
    """The mean (or median) of what is finite; infinite where nothing is."""
    values = np.asarray(values, float)
    fine = values[np.isfinite(values)]
    return float(center(fine)) if len(fine) else float("inf")


def gradient_moments(
    parallel: ParallelState, squares: np.ndarray, recent: int = TrainingSettings.recent_steps
) -> tuple[float, float]:
    """Variance of a gradient, and square of its mean, by the last steps of a single restart.

    Adam's mean over some ten steps holds a 19th of a gradient's variance. A single draw far out
    would sway a mean of the squares: their median is taken.
    """
    mean = optax.tree_utils.tree_get(parallel.inner, "mu", None)
    if mean is None:  # another optimiser
        return float("nan"), float("nan")
    size, left = finite_center(squares[-recent:], np.median), float(jnp.sum(jnp.square(mean[0])))
    variance = max(0.0, size - left) * 19 / 18
    return variance, max(left - variance / 19, 1e-6 * size, 1e-30)


def choose_gradient(state: TrainingState, variance: float) -> None:
    """After a chunk of path gradients: go back to the race's plain ones if they varied less."""
    state.variances[GradientKind.PATH] = variance
    if state.variances[GradientKind.PLAIN] < variance:
        state.score_shares = [1.0]
    state.phase = Phase.DESCEND


def _spread_out(plan: TrainingSettings, state: TrainingState, lost: float) -> None:
    """Where many steps are lost, share the draws among all restarts again.

    A draw that is not finite spoils the step of its restart, and only of its restart.
    """
    if len(state.starts) == 1 < plan.restarts and lost > plan.max_lost_share:
        state.select([0] * plan.restarts)
        state.pools, state.more_draws = [0] * plan.restarts, 1


def _cycle_length(state: TrainingState) -> int:
    """Chunks in this cycle."""
    if state.more_draws > 1:  # cost is in draws: these cycles grow no longer
        return state.first_cycle * 2 ** min(state.cycle, 1)
    return state.first_cycle * 2**state.cycle


def _set_rate(plan: TrainingSettings, state: TrainingState) -> None:
    """The learning rate of the next chunk: a cosine from the cycle's first rate to its last."""
    done = (state.chunks - state.cycle_begin) / _cycle_length(state)
    top, last = state.first_rate * plan.rate_fall**state.cycle, plan.last_rate_share
    rate = top * (last + (1 - last) * 0.5 * (1 + np.cos(np.pi * done)))
    state.rates = [float(rate)] * len(state.starts)


def end_cycle(
    problem: Problem, key: jax.Array, plan: TrainingSettings, state: TrainingState
) -> None:
    """Keep the better of this cycle's end and the best before; stop where little was gained."""
    new = state.parallel.free[0]
    gain, error = gain_over(state.best, new, problem, key, plan)
    state.gains.append(gain)
    is_near = state.starts[0] is Start.GAUSSIAN
    # A start at the Gaussian is no plateau; from elsewhere two short cycles may both lie on one.
    cycles = 3
    if is_near:
        surely = abs(gain) + 2 * error < plan.foretold_tolerances * plan.tolerance
        cycles = 1 if surely else 2
    if gain > 0:
        state.best = new
    if gain < -plan.loss_nat:
        state.first_rate *= plan.loss_slowdown
    if len(state.gains) >= cycles and is_enough(state.gains, error, plan):
        state.phase = Phase.DONE
        return
    state.cycle += 1
    state.cycle_begin = state.chunks
    if is_near:  # from elsewhere steps are what a run needs most
        _ask_for_draws(problem, plan, state, gain)
    best = jnp.broadcast_to(state.best, state.parallel.free.shape)
    state.parallel = state.parallel._replace(free=best)
    state.restart_average()
    _set_rate(plan, state)


def _ask_for_draws(
    problem: Problem, plan: TrainingSettings, state: TrainingState, gain: float
) -> None:
    """Where gradients are all noise, and draws cheaper than steps: more draws from cycle 3 on."""
    if not has_cheap_draws(problem) or len(state.starts) > 1:
        return
    if not state.noise > plan.max_noise_ratio:
        return
    more = plan.later_draw_factor
    if state.cycle >= 2:
        state.more_draws = more
    elif gain > plan.large_gain_nat:  # seldom followed by one cycle only
        soon = chunk_program(problem, plan, 1, more, state.score_shares[0])
        advance_soon(problem, 1, **soon)
