"""Takes a request; gives a guide trained by gradient steps, its draws corrected if they can be."""

from __future__ import annotations

import time
from dataclasses import replace

import jax
import numpy as np

from asvi.errors import InternalError
from asvi.families.protocol import name_of
from asvi.fitting.correction.of_guide import correct_guide
from asvi.fitting.default_family import FamilyChoice, choose_family
from asvi.fitting.details import TrainingDetails
from asvi.fitting.guide_draws import GuideDraws
from asvi.fitting.numpyro_check import check_elbo
from asvi.fitting.outcome import Outcome
from asvi.fitting.problem import Problem
from asvi.fitting.request import Request
from asvi.fitting.settings import NumpyroCheckSettings
from asvi.fitting.training.run import train

__all__ = ["climb", "fit_as_asked"]


def climb(request: Request, before: Outcome | None) -> Outcome:
    """A guide of the family that suits the model, from the Gaussian that was found ``before``."""
    choice = choose_family(request, None if before is None else before.start)
    outcome = _train(request, choice)
    outcome.family_reason = _explain(outcome, choice.measured)
    if not request.asks_for_training and not outcome.was_stopped:
        outcome.correction = correct_guide(
            outcome.problem,
            outcome.params,
            request.a_key,
            request.correction,
            request.settings.numpyro_check,
        )
        outcome.seconds = time.monotonic() - request.started_at
    return _check(outcome, request.settings.numpyro_check)


def fit_as_asked(request: Request) -> Outcome:
    """A guide of the family that was asked for; its draws are not corrected."""
    model, args, kwargs = request.model, request.args, request.kwargs
    problem = Problem(
        model, request.family, args, kwargs, discrete=request.discrete, density=request.density
    )
    outcome = _train(request, FamilyChoice(problem))
    outcome.family_reason = f"{name_of(problem.family)}, as asked for"
    return _check(outcome, request.settings.numpyro_check)


def _train(request: Request, choice: FamilyChoice) -> Outcome:
    if choice.stopped is not None:
        return choice.stopped
    problem, plan, state = choice.problem, request.plan, choice.state
    if request.num_particles is None and not request.must_resume and _has_scores(problem):
        plan, state = replace(plan, draws=request.settings.ladder.score_draws), None
    return train(
        problem,
        request.a_key,
        plan,
        request.progress,
        request.checkpoint,
        request.started_at,
        must_exist=request.must_resume,
        state=state,
    )


def _has_scores(problem: Problem) -> bool:
    return problem.may_have_scores and problem.has_scores()


def _explain(outcome: Outcome, measured: str) -> str:
    """Which family was chosen, and why, in words."""
    problem = outcome.problem
    name = name_of(problem.family)
    if name != "Coupled":
        return f"{name}: Coupled measured {measured}. family=asvi.families.Coupled() overrides it"
    known = problem.guide.parameters()
    weights = sum(
        np.size(x) for n, x in outcome.params.items() if n in known and known[n].role.couples
    )
    if not weights:
        return f"{name}; no two latent numbers need coupling"
    words = f"{name}, the default: {weights:,} weights couple what the data make dependent"
    details = outcome.run
    if isinstance(details, TrainingDetails) and details.coupling_gain is not None:
        words += f", worth up to {details.coupling_gain:.2g} nat by the curvature at the start"
    if measured:
        words += f"; {measured}"
    return f"{words}. family=asvi.families.ConvexUpdate() leaves them out"


def _check(outcome: Outcome, settings: NumpyroCheckSettings) -> Outcome:
    """The outcome, if fresh draws of its guide have the ELBO that it reports."""
    draws = GuideDraws(outcome.problem, outcome.params)
    for more in range(2):
        # What a rare draw moves is asked again, with more of them.
        key = jax.random.fold_in(jax.random.key(21), more)
        count = settings.elbo_draws * settings.elbo_draws_growth**more
        ratios = draws.importance(key, count)[1].log_ratios
        if check_elbo(outcome.elbo, outcome.elbo_se, ratios, settings):
            return outcome
    error = float(np.std(ratios) / np.sqrt(len(ratios)))
    raise InternalError(
        f"the ELBO was said to be {outcome.elbo:.6g} ± {outcome.elbo_se:.2g}, and is "
        f"{np.mean(ratios):.6g} ± {error:.2g} by fresh draws of the posterior",
        outcome,
    )
