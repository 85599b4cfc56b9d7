"""Takes a model and its data; gives the family that fits it better, by short runs of both if large.

Small models get :class:`~asvi.families.Coupled`: it contains the convex update, and on every task
of the suite it ends at least as high. A large one has many weights to learn, each step is dearer,
and a run has only so many. There both families run through the race's first phase, and the convex
update is taken where it is ahead of its rival by more than twice the error of the difference.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from asvi.families import ConvexUpdate, Coupled
from asvi.fitting.plan import Plan
from asvi.fitting.problem import Problem, problem_for
from asvi.fitting.run import Run, run
from asvi.fitting.schedule import SMALL

__all__ = ["Choice", "choose_family"]


class Choice(NamedTuple):
    """A family, what was measured, in words, and a run that the user broke off, if so."""

    family: Any
    measured: str | None = None
    """None where the family was asked for, "" where nothing needed to be measured."""
    stopped: Run | None = None
    made: tuple[Problem, list] | None = None
    """The problem of that family and its data, checked, where it was made."""


def choose_family(
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    discrete: Any,
    key: jax.Array,
    plan: Plan,
    progress: bool,
) -> Choice:
    """The family for this model, by its size and, where it is large, by what is measured."""
    problem, arrays = problem_for(model, Coupled(), args, kwargs, discrete)
    short = plan.explore_chunks * plan.chunk
    if problem.size <= SMALL or plan.max_steps <= short:
        return Choice(Coupled(), "", made=(problem, arrays))
    plan = replace(plan, max_steps=short, draws=Plan.draws)
    found = []
    for family in (Coupled(), ConvexUpdate()):
        problem, arrays = problem_for(model, family, args, kwargs, discrete)
        found.append(run(problem, arrays, key, plan, progress, None, time.monotonic()))
        if found[-1].steps < short:  # Ctrl-C: the first run is whole, or all there is
            return Choice(Coupled(), "", replace(found[0], message=found[-1].message))
    coupled, convex = found
    gain, error = coupled.elbo - convex.elbo, float(np.hypot(coupled.elbo_se, convex.elbo_se))
    told = f"{gain:+.3g} ± {error:.2g} nat beside ConvexUpdate after {short} steps of each"
    # Impossible draws on both sides say nothing: NaN is not less.
    return Choice(ConvexUpdate() if gain < -2 * error else Coupled(), told)
