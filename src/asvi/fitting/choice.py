"""Takes a model and its data; gives the family that fits it better, by short runs of both if large.

Small models get :class:`~asvi.families.Coupled`: it contains the convex update, and on every task
of the suite it ends at least as high. A large one has many weights to learn, each step is dearer,
and a run has only so many. Where a start near the posterior is found, they are known already. Where
none is, both families run through the race's first phase, and the convex update is taken where it
is ahead of its rival by more than twice the error of the difference. The winner goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from asvi.families import ConvexUpdate, Coupled
from asvi.fitting.plan import Plan, State
from asvi.fitting.problem import Problem
from asvi.fitting.run import Run, conclude, first_state, optimise
from asvi.fitting.schedule import SMALL

__all__ = ["Choice", "choose_family"]


class Choice(NamedTuple):
    """A family, what was measured, in words, and what there is already of a run with it."""

    family: Any
    measured: str | None = None
    """None where the family was asked for, "" where nothing needed to be measured."""
    stopped: Run | None = None
    """A run that the user broke off."""
    made: Problem | None = None
    """The problem of that family, checked, where it was made."""
    state: State | None = None
    """Where its run stands."""


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
    coupled = Problem(model, Coupled(), args, kwargs, discrete=discrete)
    short = replace(plan, max_steps=plan.explore_chunks * plan.chunk)
    if coupled.size <= SMALL or plan.max_steps <= short.max_steps:
        return Choice(Coupled(), "", made=coupled)
    begun = time.monotonic()
    first = first_state(coupled, key, plan)
    if first.phase != "explore":  # near the posterior: it has what the convex update cannot hold
        return Choice(Coupled(), "", made=coupled, state=first)
    convex = Problem(model, ConvexUpdate(), args, kwargs, discrete=discrete)
    found, states = [], []
    for problem in (coupled, convex):
        state = first if problem is coupled else first_state(problem, key, plan)
        message = optimise(problem, key, short, state, progress)
        states.append(state.copy())
        found.append(conclude(problem, key, short, state, message, begun))
        if message:  # Ctrl-C: the first run is whole, or all there is
            return Choice(Coupled(), "", replace(found[0], message=message), coupled)
    gain = found[0].elbo - found[1].elbo
    error = float(np.hypot(found[0].elbo_se, found[1].elbo_se))
    after = f"after {short.max_steps} steps of each"
    told = f"{gain:+.3g} ± {error:.2g} nat beside ConvexUpdate {after}"
    # Impossible draws on both sides say nothing: NaN is not less.
    if gain < -2 * error:
        return Choice(ConvexUpdate(), told, made=convex, state=states[1])
    return Choice(Coupled(), told, made=coupled, state=states[0])
