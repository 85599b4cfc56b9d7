"""Takes a Gaussian over a model's numbers; gives the posterior as a density over its noise.

The Gaussian makes numbers of standard normal noise, :math:`z = \\mu + A\\epsilon`. The better it
is, the nearer is

.. math:: \\log \\bar p(\\epsilon) = \\log p(z(\\epsilon), y) + \\log|\\det A|

to a unit normal, whatever scales and correlations the numbers have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from asvi.density.arrowhead import Arrowhead
from asvi.density.curvature import BlockDensity
from asvi.density.evaluators import SlopeEvaluator
from asvi.density.traced_density import VOLUME

__all__ = ["FORBIDDEN", "GaussianTarget", "GuideTarget", "Target"]

#: constant of the formula: log density where the model allows no value
FORBIDDEN = -1e300


class Target(Protocol):
    """A density over standard normal noise, and what noise makes of the model's sites."""

    @property
    def size(self) -> int:
        """Numbers of noise."""
        ...

    @property
    def work(self) -> float:
        """Numbers that an evaluation at one point makes."""
        ...

    def __call__(self, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log density (draws,) and slope (draws, numbers) at noise (draws, numbers)."""
        ...

    def values(self, noise: np.ndarray) -> np.ndarray:
        """Log density (draws,) alone."""
        ...

    def sites(self, noise: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Values of sites, (draws, ...) each, and log volume of the latent ones over the noise."""
        ...


@dataclass
class GaussianTarget:
    """Log density over the noise of N(mean, spread spreadᵀ), and its slope."""

    density: BlockDensity
    mean: np.ndarray  # (numbers,)
    spread: Arrowhead
    _volume: float = field(init=False)
    _back: Any = field(init=False)

    def __post_init__(self) -> None:
        self._volume = float(np.sum(np.log(self.spread.diagonal())))
        self._back = self.spread.transposed()

    @property
    def size(self) -> int:
        return len(self.mean)

    @property
    def work(self) -> float:
        return self.density.evaluator.work

    def _numbers(self, noise: np.ndarray) -> np.ndarray:
        return self.mean + (self.spread @ noise.T).T

    def __call__(self, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = self.density.slopes(self._numbers(noise))
        slope = (self._back @ slope.T).T
        fine = np.isfinite(value) & np.isfinite(slope).all(-1)
        value = np.where(fine, value + self._volume, FORBIDDEN)
        return value, np.where(fine[:, None], slope, 0.0)

    def values(self, noise: np.ndarray) -> np.ndarray:
        value = self.density.values(self._numbers(noise)) + self._volume
        return np.where(np.isfinite(value), value, FORBIDDEN)

    def sites(self, noise: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        sites = self.density.sites(self._numbers(noise))
        return sites, sites.pop(VOLUME) + self._volume


@dataclass
class GuideTarget:
    """Log density over the noise of a trained guide, and its slope."""

    density: SlopeEvaluator

    @property
    def size(self) -> int:
        return self.density.size

    @property
    def work(self) -> float:
        return self.density.work

    def __call__(self, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = self.density.slopes(noise, *self.density.uncentred)
        fine = np.isfinite(value) & np.isfinite(slope).all(-1)
        return np.where(fine, value, FORBIDDEN), np.where(fine[:, None], slope, 0.0)

    def values(self, noise: np.ndarray) -> np.ndarray:
        value = self.density.values(noise)
        return np.where(np.isfinite(value), value, FORBIDDEN)

    def sites(self, noise: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        sites = self.density.sites(noise, *self.density.uncentred)
        return sites, sites.pop(VOLUME)
