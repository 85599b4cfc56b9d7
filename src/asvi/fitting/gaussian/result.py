"""Takes a density and the Gaussian found for it; gives them with how far apart they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asvi.density.arrowhead import Arrowhead
from asvi.density.curvature import BlockDensity
from asvi.fitting.gaussian.ascent import Where
from asvi.fitting.gaussian.other_modes import Peak
from asvi.fitting.gaussian.settings import SearchSettings

__all__ = ["GaussianFit"]


@dataclass
class GaussianFit:
    """A Gaussian over numbers that are centred as it says, and how far it is from the posterior."""

    density: BlockDensity
    mean: np.ndarray
    spread: Arrowhead
    noise: np.ndarray  # (draws, numbers), standard normal
    draws: np.ndarray  # (draws, numbers) made of it
    log_ratios: np.ndarray  # (draws,) of the model's density to its own
    trail: list[float]  # ELBOs on the way
    others: list[Peak]  # Gaussians at other modes
    start: Where  # mean and precision over the noise itself, before numbers were centred
    min_effective_share: float = SearchSettings.min_effective_share

    @property
    def is_double(self) -> bool:
        """Whether the density was evaluated with more digits than a user has."""
        return self.density.evaluator.dtype == np.float64

    @property
    def elbo(self) -> float:
        return float(self.log_ratios.mean())

    @property
    def elbo_se(self) -> float:
        return float(self.log_ratios.std(ddof=1) / np.sqrt(len(self.log_ratios)))

    @property
    def distance(self) -> float:
        """Nats, and what moments say in nats, between it and the posterior, with their error.

        A mean that is off by m standard deviations, or a standard deviation that is off by m times
        itself, costs about m² nat: a little more is asked for here, that both be off by at most
        half of the root. Draws are weighted to see it.
        """
        weights = np.exp(self.log_ratios - np.logaddexp.reduce(self.log_ratios))
        mean, middle = weights @ self.draws, self.draws.mean(0)
        sd = self.draws.std(0)
        shift = np.abs(mean - middle) / sd
        widened = np.abs(np.sqrt(weights @ (self.draws - mean) ** 2) / sd - 1)
        off = float(max(shift.max(), widened.max()))
        return max(self.divergence + self.elbo_se, 4 * off**2)

    @property
    def divergence(self) -> float:
        """KL(q‖p) by the importance weights; infinite where they cannot tell."""
        count = len(self.log_ratios)
        total = np.logaddexp.reduce(self.log_ratios)
        effective = np.exp(2 * total - np.logaddexp.reduce(2 * self.log_ratios))
        enough = effective > self.min_effective_share * count
        return float(total - np.log(count)) - self.elbo if enough else np.inf
