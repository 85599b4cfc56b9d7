"""Takes draws of a posterior, however they were made; gives them with what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from asvi.density.curvature import precision
from asvi.fitting.correction.checks import Checks, NumberErrors
from asvi.fitting.correction.pool import Pool, join_pools
from asvi.fitting.correction.settings import CorrectionSettings

__all__ = ["Correction", "InPrecision", "Source"]


class Source(Protocol):
    """Where further draws of the posterior come from."""

    def further(self, count: int) -> Pool:
        """At least so many more."""
        ...


@dataclass
class Correction:
    """Draws of the posterior, and how they were made."""

    rung: str  # "weights" or "moves"
    pool: Pool
    checks: Checks
    log_evidence: float
    log_evidence_se: float
    max_error: float
    """What was asked for; see :class:`~asvi.fitting.correction.settings.CorrectionSettings`."""
    source: Source | None = field(default=None, repr=False)
    """None where it was read from a file."""
    interrupted: bool = False
    modes: int = 1
    """Gaussians that the draws come from: one for each mode of the posterior that was met."""
    further_draws: int = CorrectionSettings.further_draws
    """Draws that are made in one go, where there are not enough."""
    by_number: NumberErrors | None = field(default=None, repr=False)
    """None where it was read from a file of an earlier version."""
    _further: list[Pool] = field(default_factory=list, init=False, repr=False)

    def at_least(self, count: int) -> Pool:
        """A pool of this many draws, if there is a way to as many.

        Further draws are made in equal parts: what a call gets does not hang on calls before it.
        """
        pool, used = self.pool, 0
        while len(pool) < count and self.source is not None:
            if used == len(self._further):
                self._further.append(self.source.further(self.further_draws))
            pool = join_pools(pool, self._further[used])
            used += 1
        return pool

    def in_words(self) -> str:
        """How the draws were made, in a line."""
        c = self.checks
        effective = f"{c.effective_draws:,.0f} effective draws"
        if c.effective_draws_of:
            effective += f" of {c.effective_draws_of!r}, the fewest"
        at = f", at {self.modes} modes" if self.modes > 1 else ""
        if self.rung == "weights":
            return f"draws of the guide{at}, weighted (k-hat {c.k_hat:.2f}): {effective}"
        ways = "1 temperature" if c.temperatures == 1 else f"{c.temperatures} temperatures"
        return f"{c.particles} particles, moved {c.moves} times after {ways}{at}: {effective}"


@dataclass
class InPrecision:
    """Further draws, in the precision of the first."""

    make: Callable[[int], Pool]
    double: bool

    def further(self, count: int) -> Any:
        with precision(self.double):
            return self.make(count)
