"""Takes a density and a Gaussian found for it; raises where no posterior bends some direction.

There the density has no curvature for the Gaussian's precision to settle at: precision is made of
nothing but the steps that led there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg

from asvi.density.arrowhead import Arrowhead
from asvi.density.curvature import BlockDensity
from asvi.density.edge_factor import factor_on_edges
from asvi.density.noise_space import NoiseSpace
from asvi.density.noncentering import split_numbers
from asvi.fitting.gaussian.ascent import Where
from asvi.fitting.gaussian.settings import SearchSettings
from asvi.program.improper import no_posterior
from asvi.program.site import Site
from asvi.program.statements.flat_prior import is_flat

__all__ = ["FlatSites", "find_flat_sites", "refuse_flat_directions"]

FlatSites = Sequence[tuple[Site, np.ndarray]]


def find_flat_sites(space: NoiseSpace) -> FlatSites:
    """Sites whose prior is flat, and the places of their numbers."""
    places = split_numbers(np.arange(space.size), space.shapes)
    return [
        (site, np.ravel(places[site.address]))
        for site in space.sites.values()
        if is_flat(site.distribution)
    ]


def refuse_flat_directions(
    density: BlockDensity,
    at: Where,
    edge_mask: Arrowhead,
    noise: np.ndarray,
    flat_sites: FlatSites,
    settings: SearchSettings,
) -> None:
    """Raise where the data leave a direction flat that no prior bends, either."""
    if not flat_sites or density.structure.groups:
        return
    some = noise[: density.evaluator.batch_size]
    derivatives = density(at[0] + (factor_on_edges(at[1], edge_mask) @ some.T).T)
    if derivatives is None:
        return
    unit = np.sqrt(np.diag(at[1].core))
    precision, curvature = (
        x / np.outer(unit, unit) for x in (at[1].core, -derivatives.hessian.core)
    )
    values, ways = np.linalg.eigh(precision)
    if values[0] > settings.min_relative_precision:
        values, ways = scipy.linalg.eigh(curvature, precision)
    # Else there is no telling what the steps were made of.
    way = ways[:, 0] ** 2
    site, places = max(flat_sites, key=lambda pair: way[pair[1]].max())
    if values[0] < settings.min_curvature and way[places].sum() > 0.5 * way.sum():
        raise no_posterior(site)
