"""Takes measures of a guide's draws; gives a verdict, an advice, and the reasons, by rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asvi.fitting.diagnostics.report import Verdict, rounding_reason
from asvi.fitting.diagnostics.rules import Rule, first_that_fits, fitting_rules
from asvi.fitting.diagnostics.settings import VerdictSettings

__all__ = ["GuideMeasures", "verdict_of_guide"]

Rules = list[Rule["GuideMeasures"]]

BAD, USABLE = Verdict.NOT_TRUSTWORTHY, Verdict.USABLE


@dataclass(frozen=True)
class GuideMeasures:
    """Numbers on a guide's draws and on its run, and what they come to by the settings."""

    k_hat: float
    k_hat_by_site: dict[str, float]
    num_samples: int
    effective_draws: float
    mean_shift_sd: dict[str, float]
    elbo: float
    evidence_gain: float
    converged: bool
    skipped_share: float
    is_discrete: bool
    """Whether a latent site is."""
    last_gain: float
    """Nats that the last cycle of the run gained."""
    message: str
    rounding: float
    settings: VerdictSettings = VerdictSettings()

    @property
    def has_many(self) -> bool:
        """Whether draws enough are left by the weights."""
        return self.effective_draws >= self.settings.min_effective_draws

    @property
    def most_shifted(self) -> str:
        return max(self.mean_shift_sd, key=lambda name: self.mean_shift_sd[name])

    @property
    def largest_shift(self) -> float:
        return self.mean_shift_sd[self.most_shifted]

    @property
    def is_settled(self) -> bool:
        """Whether the run had nowhere left to go."""
        return self.converged or abs(self.last_gain) < self.settings.settled_gain_nat

    @property
    def is_equal(self) -> bool:
        """Whether weights are as good as equal: the tail of such weights says nothing."""
        return self.effective_draws > self.settings.equal_share * self.num_samples

    @property
    def is_even(self) -> bool:
        """Whether draws are right, however the run came by them."""
        settings = self.settings
        many = self.effective_draws > settings.even_share * self.num_samples
        return self.is_equal or (self.k_hat < settings.good_k_hat and many)

    @property
    def is_covered(self) -> bool:
        """Whether weights correct the draws."""
        settings = self.settings
        is_near = self.is_discrete and self.evidence_gain < settings.close_nat
        return (
            self.k_hat < settings.max_k_hat
            or (self.has_many and self.k_hat < settings.max_k_hat_of_many)
            or self.effective_draws > settings.many_share * self.num_samples
            or (self.has_many and is_near)
            or self.is_equal
        )


def verdict_of_guide(measures: GuideMeasures) -> tuple[Verdict, str, list[str]]:
    """Verdict, advice and reasons."""
    if not np.isfinite(measures.elbo):
        advice = "look at the data and the priors' supports; asvi.fit names the site"
        return Verdict.NOT_TRUSTWORTHY, advice, ["the ELBO is not finite"]
    settings, reasons = measures.settings, []
    if not measures.converged:
        last = f"; its last cycle gained {measures.last_gain:.2f} nat"
        reasons.append(measures.message + (last if np.isfinite(measures.last_gain) else ""))
    if measures.rounding > settings.max_rounding_nat:
        reason, advice = rounding_reason(measures.rounding)
        return Verdict.NOT_TRUSTWORTHY, advice, [*reasons, reason]
    groups = [[_rule_of_skipped(settings)], _rules_of_shift(settings), _rules_of_width(settings)]
    reasons += [rule.words(measures) for rule in fitting_rules(groups, measures)]
    rule = first_that_fits(_rules_of_verdict(settings), measures)
    if rule is None:
        return Verdict.GOOD, "use the draws as they are", reasons
    return rule.verdict, rule.words(measures), reasons


# ------------------------------------------------------------------------------------ reasons


def _rule_of_skipped(settings: VerdictSettings) -> Rule[GuideMeasures]:
    return Rule(
        lambda m: m.skipped_share,
        settings.max_skipped_share,
        lambda m: f"{m.skipped_share:.0%} of gradients were not finite",
    )


def _rules_of_shift(settings: VerdictSettings) -> Rules:
    """How far weights move a mean."""
    return [
        Rule(
            lambda m: np.isinf(m.largest_shift),
            0,
            lambda m: f"draws of {m.most_shifted!r} are infinite: its scale has run away",
        ),
        Rule(
            lambda m: m.largest_shift,
            settings.max_shift_sd,
            lambda m: (
                f"importance weights move the mean of {m.most_shifted!r} by "
                f"{m.largest_shift:.2f} sd"
            ),
        ),
    ]


def _rules_of_width(settings: VerdictSettings) -> Rules:
    """Whether the guide is too narrow, or too wide."""

    def misses_mass(m: GuideMeasures) -> str:
        site = max(m.k_hat_by_site, key=lambda name: m.k_hat_by_site[name])
        return (
            f"k-hat is {m.k_hat:.2f}, {m.effective_draws:.0f} of {m.num_samples} draws count: "
            f"the guide misses posterior mass, most around {site!r}"
        )

    return [
        Rule(
            lambda m: -np.inf if m.is_equal else m.k_hat,
            settings.good_k_hat,
            misses_mass,
        ),
        Rule(
            lambda m: m.evidence_gain,
            settings.wide_nat,
            lambda m: (
                f"importance weighting gains {m.evidence_gain:.1f} nat, "
                f"{m.effective_draws:.0f} of {m.num_samples} draws count: the guide is too wide"
            ),
        ),
    ]


# ------------------------------------------------------------------------------------ verdict


def _rules_of_verdict(settings: VerdictSettings) -> Rules:
    """The verdict and, in words, the advice; what fits none of them is good."""

    def resample(_: GuideMeasures) -> str:
        return "draw with result.guide.resample(rng_key, num_samples)"

    return [
        Rule(lambda m: not m.is_covered, 0, _advise, BAD),
        Rule(lambda m: m.largest_shift, settings.max_shift_sd, _advise, BAD),
        Rule(lambda m: not (m.is_settled or m.is_even), 0, _advise, BAD),
        Rule(lambda m: m.skipped_share, settings.max_skipped_share, _advise, BAD),
        Rule(
            lambda m: -np.inf if m.is_equal else m.k_hat,
            settings.good_k_hat,
            resample,
            USABLE,
        ),
        Rule(
            lambda m: -np.inf if m.is_equal else m.evidence_gain,
            settings.wide_nat,
            resample,
            USABLE,
        ),
    ]


def _advise(measures: GuideMeasures) -> str:
    """What to do about a posterior that is not to be trusted."""
    if not measures.is_settled:
        return "run longer: asvi.fit(..., training=asvi.Training(num_steps=100_000))"
    if measures.is_discrete:
        return "use a richer family, reparameterise the model, or sum its discrete sites out"
    return (
        "use a richer family, reparameterise the model, or run NUTS from result.posterior."
        "nuts_init()"
    )
