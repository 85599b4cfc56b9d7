"""Takes nothing; gives numbers that families declare their parameters by, with their reasons."""

from __future__ import annotations

from dataclasses import dataclass

from asvi.families.protocol import Comparable

__all__ = ["ParameterSettings"]


@dataclass(frozen=True)
class ParameterSettings(Comparable):
    """What the parameters of all families of sites have in common."""

    max_prior_weight: float = 1.0 - 3e-4
    """Prior weights come no nearer to 1: a gate at the prior has no gradient."""
