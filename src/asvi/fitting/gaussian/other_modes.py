"""Takes a Gaussian near a posterior; gives Gaussians at modes that it does not hold.

A climb ends at one mode, and nothing there tells of another. *Scouts* do: a few particles led from
the prior to the posterior by temperatures. One that ends where the posterior is far above the
Gaussian has met something else. A climb from there, if it does not lead back, is another mode; and
so on with the scouts that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asvi.density.arrowhead import Arrowhead
from asvi.density.curvature import BlockDensity
from asvi.density.edge_factor import factor_on_edges
from asvi.fitting.gaussian.ascent import Where, ascend_fixed_draws, log_ratios
from asvi.fitting.gaussian.newton import Mode, find_mode
from asvi.fitting.particles.base import Mixture, unit_density
from asvi.fitting.particles.moves import Kernel, Particles
from asvi.fitting.particles.target import FORBIDDEN
from asvi.fitting.particles.tempering import lead

__all__ = ["Peak", "base_of", "other_modes"]

LARGEST = 600  # latent numbers up to which scouts are sent
SCOUTS, ISLANDS, SHARE = 32, 8, 0.5  # islands are small, lest one find rule all
STEPS, MOVES = 8, 4  # of a move at the most; moves at the posterior
BEYOND = 8.0  # nats by which the posterior is above a Gaussian that does not hold this part of it
NEGLIGIBLE = 10.0  # nats below the highest mode
MOST = 12  # modes beside the first
FRUITLESS = 4  # climbs in a row that led back, after which no more are made
CLIMB, DRAWS = 20, 32  # steps, and draws that they are made on


@dataclass(frozen=True)
class Peak:
    """A Gaussian at a mode, over numbers, and its ELBO."""

    elbo: float
    mean: np.ndarray
    spread: Arrowhead
    precision: Arrowhead

    @classmethod
    def at(cls, elbo: float, where: Where, edge_mask: Arrowhead) -> Peak:
        return cls(elbo, where[0], factor_on_edges(where[1], edge_mask), where[1])

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """At points (points, numbers)."""
        away = points - self.mean
        square = np.sum(away * (self.precision @ away.T).T, -1)
        return -0.5 * square + unit_density(np.zeros(len(self.mean))) - self.log_volume

    @property
    def log_volume(self) -> float:
        return float(np.sum(np.log(np.abs(self.spread.diagonal()))))


@dataclass
class _Density:
    """The posterior over numbers, to lead scouts to."""

    density: BlockDensity

    @property
    def size(self) -> int:
        return self.density.structure.size

    @property
    def work(self) -> float:
        return self.density.evaluator.work

    def __call__(self, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = self.density.slopes(noise)
        fine = np.isfinite(value) & np.isfinite(slope).all(-1)
        return np.where(fine, value, FORBIDDEN), np.where(fine[:, None], slope, 0.0)

    def values(self, noise: np.ndarray) -> np.ndarray:
        return self(noise)[0]

    def sites(self, noise: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return {"numbers": noise}, np.zeros(len(noise))


def other_modes(
    density: BlockDensity, first: Peak, values: np.ndarray, edge_mask: Arrowhead, noise: np.ndarray
) -> list[Peak]:
    """Gaussians at other modes, the highest first.

    ``values`` are log densities at draws of the first one; ``noise`` (draws, numbers) is that of
    the draws that climbs are made on.
    """
    if density.structure.size > LARGEST:
        return []
    found = [first]
    scouts = _scouts(density)
    # Who is nowhere near the posterior has not arrived, and tells nothing.
    lowest = float(np.min(values)) - BEYOND - density.structure.size
    left = scouts.noise[scouts.value > lowest]
    value = scouts.value[scouts.value > lowest]
    fruitless, back = 0, []
    while len(found) <= MOST and fruitless < FRUITLESS:
        apart = _beyond(value, left, found)
        left, value = left[apart], value[apart]
        if not len(left):
            break
        begin = int(np.argmax(value))
        peak = _climb(density, left[begin], edge_mask, noise, found, back)
        if peak is not None:
            found.append(peak)
            fruitless = 0
        else:
            fruitless += 1
        left, value = np.delete(left, begin, 0), np.delete(value, begin)
    best = max(peak.elbo for peak in found)
    others = [peak for peak in found[1:] if peak.elbo > best - NEGLIGIBLE]
    return sorted(others, key=lambda peak: -peak.elbo)


def _scouts(density: BlockDensity) -> Particles:
    """Particles of the posterior, led there from the prior."""
    rng = np.random.default_rng(5)
    kernel = Kernel.for_size(_Density(density), rng)
    kernel.most_steps, kernel.second_tries = STEPS, False
    half = rng.normal(size=(SCOUTS // 2, density.structure.size))
    begin = kernel.at(np.concatenate([half, -half]))
    found = lead(kernel, begin, ISLANDS, SHARE, moves=1).particles
    for _ in range(MOVES):
        found = kernel(found, 1.0).particles
    return found


def _beyond(value: np.ndarray, points: np.ndarray, peaks: Sequence[Peak]) -> np.ndarray:
    """Points at which the posterior is far above all of these Gaussians."""
    held = np.max([peak.elbo + peak.log_density(points) for peak in peaks], 0)
    return value > held + BEYOND


def _climb(
    density: BlockDensity,
    begin: np.ndarray,
    edge_mask: Arrowhead,
    noise: np.ndarray,
    known: Sequence[Peak],
    back: list[Mode],
) -> Peak | None:
    """The Gaussian that natural gradients lead to from there; None where it is known.

    ``back`` are modes from which they led back.
    """

    def is_new(mean: np.ndarray) -> bool:
        return bool(_beyond(density.values(mean[None]), mean[None], known)[0])

    mode = find_mode(density, begin, np.zeros(len(begin), bool))
    if mode is None or any(_is_there(mode.mean, other) for other in back):
        return None
    if is_new(mode.mean):
        rng = np.random.default_rng(6)
        start = mode.mean, mode.precision
        end = ascend_fixed_draws(
            density, start, edge_mask, CLIMB, DRAWS, rng, sets=1, settled=0.05, shortest=0.05
        )
        if end is not None and is_new(end[0]):
            elbo = float(np.mean(log_ratios(density, end, edge_mask, noise)))
            if np.isfinite(elbo):
                return Peak.at(elbo, end, edge_mask)
    back.append(mode)
    return None


def _is_there(point: np.ndarray, mode: Mode) -> bool:
    """Whether a point is within a nat of a mode."""
    away = point - mode.mean
    return bool(0.5 * away @ (mode.precision @ away[:, None])[:, 0] < 1.0)


def base_of(mean: np.ndarray, spread: Arrowhead, elbo: float, others: Sequence[Peak]) -> Mixture:
    """The Gaussian and those at other modes, over the noise of the first."""
    scale = spread.to_dense()
    means = [np.zeros(len(mean))]
    factors: list[np.ndarray] = [np.eye(len(mean))]
    for peak in others:
        means.append(np.linalg.solve(scale, peak.mean - mean))
        own = np.linalg.solve(scale, peak.spread.to_dense())
        factors.append(np.linalg.cholesky(own @ own.T))
    elbos = np.array([elbo, *(peak.elbo for peak in others)])
    return Mixture(elbos - np.logaddexp.reduce(elbos), np.stack(means), np.stack(factors))
