"""Takes parameters before and after a cycle; gives what it gained, and whether to stop there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from asvi.fitting.problem import Problem
from asvi.fitting.training.parallel_optimizer import draw_elbos
from asvi.fitting.training.settings import TrainingSettings

__all__ = ["gain_over", "is_enough"]


def gain_over(
    old: jax.Array, new: jax.Array, problem: Problem, key: jax.Array, plan: TrainingSettings
) -> tuple[float, float]:
    """How much better ``new`` is than ``old`` on the same draws, and the error of that.

    Drawn again while the gain may as well be more than the tolerance as nothing.
    """
    count = plan.restarts
    if count < 2:
        return np.inf, 0.0  # a single restart cannot be compared: go on to the last step
    half = count // 2
    rows = jnp.stack([new] * half + [old] * (count - half))
    streams = [i % half for i in range(count)]
    changes = np.zeros(0)
    gain, error = -np.inf, np.inf
    for i in range(plan.max_gain_measurements):
        again = jax.random.fold_in(key, i)
        found = draw_elbos(problem, rows, again, draws=plan.evaluation_draws, streams=streams)
        draws = np.asarray(found, float)
        change = (draws[:half] - draws[half : 2 * half]).ravel()
        changes = np.append(changes, change[np.isfinite(change)])
        if not len(changes):
            break
        gain, error = float(changes.mean()), float(changes.std() / np.sqrt(len(changes)))
        if not plan.tolerance <= abs(gain) < 2 * error:
            break
    return gain, error


def is_enough(gains: list[float], error: float, plan: TrainingSettings) -> bool:
    """Whether another cycle would gain too little to be worth it.

    It would where the last one gained less than the tolerance, or than twice its error; or, if it
    gained not much more than that, where gains that go on falling as they did would.
    """
    last = abs(gains[-1])  # a cycle that lost went too fast; the next one, from the best, is slower
    if last < max(plan.tolerance, min(2 * error, plan.max_noise_nat)):
        return True
    falling = last / gains[-2] if len(gains) > 1 and gains[-2] > 0 else 1.0
    small = last < plan.foretold_tolerances * plan.tolerance
    return small and last * falling < plan.tolerance
