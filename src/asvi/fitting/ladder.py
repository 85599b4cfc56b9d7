"""Takes a request; climbs rung by rung, from where the last one ended, until it is enough.

A rung is a function of the request and of what was found before; it gives an
:class:`~asvi.fitting.outcome.Outcome`, or a :class:`~asvi.fitting.outcome.Refusal` where it is not
for the model. A new one is a file in :mod:`asvi.fitting.rungs` and a line here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

from asvi.fitting.details import is_within
from asvi.fitting.diagnostics.judge import judge
from asvi.fitting.diagnostics.report import Verdict
from asvi.fitting.outcome import Outcome, Refusal
from asvi.fitting.request import Request
from asvi.fitting.rungs import gaussian, trained

__all__ = ["climb"]

LOG = logging.getLogger("asvi")

Rung = Callable[[Request, Outcome | None], Outcome | Refusal]

#: Second order first, gradient steps last. Sparse Gaussians of large fields will stand between.
RUNGS: tuple[Rung, ...] = (gaussian.climb, trained.climb)


def climb(request: Request) -> Outcome:
    """The best of what was found on the way to enough."""
    best: Outcome | None = None
    for rung in RUNGS:
        if best is not None and _may_end(best, request):
            break
        name, began_at = rung.__module__.rpartition(".")[2], time.monotonic()
        LOG.info("%s: begins%s", name, "" if best is None else ", for more is wanted")
        outcome = rung(request, best)
        LOG.debug("%s: took %.2f s", name, time.monotonic() - began_at)
        if isinstance(outcome, Refusal):
            LOG.info("%s: not for this model: %s", name, outcome.why)
        else:
            LOG.info(
                "%s: ELBO %.3f; %s; %s", name, outcome.elbo, outcome.message, _way_of_draws(outcome)
            )
            best = outcome if best is None else _better(best, outcome, request)
    assert best is not None  # the last rung refuses nothing
    return best


def _way_of_draws(outcome: Outcome) -> str:
    """How its draws were come by, in words."""
    return "no draws corrected" if outcome.correction is None else outcome.correction.in_words()


def _may_end(outcome: Outcome, request: Request) -> bool:
    """Whether it is what was asked for, or the user wants no more."""
    if outcome.was_stopped or request.effort == "quick":
        return True
    if request.effort == "thorough":
        return is_within(outcome.run, request.plan.tolerance)
    return judge(outcome, request.settings.verdict).ok


def _better(first: Outcome, then: Outcome, request: Request) -> Outcome:
    """The better one: by its verdict, or by the guide's ELBO."""
    keeps_first = first.elbo - then.elbo > 2 * np.hypot(first.elbo_se, then.elbo_se)
    if request.effort != "thorough" and then.correction is not None:
        verdicts = (judge(x, request.settings.verdict).verdict for x in (first, then))
        one, other = (list(Verdict).index(verdict) for verdict in verdicts)
        keeps_first = one < other if one != other else keeps_first
    if not keeps_first:
        return then
    first.family_reason = f"StructuredNormal: {then.problem.family.name} was no better"
    if then.was_stopped:
        first.message, first.converged = then.message, False
    return first
