"""Takes what was measured of costs and of training; gives the limits of what distributions do."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DomainSettings", "WarpedNoiseSettings"]


@dataclass(frozen=True)
class DomainSettings:
    """Which values of a parameter training can begin at."""

    max_unconstrained: float = 30.0
    """Of a value in unconstrained space, where it is e^30 or 1 - e^-30 already: nothing is learned
    from there."""


@dataclass(frozen=True)
class WarpedNoiseSettings:
    """How noise that was moved is found back."""

    max_unrolled: int = 4
    """Numbers of a triangle that is solved line by line: a library call takes longer."""
