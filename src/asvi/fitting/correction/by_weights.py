"""Takes draws of a guide near the posterior; gives draws of the posterior, by their weights.

To draws whose weights have a tail come some of a wider t; see
:mod:`asvi.fitting.particles.base`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from asvi.fitting.correction.checks import Checks, NumberErrors, worst
from asvi.fitting.correction.pareto_smoothing import pareto_smooth
from asvi.fitting.correction.pool import Pool
from asvi.fitting.correction.result import Correction
from asvi.fitting.correction.settings import CorrectionSettings
from asvi.fitting.correction.weights import WeightedDraws, weigh
from asvi.fitting.particles.base import Base, heavy_noise, unit_density
from asvi.fitting.particles.resampling import resample
from asvi.fitting.particles.target import Target

__all__ = ["correct_by_weights"]


@dataclass
class Weighing:
    """Draws of the guide and of a wider t, taken by their weights."""

    target: Target
    base: Base
    noise: np.ndarray  # (draws, numbers)
    log_p: np.ndarray  # (draws,) the target's log density
    settings: CorrectionSettings
    rng: np.random.Generator
    is_wide: bool = False  # whether draws of the t are among them
    _sites: list[tuple[dict[str, np.ndarray], np.ndarray]] = field(default_factory=list)

    @property
    def log_ratios(self) -> np.ndarray:
        """Of the target to what the draws are of, (draws,)."""
        own = self.base.wide(self.noise) if self.is_wide else self.base(self.noise)[0]
        return self.log_p - own

    def sites(self, begin: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Values of sites at the draws from this one on, and their log volume; had once."""
        known = begin + sum(len(volume) for _, volume in self._sites)
        if known < len(self.noise):
            self._sites.append(self.target.sites(self.noise[known:]))
        if len(self._sites) > 1:
            parts = [values for values, _ in self._sites]
            values = {n: np.concatenate([x[n] for x in parts]) for n in parts[0]}
            self._sites = [(values, np.concatenate([volume for _, volume in self._sites]))]
        return self._sites[0]

    def weighted(self) -> WeightedDraws:
        return weigh(self.sites(0)[0], self.log_ratios, self.settings)

    def extend(self, count: int) -> None:
        """``count`` more of the guide, and of the t what goes with them."""
        self._add(self.rng.normal(size=(count, self.target.size)))
        if self.is_wide:
            self._add(heavy_noise(self.rng, count, self.target.size))

    def widen(self) -> None:
        """Add the draws of the t that go with those of the guide."""
        self._add(heavy_noise(self.rng, len(self.noise), self.target.size))
        self.is_wide = True

    def _add(self, own: np.ndarray) -> None:
        fresh = self.base.draws_from_noise(own, self.rng)
        self.noise = np.concatenate([self.noise, fresh])
        self.log_p = np.concatenate([self.log_p, self.target.values(fresh)])

    def pool(self, log_weights: np.ndarray, count: int) -> Pool:
        """``count`` of the draws, by the weights (draws,) of the last ones."""
        begin = len(self.noise) - len(log_weights)
        index = resample(log_weights, count, self.rng)
        self.rng.shuffle(index)
        sites, volume = self.sites(begin)
        self._sites.clear()  # of no further use
        log_q = (unit_density(self.noise[begin:]) - volume)[index]
        log_p = (self.log_p[begin:] - volume)[index]
        return Pool({n: x[index][None] for n, x in sites.items()}, log_p[None], log_q[None])

    def further(self, count: int) -> Pool:
        begin = len(self.noise)
        for _ in range(0, count, self.settings.draws_per_call):
            self.extend(self.settings.draws_per_call)
        smoothed = pareto_smooth(self.log_ratios[begin:], self.settings.smoothing)
        return self.pool(smoothed.log_weights, count)


def correct_by_weights(
    target: Target,
    base: Base,
    noise: np.ndarray,
    log_ratios: np.ndarray,
    settings: CorrectionSettings,
    rng: np.random.Generator,
) -> Correction:
    """Draws by weights; there are as many draws as it takes, up to ``settings.pool`` of them.

    ``log_ratios`` (draws,) are those of the target to the base at ``noise``.
    """
    weighing = Weighing(target, base, noise, log_ratios + base(noise)[0], settings, rng)
    if pareto_smooth(log_ratios, settings.smoothing).k_hat > settings.wide_k_hat:
        weighing.widen()
    weighted = weighing.weighted()
    error = max(weighted.mean_error.max(), weighted.sd_error.max()) / settings.max_error
    least, wanted = (
        1.1 * len(weighing.noise) * (z * error) ** 2 for z in (2, settings.wanted_errors)
    )
    wanted = min(wanted, settings.max_weighted_draws)
    if weighted.k_hat <= settings.max_k_hat and least <= settings.max_weighted_draws:
        while len(weighing.noise) < wanted:
            weighing.extend(settings.draws_per_call)
        weighted = weighing.weighted()
    return Correction(
        "weights",
        weighing.pool(weighted.log_weights, settings.pool),
        _checks_of_weights(weighted),
        weighted.log_evidence,
        weighted.log_evidence_se,
        settings.max_error,
        weighing,
        modes=base.modes,
        further_draws=settings.further_draws,
        by_number=NumberErrors(weighted.names, weighted.mean_error, weighted.sd_error),
    )


def _checks_of_weights(weighted: WeightedDraws) -> Checks:
    mean = worst(weighted.names, weighted.mean_error)
    sd = worst(weighted.names, weighted.sd_error)
    return Checks(*mean, *sd, 1 / max(mean[0], 1e-9) ** 2, mean[1], k_hat=weighted.k_hat)
