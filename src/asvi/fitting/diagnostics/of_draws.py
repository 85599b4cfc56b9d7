"""Takes corrected draws; gives a Report: how far they can be trusted, in numbers and in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from asvi.fitting.correction.checks import Checks
from asvi.fitting.correction.result import Correction
from asvi.fitting.diagnostics.report import Report, Verdict, rounding_reason
from asvi.fitting.diagnostics.rules import Rule, fitting_rules
from asvi.fitting.diagnostics.settings import VerdictSettings
from asvi.program.improper import describe_improper

__all__ = ["judge_draws", "rules_of_draws"]

ADVICE = {
    Verdict.GOOD: "use the draws as they are",
    Verdict.USABLE: "use the draws with the errors named here, or go on: result.refine()",
    Verdict.NOT_TRUSTWORTHY: "go on: result.refine(), or run NUTS from "
    "result.posterior.nuts_init()",
}


def judge_draws(
    correction: Correction, outcome: Any, settings: VerdictSettings = VerdictSettings()
) -> Report:
    """Judge draws by what was met while they were made."""
    checks = correction.checks
    rules = fitting_rules(rules_of_draws(settings, correction.max_error), checks)
    bad = [rule.words(checks) for rule in rules if rule.verdict == Verdict.NOT_TRUSTWORTHY]
    doubts = [rule.words(checks) for rule in rules if rule.verdict == Verdict.USABLE]
    if not outcome.converged:
        doubts = [outcome.message, *doubts]
    reasons, verdict = (
        [*bad, *doubts],
        Verdict.NOT_TRUSTWORTHY if bad else Verdict.USABLE if doubts else Verdict.GOOD,
    )
    advice, rounding = ADVICE[verdict], outcome.run.rounding
    if rounding > settings.max_rounding_nat:
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


def rules_of_draws(settings: VerdictSettings, max_error: float) -> list[list[Rule[Checks]]]:
    """What is said of draws that were asked for to ``max_error``: errors first, then mixing."""
    return [*_rules_of_errors(max_error), *_rules_of_mixing(settings)]


def _rules_of_errors(max_error: float) -> list[list[Rule[Checks]]]:
    """What was asked for and is not met."""
    return [
        [
            Rule(
                lambda c: 2 * c.mean_error,
                max_error,
                lambda c: (
                    f"the mean of {c.mean_error_of!r} is known within {2 * c.mean_error:.2g} sd"
                ),
                Verdict.USABLE,
            )
        ],
        [
            Rule(
                lambda c: 2 * c.sd_error,
                max_error,
                lambda c: (
                    f"the sd of {c.sd_error_of!r} is known within "
                    f"{min(2 * c.sd_error, 9.99):.0%}: it hangs on rare draws. Its quantiles are "
                    "known better"
                ),
                Verdict.USABLE,
            )
        ],
        [
            Rule(
                lambda c: 2 * c.rank_error if c.within(max_error) else -np.inf,
                max_error,
                lambda c: (
                    f"quantiles of {c.rank_error_of!r} are known within {2 * c.rank_error:.2g} sd"
                ),
                Verdict.USABLE,
            )
        ],
    ]


def _rules_of_mixing(settings: VerdictSettings) -> list[list[Rule[Checks]]]:
    """What draws cannot be used with, or what makes them uncertain: the worse first."""
    return [
        [
            Rule(
                lambda c: c.temperatures >= settings.max_temperatures,
                0,
                lambda c: (
                    "the way from the Gaussian to the posterior is "
                    f"{c.temperatures} temperatures long"
                ),
                Verdict.NOT_TRUSTWORTHY,
            )
        ],
        [
            Rule(
                lambda c: c.r_hat or 0.0,
                settings.max_r_hat,
                lambda c: (
                    f"islands of particles do not agree on {c.r_hat_of!r}: R-hat is "
                    f"{c.r_hat or 0:.2f}"
                ),
                Verdict.NOT_TRUSTWORTHY,
            ),
            Rule(
                lambda c: c.r_hat or 0.0,
                settings.good_r_hat,
                lambda c: f"R-hat of {c.r_hat_of!r} is {c.r_hat or 0:.3f}",
                Verdict.USABLE,
            ),
        ],
        [
            Rule(
                lambda c: c.drift,
                settings.max_drift,
                lambda c: f"{c.drift_of!r} still drifts: by {c.drift:.1f} standard errors",
                Verdict.USABLE,
            )
        ],
        *_rules_of_reach(settings),
        [
            Rule(
                lambda c: not np.isfinite(c.mean_error + c.sd_error),
                0,
                lambda c: "some numbers have no finite moments",
                Verdict.USABLE,
            )
        ],
    ]


def _rules_of_reach(settings: VerdictSettings) -> list[list[Rule[Checks]]]:
    """How much of the posterior was reached, and by how many."""
    return [
        [
            Rule(
                lambda c: c.walls,
                settings.max_wall_share,
                lambda c: (
                    f"{c.walls:.0%} of moves met a wall: the posterior has parts that moves "
                    "do not reach"
                ),
                Verdict.NOT_TRUSTWORTHY,
            ),
            Rule(
                lambda c: c.walls,
                settings.good_wall_share,
                lambda c: f"{c.walls:.1%} of moves met a wall: tails behind it may be missed",
                Verdict.USABLE,
            ),
        ],
        [
            Rule(
                _k_hat_of_weights,
                settings.max_k_hat,
                lambda c: f"k-hat is {c.k_hat:.2f}: a few draws have most of the weight",
                Verdict.NOT_TRUSTWORTHY,
            ),
            Rule(
                _k_hat_of_weights,
                settings.good_k_hat,
                lambda c: f"k-hat is {c.k_hat:.2f}: tails of the weights are heavy",
                Verdict.USABLE,
            ),
        ],
        [
            Rule(
                lambda c: -c.effective_draws,
                -settings.min_effective_draws,
                lambda c: f"{c.effective_draws:.0f} effective draws of {c.effective_draws_of!r}",
                Verdict.NOT_TRUSTWORTHY,
            )
        ],
    ]


def _k_hat_of_weights(checks: Checks) -> float:
    """Of draws that were moved, weights say nothing."""
    return -np.inf if checks.moves else checks.k_hat
