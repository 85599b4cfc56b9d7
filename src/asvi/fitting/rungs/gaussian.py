"""Takes a request; gives the nearest Gaussian over the program's noise, its draws corrected."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from asvi.density.curvature import precision
from asvi.errors import NotHeldError
from asvi.families.structured_normal.family import StructuredNormal
from asvi.fitting.correction.discrete_sites import Completion
from asvi.fitting.correction.of_gaussian import correct_gaussian
from asvi.fitting.details import SearchDetails
from asvi.fitting.gaussian.result import GaussianFit
from asvi.fitting.gaussian.search import find_nearest_gaussian
from asvi.fitting.gaussian.settings import SearchSettings
from asvi.fitting.numpyro_check import NumpyroCheck
from asvi.fitting.outcome import Outcome, Refusal
from asvi.fitting.problem import Problem
from asvi.fitting.request import Request
from asvi.fitting.settings import NumpyroCheckSettings

__all__ = ["climb", "fit_as_asked"]

DEFAULT = (
    "StructuredNormal, the default, its draws corrected. family=asvi.families.Coupled() trains "
    "another guide"
)
NONE_FOUND = (
    "StructuredNormal found no Gaussian: the model's density, or its curvature, is not finite near "
    "the prior's centre, or groups depend on each other directly.\n"
    "Write instead:\n    asvi.fit(model, y, family=asvi.families.Coupled())"
)


def climb(request: Request, before: Outcome | None) -> Outcome | Refusal:
    """The nearest Gaussian, its draws weighted or moved to the posterior."""
    if request.asks_for_training:
        return Refusal("an optimiser, a checkpoint or a way to discrete sites was asked for")
    try:  # the guide's own check, which NumPyro's users meet as an error
        problem = _problem(request, StructuredNormal())
    except NotHeldError as why:
        return Refusal(str(why))
    ladder, search = request.settings.ladder, request.settings.search
    structure = problem.noise_space.structure
    if structure.size > (ladder.max_numbers_in_groups if structure.groups else ladder.max_numbers):
        return Refusal("the model is too large for a Gaussian over its noise")
    tolerance = request.plan.tolerance
    if request.effort != "thorough":
        # Where nothing more is wanted of the guide, weights make good what is left.
        tolerance, search = ladder.near_nat, replace(search, enough_nat=ladder.near_nat)
    result = _search(request, problem, tolerance, search)
    if isinstance(result, Refusal):
        return result
    outcome, fit = result
    moves = request.effort != "quick"
    correction = correct_gaussian(outcome.problem, fit, request.key, request.correction, moves)
    # Where the Gaussian is the posterior, rounding is all the error that there is.
    rounding = outcome.run.rounding
    correction.log_evidence_se = float(np.hypot(correction.log_evidence_se, rounding))
    if correction.interrupted:
        outcome.converged, outcome.message = False, "interrupted: these are the draws so far"
    outcome.correction, outcome.family_reason = correction, DEFAULT
    outcome.seconds = time.monotonic() - request.started_at
    return outcome


def fit_as_asked(request: Request) -> Outcome:
    """The nearest Gaussian of the family that was asked for; its draws are not corrected."""
    problem = _problem(request, request.family)
    result = _search(request, problem, request.plan.tolerance, request.settings.search)
    if isinstance(result, Refusal):
        raise NotHeldError(result.why)
    outcome, _ = result
    outcome.family_reason = f"{request.family.name}, as asked for"
    return outcome


def _problem(request: Request, family: StructuredNormal) -> Problem:
    return Problem(request.model, family, request.args, request.kwargs, density=request.density)


def _search(
    request: Request, problem: Problem, tolerance: float, settings: SearchSettings
) -> tuple[Outcome, GaussianFit] | Refusal:
    """The Gaussian, judged to ``tolerance``, in groups where it has any."""
    if problem.program.trained:
        own = problem.program.trained[0]
        return Refusal(
            f"StructuredNormal does not train parameters, and the model has {own!r}.\n"
            "Write instead:\n    asvi.fit(model, y, family=asvi.families.Coupled())"
        )
    fit = find_nearest_gaussian(problem, request.key, tolerance, settings)
    if fit is not None:
        return _outcome(problem, fit, request), fit
    structure = problem.noise_space.structure
    max_dense = request.density.blocks.max_dense_numbers
    if problem.family.blocks and structure.groups and structure.size <= max_dense:
        # Groups depend on each other after all.
        whole = _problem(request, StructuredNormal(blocks=False))
        return _search(request, whole, tolerance, settings)
    return Refusal(NONE_FOUND)


def _outcome(problem: Problem, fit: GaussianFit, request: Request) -> Outcome:
    """The record of this fit, once NumPyro has said the same of it."""
    guide, density = problem.guide, fit.density
    values = guide.params_of(fit.mean, fit.spread, density.centring, density.anchor)
    rounding = _check_density(problem, fit, values, request.settings.numpyro_check)
    # Cast by NumPy, and put in place as they are: nothing to compile.
    params = jax.device_put({n: x.astype(problem.dtype) for n, x in values.items()})
    return Outcome(
        elbo=fit.elbo,
        elbo_se=fit.elbo_se,
        losses=-np.array(fit.trail),
        params=params,
        converged=True,
        message="converged: natural gradients found the nearest Gaussian",
        num_steps=len(fit.trail),
        seconds=time.monotonic() - request.started_at,
        run=SearchDetails(
            nearness=fit.distance,
            divergence=fit.divergence,
            centring=float(density.centring.mean()),
            rounding=rounding,
        ),
        problem=problem,
        start=fit.start,
    )


def _check_density(
    problem: Problem, fit: GaussianFit, params: dict[str, Any], settings: NumpyroCheckSettings
) -> float:
    """Nats of a draw that are lost to rounding; raises where NumPyro knows other densities."""
    some = slice(0, settings.draws)
    with precision(fit.is_double):
        values = fit.density.sites(fit.draws[some])
    completion = Completion.of(problem)
    if completion is not None:
        values |= completion(values, np.random.default_rng(7))[0]
    values = {site.name: values[site.name] for site in problem.program.latent}
    example = {name: x[0] for name, x in values.items()}
    check = NumpyroCheck(problem, params, example, beside_guide=True, settings=settings)
    return check(values, params, fit.log_ratios[some])
