"""Takes nothing; gives how a Gaussian is written into a guide's parameters."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GaussianToParamsSettings"]


@dataclass(frozen=True)
class GaussianToParamsSettings:
    """How near prior weights come to their ends, where a guide is to hold a Gaussian."""

    free_prior_weight: float = 0.02
    """Of a site with a location and scale of its own: nearly, and not quite, mean field."""
    bound_prior_weight: float = 0.99
    """Of a site that keeps its prior's location: any nearer to 1, and its gradient vanishes."""
