"""Takes a problem; gives a start of the guide at the Gaussian nearest to the posterior, judged."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asvi.density.arrowhead import Arrowhead
from asvi.density.gaussian import Gaussian
from asvi.fitting.gaussian.for_training import find_gaussian
from asvi.fitting.problem import Problem
from asvi.fitting.training.parallel_optimizer import draw_elbos
from asvi.fitting.training.settings import TrainingSettings
from asvi.fitting.training.step_sizes import in_order, named_step_sizes
from asvi.guide.gaussian_to_params import params_from_gaussian

__all__ = ["GaussianStart", "gaussian_start", "mean_elbos"]


class GaussianStart(NamedTuple):
    """Parameters of the Gaussian nearest to the posterior, their units, and how good it is."""

    vector: jax.Array
    unit: jax.Array
    is_near: bool  # so near that no other start needs to be tried
    coupling_gain: float  # nats between it and the nearest Gaussian whose numbers are independent


def gaussian_start(
    problem: Problem, start: jax.Array, key: jax.Array, plan: TrainingSettings
) -> GaussianStart | None:
    """The Gaussian nearest to the posterior, where it is found.

    Prior weights near 1 are hard to move and those further away disturb the Gaussian: the furthest
    that cost nothing are taken.
    """
    params = problem.found_params(start)
    gaussian = find_gaussian(problem, params)
    if gaussian is None:
        return None
    found = [_parameters_at(problem, gaussian, params, slack) for slack in plan.slack_sd]
    ratios = []
    for vector, _ in found:
        rows = jnp.broadcast_to(vector, (plan.restarts, vector.size))
        drawn = draw_elbos(problem, rows, key, draws=plan.evaluation_draws)
        ratios.append(np.ravel(np.asarray(drawn, float)))
    elbos = mean_elbos(np.array(ratios))
    if not np.isfinite(elbos).any():
        return None
    best = int(np.argmax(elbos >= elbos.max() - plan.slack_cost_nat))
    near = _is_near(ratios[best], len(gaussian.mean), plan)
    return GaussianStart(*found[best], near, coupling_gain(gaussian.precision))


def _parameters_at(
    problem: Problem, gaussian: Gaussian, params: dict[str, Any], slack: float
) -> tuple[jax.Array, jax.Array]:
    """Parameters that hold the Gaussian, as a vector, and the unit of a step in each."""
    space = problem.noise_space
    assert space is not None
    edges, steps = problem.guide.edges(space), named_step_sizes(problem)
    found, steps = params_from_gaussian(problem.guide, space, edges, gaussian, params, steps, slack)
    return problem.free(found), jnp.asarray(in_order(steps), problem.dtype)


def coupling_gain(precision: Arrowhead) -> float:
    r"""KL from the best Gaussian of independent numbers: :math:`(\sum\log P_{ii} - \log|P|) / 2`.

    The noise of a program is what the convex update makes independent, but for what its prior
    weights can mend: this is the most that coupling can be worth to a Gaussian.

    >>> from asvi.density.block_structure import BlockStructure
    >>> matrix = np.array([[1.0, 0.9], [0.9, 1.0]])
    >>> round(coupling_gain(Arrowhead(BlockStructure(np.arange(2)), matrix)), 3)
    0.83
    """
    diagonal = np.sum(np.log(precision.diagonal()))
    return float(0.5 * (diagonal - precision.log_det()))


def _is_near(log_ratios: np.ndarray, numbers: int, plan: TrainingSettings) -> bool:
    """Whether importance weights say that this is the posterior but for little.

    Where their tail is long they say too little; but then no start is nearer.
    """
    if not np.isfinite(log_ratios).all():
        return False
    evidence = np.logaddexp.reduce(log_ratios) - np.log(len(log_ratios))
    near = plan.near_nat * max(1.0, numbers / plan.near_numbers)
    return bool(evidence - log_ratios.mean() < near)


def mean_elbos(found: Any) -> np.ndarray:
    """Mean of each row, (rows,); -inf where nothing is finite."""
    draws = np.asarray(found, float)
    # Some draws may be impossible at an early stage; they count as the worst possible one.
    fine = np.isfinite(draws)
    worst = draws[fine].min() if fine.any() else 0.0
    return np.where(fine.any(1), np.where(fine, draws, worst).mean(1), -np.inf)
