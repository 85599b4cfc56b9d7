"""Takes draws of a posterior, however they were come by; gives them with what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from asvi.fitting.correction.checks import Checks
from asvi.fitting.correction.pool import Pool, joined_pools

__all__ = ["Correction", "Source"]


class Source(Protocol):
    """Where further draws of the posterior come from."""

    def further(self, count: int) -> Pool:
        """At least so many more."""
        ...


@dataclass
class Correction:
    """Draws of the posterior, and how they were come by."""

    rung: str  # "weights" or "moves"
    pool: Pool
    checks: Checks
    log_evidence: float
    log_evidence_se: float
    max_error: float
    """What was asked for; see :class:`~asvi.fitting.correction.settings.Settings`."""
    source: Source | None = field(default=None, repr=False)
    """None where it was read from a file."""

    def more(self, count: int) -> None:
        """Let the pool have at least this many draws, if there is a way to more."""
        missing = count - len(self.pool)
        if missing > 0 and self.source is not None:
            self.pool = joined_pools(self.pool, self.source.further(missing))

    def in_words(self) -> str:
        """How the draws were come by, in a line."""
        c = self.checks
        effective = f"{c.effective_draws:,.0f} effective draws"
        if c.effective_draws_of:
            effective += f" of {c.effective_draws_of!r}, the fewest"
        if self.rung == "weights":
            return f"draws of the Gaussian, weighted (k-hat {c.k_hat:.2f}): {effective}"
        ways = "1 temperature" if c.temperatures == 1 else f"{c.temperatures} temperatures"
        return f"{c.particles} particles, moved {c.moves} times after {ways}: {effective}"
