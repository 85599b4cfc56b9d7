"""Takes draws of a guide near the posterior; gives draws of the posterior, by their weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asvi.fitting.correction.checks import Checks, worst
from asvi.fitting.correction.pool import Pool, unit_density
from asvi.fitting.correction.result import Correction
from asvi.fitting.correction.settings import Settings
from asvi.fitting.correction.target import Target
from asvi.fitting.correction.weights import Weighted, drawn_by_weight, weighted
from asvi.psis import smooth

__all__ = ["by_weights"]

AT_ONCE = 512  # draws whose weights are had in one call


@dataclass
class Weighing:
    """Draws of the guide, taken by their weights."""

    target: Target
    noise: np.ndarray  # (draws, numbers)
    log_ratios: np.ndarray  # (draws,) of the target to the unit normal
    rng: np.random.Generator

    def weighted(self) -> Weighted:
        return weighted(self.target.sites(self.noise)[0], self.log_ratios)

    def extend(self, count: int) -> None:
        """Draw so many more."""
        fresh = self.rng.normal(size=(count, self.target.size))
        value, _ = self.target(fresh)
        constant = 0.5 * self.target.size * np.log(2 * np.pi)
        ratios = value + 0.5 * np.sum(fresh**2, -1) + constant
        self.noise = np.concatenate([self.noise, fresh])
        self.log_ratios = np.concatenate([self.log_ratios, ratios])

    def pool(self, log_weights: np.ndarray, count: int) -> Pool:
        """``count`` of the draws, by the weights (draws,) of the last ones."""
        begin = len(self.noise) - len(log_weights)
        index = begin + drawn_by_weight(log_weights, count, self.rng)
        self.rng.shuffle(index)
        sites, volume = self.target.sites(self.noise[index])
        log_q = unit_density(self.noise[index]) - volume
        log_p = self.log_ratios[index] + log_q
        return Pool({n: x[None] for n, x in sites.items()}, log_p[None], log_q[None])

    def further(self, count: int) -> Pool:
        begin = len(self.noise)
        for _ in range(0, count, AT_ONCE):
            self.extend(AT_ONCE)
        return self.pool(smooth(self.log_ratios[begin:]).log_weights, count)


def by_weights(
    target: Target,
    noise: np.ndarray,
    log_ratios: np.ndarray,
    settings: Settings,
    rng: np.random.Generator,
) -> Correction:
    """Draws by weights; there are as many draws as it takes, up to ``settings.pool`` of them.

    ``log_ratios`` (draws,) are those of the target to the unit normal at ``noise``.
    """
    weighing = Weighing(target, noise, log_ratios, rng)
    found = weighing.weighted()
    off = 2 * max(found.mean_error.max(), found.sd_error.max()) / settings.max_error
    wanted = 1.1 * len(noise) * off**2
    if found.k_hat <= settings.k_hat and len(noise) < wanted <= settings.most_weighted:
        for _ in range(len(noise), int(wanted), AT_ONCE):
            weighing.extend(AT_ONCE)
        found = weighing.weighted()
    pool = weighing.pool(found.log_weights, settings.pool)
    checks = _checks_of_weights(found)
    evidence = found.log_evidence, found.log_evidence_se
    return Correction("weights", pool, checks, *evidence, settings.max_error, weighing)


def _checks_of_weights(found: Weighted) -> Checks:
    mean, sd = worst(found.names, found.mean_error), worst(found.names, found.sd_error)
    return Checks(*mean, *sd, 1 / max(mean[0], 1e-9) ** 2, mean[1], k_hat=found.k_hat)
