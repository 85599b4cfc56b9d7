"""Takes a density and a Gaussian near it; gives the density over numbers that are centred.

A number whose scale other numbers set is written as centred as the data know it,
:math:`c = 1 - \\mathrm{Var}(z)` given these others: Papaspiliopoulos, Roberts and Sköld's weight
for a Gaussian hierarchy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from asvi.density.arrowhead import Arrowhead
from asvi.density.curvature import BlockDensity
from asvi.density.edge_factor import factor_on_edges
from asvi.fitting.gaussian.ascent import Where, antithetic_draws
from asvi.fitting.gaussian.newton import find_scale_numbers
from asvi.fitting.gaussian.settings import SearchSettings

__all__ = ["center_numbers"]


def center_numbers(
    density: BlockDensity, at: Where, edge_mask: Arrowhead, settings: SearchSettings
) -> BlockDensity | None:
    """The same density over numbers as centred as the data ask for; None where it makes none."""
    mean, precision = at
    spread = factor_on_edges(precision, edge_mask)
    noise = antithetic_draws(np.random.default_rng(4), settings.first_draws, len(mean))
    points = np.concatenate([mean[None], mean + (spread @ noise.T).T])
    _, scales, _ = density.prior_moments(points)
    follows = np.std(np.log(scales), axis=0) > 1e-6
    if not follows.any():
        return None
    sets_scales = find_scale_numbers(density, density.structure)
    variance = precision.variances(~sets_scales)
    centring = np.where(follows & ~sets_scales, np.clip(1 - variance, 0.0, 1.0), 0.0)
    if centring.max() < settings.min_centring:
        return None
    return replace(density, centring=centring, anchor=np.log(scales[0]))
