"""Takes an outcome; gives a Report on its draws, or, where they were not corrected, its guide's."""

from __future__ import annotations

from asvi.fitting.diagnostics.of_draws import judge_draws
from asvi.fitting.diagnostics.of_guide import judge_guide
from asvi.fitting.diagnostics.report import Report
from asvi.fitting.diagnostics.settings import VerdictSettings
from asvi.fitting.guide_draws import GuideDraws
from asvi.fitting.outcome import Outcome

__all__ = ["judge"]


def judge(outcome: Outcome, settings: VerdictSettings = VerdictSettings()) -> Report:
    """How good the posterior is, in numbers and in plain words."""
    if outcome.correction is not None:
        return judge_draws(outcome.correction, outcome, settings)
    outcome.problem.arguments.require_data("diagnose()")
    return judge_guide(GuideDraws(outcome.problem, outcome.params), outcome, settings=settings)
