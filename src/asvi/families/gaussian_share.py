"""Takes a Gaussian over all noise; gives a site's share of it, for the site's family to hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["GaussianShare", "Held"]


@dataclass(frozen=True)
class GaussianShare:
    """What a site has of a Gaussian, number by number, in the shape of its noise.

    The noise of the Gaussian makes numbers :math:`u = m + A\\epsilon`.
    """

    loc: np.ndarray
    """Location of the prior at the Gaussian's mean."""
    scale: np.ndarray
    """Its scale there."""
    own: np.ndarray
    """Diagonal of A."""
    middle: np.ndarray
    """Mean, in the prior's noise, of sites that have a location of their own."""
    offset: np.ndarray
    """Offset of the noise of the others."""
    stretch: np.ndarray
    """What the noise itself is stretched by, where the site has no scale to say so."""
    slack: np.ndarray
    """How far, in units of the site's scale, a location may be drawn back to the prior's."""
    reach: np.ndarray
    """How much more than its own noise the site's scale multiplies."""
    free_prior_weight: float
    """Prior weight of a site that is to hold a location and scale of its own."""
    bound_prior_weight: float
    """Prior weight, at the least, of a site that is to keep its prior's location."""
    is_located: bool
    """Whether location and scale are the site's own, and no parent moves them."""
    is_direct: bool
    """Whether a location and a scale are what its distribution has."""


@dataclass(frozen=True)
class Held:
    """Parameters that hold a share, and steps of a size to match, by the family's own names."""

    values: dict[str, np.ndarray]
    steps: dict[str, np.ndarray]
