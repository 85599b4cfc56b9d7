"""Takes numbers on the quality of draws; gives a Report: them, and a verdict in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from asvi.fitting.correction.checks import Checks
from asvi.program import markup

__all__ = ["Report", "Verdict", "rounding_reason"]


class Verdict(StrEnum):
    """Whether a posterior can be trusted, in a word or two; it compares equal to its text.

    >>> Verdict.GOOD == "good", Verdict("not trustworthy").name
    (True, 'NOT_TRUSTWORTHY')
    """

    GOOD = "good"
    """Use the draws as they are."""
    USABLE = "usable"
    """Use them with the errors that the report names."""
    NOT_TRUSTWORTHY = "not trustworthy"
    """Do not use them; the report says what to try."""


@dataclass(frozen=True, repr=False)
class Report:
    r"""How good a fitted posterior is.

    - ``k_hat``: shape of the tail of the importance ratios p(x, y)/q(x) over the joint draw; below
      0.7 the guide covers the posterior well enough to be corrected by resampling.
    - ``k_hat_by_site``: the same from the terms of one site and its children alone: where to look.
    - ``effective_draws``: of ``num_samples``, after weighting.
    - ``mean_shift_sd``: per site, how far the weighted mean lies from the guide's mean, in
      posterior standard deviations, averaged over the site's numbers; ``shift_error`` what chance
      alone would give.
    - ``evidence_gain``: nats by which the importance-weighted bound exceeds the ELBO.
    - ``dependence``: nats of posterior dependence between latent numbers (Gaussian estimate): what
      mean field would lose at least. None above 300 numbers.
    - ``skipped_share``: share of gradients that were not finite.

    >>> import asvi
    >>> task = asvi.tasks.get("eight-schools")
    >>> report = asvi.fit(task.model, *task.args).diagnose()
    >>> report.ok, report.advice
    (True, 'use the draws as they are')
    """

    verdict: Verdict
    advice: str
    k_hat: float
    k_hat_by_site: dict[str, float]
    num_samples: int
    effective_draws: float
    mean_shift_sd: dict[str, float]
    shift_error: float
    elbo: float
    elbo_se: float
    evidence_gain: float
    dependence: float | None
    converged: bool
    skipped_share: float
    reasons: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())
    """What else is to be known of the result, whatever the verdict."""
    r_hat: float | None = None
    """Nested R̂, the worst number's, of draws that were moved."""
    checks: Checks | None = None
    """Errors of corrected draws, each with the number where it is worst."""
    how: str = ""
    log_evidence: float | None = None
    log_evidence_se: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the posterior can be used: it is good or usable."""
        return self.verdict != Verdict.NOT_TRUSTWORTHY

    def __str__(self) -> str:
        if self.checks is not None:
            return "\n".join(self._lines_of_draws(self.checks))
        worst = sorted(self.k_hat_by_site.items(), key=lambda kv: -kv[1])[:3]
        lines = [
            f"verdict: {self.verdict}",
            *(f"  - {reason}" for reason in self.reasons),
            *(f"note: {note}" for note in self.notes),
            f"next: {self.advice}",
            f"k-hat {self.k_hat:.2f}, {self.effective_draws:.0f} effective of {self.num_samples} "
            "draws; by site: " + ", ".join(f"{name} {value:.2f}" for name, value in worst),
            f"ELBO {self.elbo:.3f} ± {self.elbo_se:.3f}; importance weighting gains "
            f"{self.evidence_gain:.3f} nat",
        ]
        if self.dependence is not None:
            lines.append(f"mean field would lose at least {self.dependence:.2f} nat of dependence")
        lines.append(
            f"converged: {'yes' if self.converged else 'no'}; "
            f"gradients skipped: {self.skipped_share:.2%}"
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        effective = f"{self.effective_draws:,.0f} effective of {self.num_samples:,} draws"
        return f"<asvi.Report: {self.verdict}, {effective}>"

    def _repr_html_(self) -> str:
        numbers = [
            line
            for line in str(self).splitlines()
            if line and not line.startswith(("verdict: ", "  - ", "note: ", "next: "))
        ]
        return markup.box(
            f"<p>{markup.badge(self.verdict)} {markup.escape(self.advice)}</p>",
            markup.item_list(self.reasons) if self.reasons else "",
            *(markup.paragraph(f"note: {note}") for note in self.notes),
            markup.folded("Numbers", markup.item_list(numbers)),
        )

    def _lines_of_draws(self, checks: Checks) -> list[str]:
        lines = [
            f"verdict: {self.verdict}",
            *(f"  - {reason}" for reason in self.reasons),
            *(f"note: {note}" for note in self.notes),
            f"next: {self.advice}",
            self.how,
            f"means are known within {2 * checks.mean_error:.2g} sd ({checks.mean_error_of}), sds "
            f"within {2 * checks.sd_error:.1%} ({checks.sd_error_of}): two standard errors",
        ]
        if self.r_hat is not None:
            lines.append(
                f"nested R-hat {self.r_hat:.3f} ({checks.r_hat_of}); {checks.walls:.1%} of moves "
                f"met a wall; acceptance in the tails {checks.tail_acceptance:.2f}"
            )
        lines.append(
            f"log evidence {self.log_evidence:.3f} ± {self.log_evidence_se:.3f}; "
            f"ELBO of the guide {self.elbo:.3f} ± {self.elbo_se:.3f}, k-hat of its weights "
            f"{self.k_hat:.2f}"
        )
        return lines


def rounding_reason(nats: float) -> tuple[str, str]:
    """What to say where single precision does not hold a model's numbers, and the advice."""
    return (
        f"single precision loses up to {nats:.2g} nat of a draw's density: numbers far "
        "from 0, or a sum of many",
        'jax.config.update("jax_enable_x64", True) before the fit, or centre the data',
    )
