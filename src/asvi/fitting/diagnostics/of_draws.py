"""Takes corrected draws; gives a Report: how far they can be trusted, in numbers and in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from asvi.fitting.correction.checks import Checks
from asvi.fitting.correction.result import Correction
from asvi.fitting.diagnostics.report import ROUNDED, Report, Verdict, rounding_reason
from asvi.fitting.particles.tempering import LONGEST
from asvi.program.improper import describe_improper

__all__ = ["judge_draws"]

MIXED, UNMIXED = (
    1.01,
    1.05,
)  # nested R-hat up to which draws are good, and from which on they are bad
SETTLED = 4.0  # standard errors of a drift that may be chance
MANY_WALLS, ALL_WALLS = 0.03, 0.15  # shares of moves
K_HAT, WORST_K_HAT = 0.5, 0.7
FEWEST = 100.0  # effective draws


def judge_draws(correction: Correction, outcome: Any) -> Report:
    """Judge draws by what was met while they were made."""
    checks, error = correction.checks, correction.max_error
    bad = [why for is_so, why in _bad(checks) if is_so]
    doubts = [why for is_so, why in _doubtful(checks, error) if is_so]
    rounding = outcome.run.rounding
    if not outcome.converged:
        doubts = [outcome.message, *doubts]
    reasons, verdict = [*bad, *doubts], Verdict.GOOD
    if bad or doubts:
        verdict = Verdict.NOT_TRUSTWORTHY if bad else Verdict.USABLE
    advice = {
        Verdict.GOOD: "use the draws as they are",
        Verdict.USABLE: "use the draws with the errors named here, or go on: result.refine()",
        Verdict.NOT_TRUSTWORTHY: "go on: result.refine(), or run NUTS from "
        "result.posterior.nuts_init()",
    }[verdict]
    if rounding > ROUNDED:
        reason, advice = rounding_reason(rounding)
        reasons, verdict = [reason, *reasons], Verdict.NOT_TRUSTWORTHY
    return Report(
        verdict=verdict,
        advice=advice,
        k_hat=checks.k_hat,
        k_hat_by_site={},
        num_samples=len(correction.pool),
        effective_draws=checks.effective_draws,
        mean_shift_sd={},
        shift_error=0.0,
        elbo=outcome.elbo,
        elbo_se=outcome.elbo_se,
        evidence_gain=correction.log_evidence - outcome.elbo,
        dependence=None,
        converged=outcome.converged,
        skipped_share=0.0,
        reasons=tuple(reasons),
        notes=describe_improper(outcome.problem.improper),
        r_hat=checks.r_hat,
        checks=checks,
        how=correction.in_words(),
        log_evidence=correction.log_evidence,
        log_evidence_se=correction.log_evidence_se,
    )


def _bad(c: Checks) -> list[tuple[bool, str]]:
    """What draws cannot be used with, and the words for it."""
    return [
        (
            c.temperatures >= LONGEST,
            f"the way from the Gaussian to the posterior is {c.temperatures} temperatures long",
        ),
        (
            c.r_hat is not None and c.r_hat > UNMIXED,
            f"islands of particles do not agree on {c.r_hat_of!r}: R-hat is {c.r_hat or 0:.2f}",
        ),
        (
            c.walls > ALL_WALLS,
            f"{c.walls:.0%} of moves met a wall: the posterior has parts that moves do not reach",
        ),
        (
            c.moves == 0 and c.k_hat > WORST_K_HAT,
            f"k-hat is {c.k_hat:.2f}: a few draws have most of the weight",
        ),
        (
            c.effective_draws < FEWEST,
            f"{c.effective_draws:.0f} effective draws of {c.effective_draws_of!r}",
        ),
    ]


def _doubtful(c: Checks, max_error: float) -> list[tuple[bool, str]]:
    """What was asked for and is not met, or what makes it uncertain."""
    return [
        (
            2 * c.mean_error > max_error,
            f"the mean of {c.mean_error_of!r} is known within {2 * c.mean_error:.2g} sd",
        ),
        (
            2 * c.sd_error > max_error,
            f"the sd of {c.sd_error_of!r} is known within {min(2 * c.sd_error, 9.99):.0%}: it "
            "hangs on rare draws. Its quantiles are known better",
        ),
        (
            2 * c.rank_error > max_error >= 2 * max(c.mean_error, c.sd_error),
            f"quantiles of {c.rank_error_of!r} are known within {2 * c.rank_error:.2g} sd",
        ),
        (
            c.r_hat is not None and MIXED < c.r_hat <= UNMIXED,
            f"R-hat of {c.r_hat_of!r} is {c.r_hat or 0:.3f}",
        ),
        (c.drift > SETTLED, f"{c.drift_of!r} still drifts: by {c.drift:.1f} standard errors"),
        (
            MANY_WALLS < c.walls <= ALL_WALLS,
            f"{c.walls:.1%} of moves met a wall: tails behind it may be missed",
        ),
        (
            c.moves == 0 and K_HAT < c.k_hat <= WORST_K_HAT,
            f"k-hat is {c.k_hat:.2f}: tails of the weights are heavy",
        ),
        (not np.isfinite(c.mean_error + c.sd_error), "some numbers have no finite moments"),
    ]
