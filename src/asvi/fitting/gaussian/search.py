"""Takes a problem; gives the Gaussian nearest to its posterior, by natural gradients.

1. Newton's path to a mode, from a few points, and the prior's centre are starts
   (:mod:`asvi.fitting.gaussian.newton`). Natural gradients with few draws lead from the best mode,
   and from the centre; the better end is kept. Where the mode's Gaussian is the posterior, it is
   the end.
2. Numbers are centred (:mod:`asvi.fitting.gaussian.centering`). Natural gradients go on from there;
   it is kept where it is better on other draws.
3. The winner climbs on with more draws, and is judged by fresh ones.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import jax
import numpy as np

from asvi.density.arrowhead import Arrowhead
from asvi.density.block_structure import BlockStructure
from asvi.density.curvature import (
    BlockDensity,
    BlocksMeet,
    block_density,
    precision,
)
from asvi.density.edge_factor import factor_on_edges
from asvi.density.refusal import Refusal
from asvi.fitting.gaussian.ascent import (
    Where,
    antithetic_draws,
    ascend_fixed_draws,
    ascend_fresh_draws,
    log_ratios,
)
from asvi.fitting.gaussian.centering import center_numbers
from asvi.fitting.gaussian.flat_directions import (
    FlatSites,
    find_flat_sites,
    refuse_flat_directions,
)
from asvi.fitting.gaussian.newton import find_better_end, is_near
from asvi.fitting.gaussian.other_modes import Peak, find_other_modes
from asvi.fitting.gaussian.result import GaussianFit
from asvi.fitting.gaussian.settings import SearchSettings
from asvi.fitting.particles.base import unit_density
from asvi.fitting.problem import Problem

__all__ = ["find_nearest_gaussian"]


def find_nearest_gaussian(
    problem: Problem,
    key: jax.Array | None,
    tolerance: float,
    settings: SearchSettings = SearchSettings(),
) -> GaussianFit | None:
    """The Gaussian nearest to the posterior, judged to ``tolerance``; None where none is found."""
    space = problem.noise_space
    assert space is not None
    edge_mask = _all_edges(space.structure)
    # Of NumPy: a split of the key would be compiled, and so would the making of one.
    seed = np.zeros(2, np.uint32) if key is None else np.asarray(jax.random.key_data(key)).ravel()
    rng = np.random.default_rng(seed)
    for double in (True, False):
        density = block_density(space, {}, double)  # compiled while data are checked
        if isinstance(density, Refusal):  # what is wrong with the data is said first
            problem.finish_check(lambda: False)
            continue
        problem.finish_check(density.is_fine)
        search = _Search(edge_mask, settings, tolerance, find_flat_sites(space))
        with precision(double), suppress(BlocksMeet):
            return search.run(density, rng)
        return None
    return None


class _Search:
    """One search, in the order of its steps; ``trail`` has the ELBO of each natural gradient."""

    def __init__(
        self,
        edge_mask: Arrowhead,
        settings: SearchSettings,
        tolerance: float,
        flat_sites: FlatSites,
    ):
        self.edge_mask, self.settings = edge_mask, settings
        self.tolerance, self.flat_sites = tolerance, flat_sites
        self.trail: list[float] = []

    def run(self, density: BlockDensity, rng: np.random.Generator) -> GaussianFit | None:
        """The Gaussian, or None; evaluated on draws of ``rng``."""
        noise = self._comparison_noise(density)
        first = self._climb_from_starts(density, noise)
        if first is None:
            return None
        elbo, start = first
        at = start
        if is_near(log_ratios(density, at, self.edge_mask, noise), self.settings.enough_nat):
            self.trail.append(elbo)
        else:
            density, at, elbo = self._climb_centred(density, at, elbo, noise)
            at = self._climb_on(density, at, elbo, noise)
        refuse_flat_directions(density, at, self.edge_mask, noise, self.flat_sites, self.settings)
        at, others = self._choose_mode(density, at, noise)
        return self._evaluate(density, at, others, start, rng)

    # ---------------------------------------------------------------------------------- climbs

    def _climb_from_starts(
        self, density: BlockDensity, noise: np.ndarray
    ) -> tuple[float, Where] | None:
        """ELBO, mean and precision of the better end of two ways, without centring."""

        def climb(at: Where) -> tuple[float, Where] | None:
            end = self._climb_roughly(density, at, self._first_draws(density))
            return None if end is None else (self._compare(density, end, noise), end)

        settings = self.settings
        return find_better_end(
            density, self.edge_mask, climb, noise, settings.enough_nat, settings.newton
        )

    def _climb_centred(
        self, density: BlockDensity, at: Where, elbo: float, noise: np.ndarray
    ) -> tuple[BlockDensity, Where, float]:
        """On from there over numbers that are centred, if that is better."""
        centred = center_numbers(density, at, self.edge_mask, self.settings)
        if centred is not None:
            end = self._climb_roughly(centred, at, self._first_draws(density))
            if end is not None:
                reached = self._compare(centred, end, noise)
                if reached > elbo:
                    return centred, end, reached
        return density, at, elbo

    def _climb_roughly(self, density: BlockDensity, at: Where, draws: int) -> Where | None:
        rng, ascent = np.random.default_rng(1), self.settings.first_ascent
        return ascend_fixed_draws(density, at, self.edge_mask, draws, rng, ascent, self.trail)

    def _climb_on(self, density: BlockDensity, at: Where, elbo: float, noise: np.ndarray) -> Where:
        """On from there by more draws."""
        settings, rng = self.settings, np.random.default_rng(3)
        last = min(settings.last_draws, density.averaged_draws)
        draws = max(self._first_draws(density), last)
        twice = 2 if density.evaluator.is_cheap else 1
        ascent = replace(settings.last_ascent, draw_sets=twice * settings.last_ascent.draw_sets)
        end = ascend_fixed_draws(density, at, self.edge_mask, draws, rng, ascent, self.trail)
        if end is None:
            return at
        steps = twice * settings.fresh_steps
        # On, and then a mean over what is left.
        lengths = [settings.fresh_length] * (steps // 2)
        lengths += [1 / (k + 3) for k in range(steps - steps // 2)]
        end = ascend_fresh_draws(density, end, self.edge_mask, lengths, draws, rng)
        return end if self._compare(density, end, noise) > elbo else at

    def _choose_mode(
        self, density: BlockDensity, at: Where, noise: np.ndarray
    ) -> tuple[Where, list[Peak]]:
        """The Gaussian at the highest mode, and those at others."""
        ratios = log_ratios(density, at, self.edge_mask, noise)
        first = Peak.at(float(np.mean(ratios)), at, self.edge_mask)
        values = ratios + unit_density(noise) - first.log_volume
        others = find_other_modes(
            density, first, values, self.edge_mask, noise, self.settings.modes
        )
        if others and others[0].elbo > first.elbo + self.settings.min_mode_gain:
            first, others = others[0], [first, *others[1:]]
        return (first.mean, first.precision), others

    # ------------------------------------------------------------------------------- the judge

    def _evaluate(
        self,
        density: BlockDensity,
        at: Where,
        others: list[Peak],
        start: Where,
        rng: np.random.Generator,
    ) -> GaussianFit | None:
        """The Gaussian with draws enough to judge it by; None where one of them is impossible."""
        settings, size = self.settings, density.structure.size
        spread = factor_on_edges(at[1], self.edge_mask)
        noise, ratios = np.empty((0, size)), np.empty(0)
        affordable = settings.max_evaluation_numbers // size
        draws = int(np.clip(affordable, settings.min_evaluation_draws, settings.evaluation_draws))
        fit = None
        for _ in range(settings.evaluation_rounds):
            fresh = rng.normal(size=(draws, size))
            noise = np.concatenate([noise, fresh])
            ratios = np.concatenate([ratios, log_ratios(density, at, self.edge_mask, fresh)])
            if not np.isfinite(ratios).all():
                return None
            fit = GaussianFit(
                density,
                at[0],
                spread,
                noise,
                at[0] + (spread @ noise.T).T,
                ratios,
                self.trail,
                others,
                start,
                settings.min_effective_share,
            )
            is_far = fit.divergence - 2 * fit.elbo_se > self.tolerance
            # More draws tell what may be near from what is not.
            wanted = max(self.tolerance, settings.rough_error_nat) if is_far else self.tolerance / 4
            if fit.elbo_se <= wanted:
                break
        return fit

    def _compare(self, density: BlockDensity, at: Where, noise: np.ndarray) -> float:
        """The ELBO on draws that led nobody there."""
        return float(np.mean(log_ratios(density, at, self.edge_mask, noise)))

    def _comparison_noise(self, density: BlockDensity) -> np.ndarray:
        """Noise on which ends are compared, (draws, numbers)."""
        draws = min(self.settings.comparison_draws, 2 * density.averaged_draws)
        return antithetic_draws(np.random.default_rng(2), draws, density.structure.size)

    def _first_draws(self, density: BlockDensity) -> int:
        """Draws of the first climbs."""
        return density.evaluator.draws_of_a_call(self.settings.first_draws)


def _all_edges(structure: BlockStructure) -> Arrowhead:
    """Nothing but the order of numbers: there are no edges to go without."""
    ones = Arrowhead.of_entries(structure, lambda i, j: np.ones(np.broadcast(i, j).shape, bool))
    return replace(
        ones,
        core=np.tril(ones.core),
        right=tuple(np.zeros_like(x) for x in ones.right),
        blocks=tuple(np.tril(x) for x in ones.blocks),
    )
