"""Takes a request; gives the nearest Gaussian over the program's noise, its draws corrected."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from asvi.density.curvature import precision
from asvi.errors import FamilyError, NotHeldError
from asvi.families.structured_normal.family import StructuredNormal
from asvi.fitting.correction.discrete_sites import Completion
from asvi.fitting.correction.of_gaussian import correct_gaussian
from asvi.fitting.details import SearchDetails
from asvi.fitting.gaussian.newton import SOLVED
from asvi.fitting.gaussian.search import GaussianFit, find_nearest_gaussian
from asvi.fitting.numpyro_check import DRAWS, Recheck
from asvi.fitting.outcome import Outcome, Refusal
from asvi.fitting.problem import Problem
from asvi.fitting.request import Request

__all__ = ["climb", "fit_as_asked"]

QUICK, QUICK_IN_CELLS = 250, 3000  # latent numbers, all together and in groups, of a first look
NEAR = 0.1  # nats that weights make good

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
    # Where nothing more is wanted of the guide, weights make good what is left.
    precise = request.effort == "thorough"
    goal = (request.plan.tolerance, SOLVED) if precise else (NEAR, NEAR)
    try:
        found = _search(request, StructuredNormal(), *goal, is_default=True)
    except NotHeldError as why:
        return Refusal(str(why))
    if isinstance(found, Refusal):
        return found
    outcome, gaussian = found
    moves = request.effort != "quick"
    correction = correct_gaussian(outcome.problem, gaussian, request.key, request.max_error, moves)
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
    found = _search(request, request.family, request.plan.tolerance, SOLVED, is_default=False)
    if isinstance(found, Refusal):
        raise FamilyError(found.why)
    found[0].family_reason = f"{request.family.name}, as asked for"
    return found[0]


def _search(
    request: Request, family: StructuredNormal, tolerance: float, enough: float, is_default: bool
) -> tuple[Outcome, GaussianFit] | Refusal:
    """The Gaussian within ``enough`` nats, judged to ``tolerance``, in groups where it has any."""
    problem = Problem(request.model, family, request.args, request.kwargs, density=request.density)
    space = problem.noise_space
    assert space is not None
    structure = space.structure
    if is_default and structure.size > (QUICK_IN_CELLS if structure.groups else QUICK):
        return Refusal("the model is too large for a first look")
    if problem.program.trained:
        own = problem.program.trained[0]
        raise NotHeldError(
            f"StructuredNormal does not train parameters, and the model has {own!r}.\n"
            "Write instead:\n    asvi.fit(model, y, family=asvi.families.Coupled())"
        )
    found = find_nearest_gaussian(problem, request.key, tolerance, enough)
    if found is not None:
        return _outcome(problem, found, request), found
    max_dense = request.density.blocks.max_dense_numbers
    if family.blocks and structure.groups and structure.size <= max_dense:
        # Groups depend on each other after all.
        whole = StructuredNormal(blocks=False)
        return _search(request, whole, tolerance, enough, is_default)
    return Refusal(NONE_FOUND)


def _outcome(problem: Problem, found: GaussianFit, request: Request) -> Outcome:
    """What was found, once NumPyro has said the same of it."""
    guide, density = problem.guide, found.density
    values = guide.params_of(found.mean, found.spread, density.centring, density.anchor)
    rounding = _recheck(problem, found, values)
    # Cast by NumPy, and put in place as they are: nothing to compile.
    params = jax.device_put({n: x.astype(problem.dtype) for n, x in values.items()})
    return Outcome(
        elbo=found.elbo,
        elbo_se=found.elbo_se,
        losses=-np.array(found.trail),
        params=params,
        converged=True,
        message="converged: natural gradients found the nearest Gaussian",
        num_steps=len(found.trail),
        seconds=time.monotonic() - request.started_at,
        run=SearchDetails(
            nearness=found.nearness,
            divergence=found.divergence,
            centring=float(density.centring.mean()),
            rounding=rounding,
        ),
        problem=problem,
        start=found.start,
    )


def _recheck(problem: Problem, found: GaussianFit, params: dict[str, Any]) -> float:
    """Nats of a draw that are lost to rounding; raises where NumPyro knows other densities."""
    some = slice(0, DRAWS)
    with precision(found.is_double):
        values = found.density.sites(found.draws[some])
    completion = Completion.of(problem)
    if completion is not None:
        values |= completion(values, np.random.default_rng(7))[0]
    values = {site.name: values[site.name] for site in problem.program.latent}
    example = {name: x[0] for name, x in values.items()}
    check = Recheck(problem, params, example, beside_guide=True)
    return check(values, params, found.log_ratios[some])
