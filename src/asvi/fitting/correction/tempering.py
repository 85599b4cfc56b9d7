"""Takes particles of a unit normal; leads them to the target by temperatures, islands apart.

Sequential Monte Carlo (Del Moral, Doucet and Jasra 2006): particles weighted by
:math:`\\bar p^{\\Delta\\beta}` stand for the next temperature, are drawn again by their weights,
and moved. The next temperature is as far away as leaves ``ESS`` of the particles effective.
Particles are drawn again within islands, which know nothing of each other: whether islands agree
says whether particles have forgotten where they came from, and how well the evidence is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from asvi.fitting.correction.evidence import bennett_by_islands
from asvi.fitting.correction.moves import Kernel, Particles
from asvi.fitting.correction.weights import drawn_by_weight

__all__ = ["LONGEST", "Path", "effective_share", "lead"]

ESS = 0.6  # share of particles that stay effective from one temperature to the next
MOVES = 3  # at each temperature but the last
LONGEST = 60  # temperatures


@dataclass
class Path:
    """Particles that stand at the target, and what was met on the way."""

    particles: Particles
    islands: int
    temperatures: list[float] = field(default_factory=list)
    log_evidence: float = 0.0
    by_island: np.ndarray = field(init=False)
    """The log evidence of each island alone."""
    last: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Log ratios of the target to the last temperature before it, there."""
    width: float = 1.0
    """The last step of the temperature."""

    def __post_init__(self) -> None:
        self.by_island = np.zeros(self.islands)

    def count(self, before: np.ndarray, after: np.ndarray, effective: float | None = None) -> None:
        """Add a step to the log evidence, from log ratios of its ends at draws of either."""
        before, after = (x.reshape(self.islands, -1) for x in (before, after))
        gain, each = bennett_by_islands(before, after, effective)
        self.log_evidence += gain
        self.by_island += each

    @property
    def log_evidence_se(self) -> float:
        return float(self.by_island.std(ddof=1) / np.sqrt(self.islands))


def lead(kernel: Kernel, particles: Particles, islands: int) -> Path:
    """The way from a unit normal to the target; the last temperature's moves are left to do."""
    path, beta = Path(particles, islands), 0.0
    while beta < 1:
        ratio = path.particles.log_ratio
        is_last = len(path.temperatures) == LONGEST - 1  # of a way that is too long
        width = 1 - beta if is_last else _width(ratio, 1 - beta)
        beta = 1.0 if beta + width > 1 - 1e-9 else beta + width
        path.temperatures.append(beta)
        path.particles = path.particles.taken(_drawn_again(width * ratio, islands, kernel.rng))
        if beta == 1.0:
            path.last, path.width = width * ratio, width
            break
        kernel.learn_metric(path.particles)
        for _ in range(MOVES):
            path.particles = kernel(path.particles, beta).particles
        path.count(width * ratio, width * path.particles.log_ratio)
    return path


def effective_share(log_weights: np.ndarray) -> float:
    """Share of draws that count, by their weights."""
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / np.sum(weights**2) / len(weights))


def _width(ratio: np.ndarray, most: float) -> float:
    """How far the next temperature is."""
    if effective_share(most * ratio) >= ESS:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective_share(middle * ratio) > ESS else (low, middle)
    return low


def _drawn_again(log_weights: np.ndarray, islands: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of particles, drawn again within each island."""
    count = len(log_weights) // islands
    found = [drawn_by_weight(own, count, rng) for own in log_weights.reshape(islands, count)]
    return np.concatenate([k * count + index for k, index in enumerate(found)])
