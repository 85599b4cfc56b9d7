"""Takes a request; gives the family that fits it better, by short runs of both if large.

Small models get :class:`~asvi.families.Coupled`: it contains the convex update, and on every task
of the suite it ends at least as high. A large one has many weights to learn, each step is dearer,
and a run has only so many. Where a start near the posterior is found, they are known already. Where
none is, both families run through the race's first phase, and the convex update is taken where it
is ahead of its rival by more than twice the error of the difference. The winner goes on from there.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from asvi.families.convex import ConvexUpdate
from asvi.families.coupled.family import Coupled
from asvi.families.protocol import Family
from asvi.fitting.outcome import Outcome
from asvi.fitting.problem import Problem
from asvi.fitting.request import Request
from asvi.fitting.training.run import conclude, first_state, optimise
from asvi.fitting.training.state import TrainingState

__all__ = ["FamilyChoice", "choose_family"]


class FamilyChoice(NamedTuple):
    """A problem with the family that was chosen, and what there is already of a run with it."""

    problem: Problem
    measured: str = ""
    """What was measured, in words; nothing where nothing needed to be."""
    stopped: Outcome | None = None
    """A run that the user broke off."""
    state: TrainingState | None = None
    """Where its run stands."""


def choose_family(request: Request, gaussian: Any = None) -> FamilyChoice:
    """The family for this model, by its size and, where it is large, by what is measured.

    ``gaussian`` is one over the program's noise that was found before.
    """
    key, plan = request.a_key, request.plan
    coupled = _problem(request, Coupled(), gaussian)
    short = replace(plan, max_steps=plan.explore_chunks * plan.chunk)
    is_small = coupled.size <= request.settings.ladder.max_params_unmeasured
    if is_small or plan.max_steps <= short.max_steps:
        return FamilyChoice(coupled)
    first = first_state(coupled, key, plan)
    if first.phase != "explore":  # near the posterior: it has what the convex update cannot hold
        return FamilyChoice(coupled, state=first)
    convex = _problem(request, ConvexUpdate(), gaussian)
    started_at, outcomes, states = time.monotonic(), [], []
    for problem in (coupled, convex):
        state = first if problem is coupled else first_state(problem, key, plan)
        message = optimise(problem, key, short, state, request.progress)
        states.append(state.copy())
        outcomes.append(conclude(problem, key, short, state, message, started_at))
        if message:  # Ctrl-C: the first run is whole, or all there is
            return FamilyChoice(coupled, stopped=replace(outcomes[0], message=message))
    gain = outcomes[0].elbo - outcomes[1].elbo
    error = float(np.hypot(outcomes[0].elbo_se, outcomes[1].elbo_se))
    after = f"after {short.max_steps} steps of each"
    measured = f"{gain:+.3g} ± {error:.2g} nat beside ConvexUpdate {after}"
    # Impossible draws on both sides say nothing: NaN is not less.
    if gain < -2 * error:
        return FamilyChoice(convex, measured, state=states[1])
    return FamilyChoice(coupled, measured, state=states[0])


def _problem(request: Request, family: Family, gaussian: Any) -> Problem:
    model, args, kwargs = request.model, request.args, request.kwargs
    return Problem(
        model,
        family,
        args,
        kwargs,
        discrete=request.discrete,
        known_gaussian=gaussian,
        density=request.density,
    )
