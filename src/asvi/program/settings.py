"""Takes what was measured of costs; gives the limits that the stages of a program keep to."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AlignmentSettings",
    "CheckSettings",
    "CompilingSettings",
    "HoistingSettings",
    "ImproperSettings",
    "RecordingSettings",
    "WarningSettings",
]


@dataclass(frozen=True)
class HoistingSettings:
    """What of a scan's body is computed before the loop."""

    max_growth: float = 4
    """Times the numbers that a step is given: equations that are not random may leave the loop if
    their results have at most as many. More of them, for all steps together, want memory."""
    min_numbers: int = 64
    """Results of at most as many numbers may always leave it: they cost nothing to keep."""
    max_dense_ratio: float = 4
    """Steps of the scan over steps that are looked back on: up to here a single matrix for all
    steps is cheaper than as many windows, though most of it is zeros."""


@dataclass(frozen=True)
class CheckSettings:
    """When data are refused."""

    max_simplex_error: float = 1e-3
    """How far a sum of probabilities may be from 1: rounding, but no mistake, stays below."""


@dataclass(frozen=True)
class WarningSettings:
    """When a user is warned."""

    min_loop_sites: int = 16
    """Like sites in a Python loop from which compile time, which grows with each, is felt."""


@dataclass(frozen=True)
class AlignmentSettings:
    """How far values are followed through a program."""

    max_index_numbers: int = 100_000
    """Numbers of an array of indices that are written out to see whether they count 0, 1, ...: a
    larger plate is no longer known to keep its members apart when it is indexed."""


@dataclass(frozen=True)
class RecordingSettings:
    """How two recorded programs are told apart."""

    rule_orders: int = 2
    """Derivatives of a function with a rule of its own that tell it from others: slopes and
    curvature are all that is ever taken."""


@dataclass(frozen=True)
class ImproperSettings:
    """How numbers without a posterior are found."""

    draws: int = 4
    """Of the prior: at one of them a term may be flat by chance, at all of them it is not."""


@dataclass(frozen=True)
class CompilingSettings:
    """What is kept of what was compiled."""

    max_programs: int = 256
    """Compiled programs of all problems; each takes a megabyte or so, and a fit makes ten."""
