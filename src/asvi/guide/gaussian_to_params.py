"""Takes a Gaussian over the noise; gives parameters of the guide that hold it."""

from __future__ import annotations

from typing import Any

import numpy as np

from asvi.density.arrowhead import Arrowhead
from asvi.density.edge_factor import factor_on_edges
from asvi.density.gaussian import Gaussian
from asvi.density.noise_space import NoiseSpace
from asvi.distributions.standardize import is_direct
from asvi.families.gaussian_share import GaussianShare
from asvi.guide.edges import Edges, build_edge_mask
from asvi.guide.settings import GaussianToParamsSettings
from asvi.program.site import Site

__all__ = ["params_from_gaussian"]


def params_from_gaussian(
    guide: Any,
    space: NoiseSpace,
    edges: Edges,
    gaussian: Gaussian,
    params: dict[str, Any],
    steps: dict[str, Any],
    slack: float,
    settings: GaussianToParamsSettings = GaussianToParamsSettings(),
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters, and the steps to take in each, by name; from what they were before.

    Edges hold the Gaussian's factor; what a site does with its share is its family's affair.
    ``slack`` says how far, in standard deviations, a number may be moved because prior weights are
    not quite 1.
    """
    program = space.bound.program
    sites = [program.with_parents(site) for site in program.latent]
    shares = _Shares(space, gaussian, build_edge_mask(space, edges), sites, slack, settings)
    params = {k: np.array(v, float) for k, v in params.items()}
    steps = {k: np.array(v, float) for k, v in steps.items()}
    for site in sites:
        declared = guide.declared(site)
        names = {name: guide.parameter_name(site, name) for name in declared}
        reach = np.ones(shares.where[site.address].shape)
        for name, parameter in declared.items():
            if parameter.edge_kind is not None:
                weights = shares.weights(site, edges[site.address, parameter.edge_kind])
                params[names[name]] = weights
                reach = reach + np.sum(weights**2, -1)
        own = {name: steps[full] for name, full in names.items()}
        held = guide.family_of(site).from_gaussian(shares.of(site, reach), declared, own)
        for name, value in held.values.items():
            params[names[name]] = np.broadcast_to(value, params[names[name]].shape)
        steps |= {names[name]: step for name, step in held.steps.items()}
    return params, steps


class _Shares:
    """What each site has of a Gaussian."""

    def __init__(
        self,
        space: NoiseSpace,
        gaussian: Gaussian,
        edge_mask: Arrowhead,
        sites: list[Site],
        slack: float,
        settings: GaussianToParamsSettings,
    ):
        self.gaussian, self.slack, self.settings = gaussian, slack, settings
        self.direct = {site.address for site in sites if is_direct(site)}
        self.located = {s.address for s in sites if s.address in self.direct and not s.parents}
        spread = factor_on_edges(gaussian.precision, edge_mask)
        self.where = {a: np.asarray(i) for a, i in space.numbers().items()}
        self.own = spread.diagonal()
        # What scales a number's noise: its site's scale, or a stretch of the noise itself.
        scaled, moved = np.zeros(space.size, bool), np.zeros(space.size, bool)
        for address in self.direct:
            scaled[self.where[address]] = True
        for site in sites:
            moved[self.where[site.address]] = site.address not in self.located
        scales, self.stretch = np.where(scaled, self.own, 1.0), np.where(scaled, 1.0, self.own)
        # Where sites with a location of their own lie, and the offset of the noise of the others.
        offset = spread.solve(gaussian.mean, moved)
        self.middle = gaussian.mean - (spread @ offset[:, None])[:, 0]
        self.offset = offset * self.stretch
        self.weighed = spread.scaled(1 / scales, 1 / self.stretch)

    def weights(self, site: Site, rows: np.ndarray) -> np.ndarray:
        """Entries of the factor behind a site's edges to the numbers ``rows``; -1 is nobody."""
        mine = np.broadcast_to(self.where[site.address][..., None], rows.shape)
        return np.where(rows >= 0, self.weighed.entries(mine, np.maximum(rows, 0)), 0.0)

    def of(self, site: Site, reach: np.ndarray) -> GaussianShare:
        index, gaussian = self.where[site.address], self.gaussian
        moves = np.broadcast_to(np.maximum(gaussian.loc_sd, 1e-12), self.own.shape)
        return GaussianShare(
            loc=gaussian.loc[index],
            scale=gaussian.scale[index],
            own=self.own[index],
            middle=self.middle[index],
            offset=self.offset[index],
            stretch=self.stretch[index],
            slack=self.slack / moves[index],
            reach=reach,
            free_prior_weight=self.settings.free_prior_weight,
            bound_prior_weight=self.settings.bound_prior_weight,
            is_located=site.address in self.located,
            is_direct=site.address in self.direct,
        )
