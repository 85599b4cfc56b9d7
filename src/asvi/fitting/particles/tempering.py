"""Takes particles from near a target; leads them to it by temperatures, islands apart.

Sequential Monte Carlo (Del Moral, Doucet and Jasra 2006): particles weighted by
:math:`\\bar p^{\\Delta\\beta}` stand for the next temperature, are drawn again by their weights,
and moved. The next temperature is as far away as leaves
``min_effective_share`` of the particles effective.
Particles are drawn again within islands, which know nothing of each other: whether islands agree
says whether particles have forgotten where they came from, and how well the evidence is known. An
island of few particles is a little off towards where it came from. Islands weighted by the evidence
that each has found are not (Vergé et al. 2015).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from asvi.fitting.particles.evidence import bennett_by_islands
from asvi.fitting.particles.moves import Kernel, Particles
from asvi.fitting.particles.resampling import resample
from asvi.fitting.particles.settings import TemperingSettings

__all__ = ["Path", "effective_share", "lead"]


class Step(NamedTuple):
    """Log ratios of a temperature to the one before it, at draws of either, (islands, draws)."""

    before: np.ndarray
    after: np.ndarray


@dataclass
class Path:
    """Particles that stand at the target, and what was met on the way."""

    particles: Particles
    temperatures: list[float] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    last: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Log ratios of the target to the last temperature before it, there."""
    width: float = 1.0
    """The last step of the temperature."""
    log_weights: np.ndarray = field(default_factory=lambda: np.zeros(1))
    """Log evidence by each island alone, (islands,)."""

    def log_evidence(self, arrived: np.ndarray, effective: float) -> tuple[float, float]:
        """Log evidence and its standard error.

        ``arrived`` (islands, draws) are log ratios of the target to the last temperature at draws
        of the target, ``effective`` of which are worth an independent one.
        """
        islands = len(arrived)
        steps = [bennett_by_islands(*step) for step in self.steps]
        steps.append(bennett_by_islands(self.last, arrived, effective))
        by_island = np.sum([each for _, _, each in steps], 0)
        error = float(by_island.std(ddof=1) / np.sqrt(islands))
        # Islands are few, and what draws say of themselves knows nothing of how they mix.
        alone = float(np.sqrt(sum(own**2 for _, own, _ in steps)))
        return float(sum(gain for gain, _, _ in steps)), max(error, alone)


def lead(
    kernel: Kernel,
    particles: Particles,
    islands: int,
    settings: TemperingSettings = TemperingSettings(),
    others: np.ndarray | None = None,
) -> Path:
    """The way from the kernel's base to the target; the last temperature's moves are left to do.

    ``others`` are log ratios of the target to the base at further draws of the base: they tell of
    the evidence, too.
    """
    others = np.zeros(0) if others is None else others
    more = others[: len(others) // islands * islands].reshape(islands, -1)
    path, beta = Path(particles, log_weights=np.zeros(islands)), 0.0
    while beta < 1:
        ratio = path.particles.log_ratio
        # Of a way that is too long.
        is_last = len(path.temperatures) == settings.max_temperatures - 1
        width = 1 - beta if is_last else _next_width(ratio, 1 - beta, settings)
        beta = 1.0 if beta + width > 1 - 1e-9 else beta + width
        path.temperatures.append(beta)
        gain = width * ratio.reshape(islands, -1)
        before = np.concatenate([gain, width * more], 1)
        more = more[:, :0]
        path.log_weights = path.log_weights + logsumexp(gain, 1) - np.log(gain.shape[1])
        again = _resample_islands(width * ratio, islands, kernel.rng)
        path.particles = path.particles.take(again)
        if beta == 1.0:
            path.last, path.width = before, width
            break
        kernel.learn_metric(path.particles)
        for _ in range(settings.moves):
            path.particles = kernel(path.particles, beta).particles
        after = width * path.particles.log_ratio.reshape(islands, -1)
        path.steps.append(Step(before, after))
    return path


def effective_share(log_weights: np.ndarray) -> float:
    """Share of draws that count, by their weights."""
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights @ weights) / len(weights))


def _next_width(ratio: np.ndarray, most: float, settings: TemperingSettings) -> float:
    """How far the next temperature is."""
    share = settings.min_effective_share
    if effective_share(most * ratio) >= share:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective_share(middle * ratio) > share else (low, middle)
    return low


def _resample_islands(
    log_weights: np.ndarray, islands: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices of particles, drawn again within each island."""
    apart = log_weights.reshape(islands, -1)
    first = np.arange(islands)[:, None] * apart.shape[1]
    return np.ravel(first + resample(apart, apart.shape[1], rng))
