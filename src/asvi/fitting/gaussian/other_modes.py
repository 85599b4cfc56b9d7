"""Takes a Gaussian near a posterior; gives Gaussians at other modes.

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
from asvi.fitting.gaussian.settings import ModeSettings
from asvi.fitting.particles.base import Mixture, unit_density
from asvi.fitting.particles.moves import Kernel, Particles
from asvi.fitting.particles.target import FORBIDDEN
from asvi.fitting.particles.tempering import lead

__all__ = ["Peak", "find_other_modes", "mixture_of_modes"]


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
class _ScoutTarget:
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


def find_other_modes(
    density: BlockDensity,
    first: Peak,
    values: np.ndarray,
    edge_mask: Arrowhead,
    noise: np.ndarray,
    settings: ModeSettings = ModeSettings(),
) -> list[Peak]:
    """Gaussians at other modes, the highest first.

    ``values`` are log densities at draws of the first one; ``noise`` (draws, numbers) is that of
    the draws that ends of climbs are measured by.
    """
    size = density.structure.size
    if size > settings.max_numbers:
        return []
    peaks = [first]
    scouts = _lead_scouts(density, settings)
    # Who is nowhere near the posterior has not arrived, and says nothing.
    lowest = float(np.min(values)) - settings.min_excess_nat - size
    points = scouts.noise[scouts.value > lowest]
    value = scouts.value[scouts.value > lowest]
    failures, known_modes = 0, []
    while len(peaks) <= settings.max_modes and failures < settings.max_failures:
        is_apart = _is_beyond(value, points, peaks, settings)
        points, value = points[is_apart], value[is_apart]
        if not len(points):
            break
        begin = int(np.argmax(value))
        peak = _climb(density, points[begin], edge_mask, noise, peaks, known_modes, settings)
        if peak is not None:
            peaks.append(peak)
            failures = 0
        else:
            failures += 1
        points, value = np.delete(points, begin, 0), np.delete(value, begin)
    lowest = max(peak.elbo for peak in peaks) - settings.max_deficit_nat
    others = [peak for peak in peaks[1:] if peak.elbo > lowest]
    return sorted(others, key=lambda peak: -peak.elbo)


def _lead_scouts(density: BlockDensity, settings: ModeSettings) -> Particles:
    """Particles of the posterior, led there from the prior."""
    rng = np.random.default_rng(5)
    kernel = Kernel.for_size(_ScoutTarget(density), rng, settings=settings.moves)
    half = rng.normal(size=(settings.scouts // 2, density.structure.size))
    begin = kernel.at(np.concatenate([half, -half]))
    scouts = lead(kernel, begin, settings.islands, settings.tempering).particles
    for _ in range(settings.last_moves):
        scouts = kernel(scouts, 1.0).particles
    return scouts


def _is_beyond(
    value: np.ndarray, points: np.ndarray, peaks: Sequence[Peak], settings: ModeSettings
) -> np.ndarray:
    """At which points the posterior is far above all of these Gaussians, (points,)."""
    highest = np.max([peak.elbo + peak.log_density(points) for peak in peaks], 0)
    return value > highest + settings.min_excess_nat


def _climb(
    density: BlockDensity,
    begin: np.ndarray,
    edge_mask: Arrowhead,
    noise: np.ndarray,
    peaks: Sequence[Peak],
    known_modes: list[Mode],
    settings: ModeSettings,
) -> Peak | None:
    """The Gaussian that natural gradients lead to from there; None where it is one of ``peaks``.

    ``known_modes`` are those from which they led back; a further one is added.
    """

    def is_new(mean: np.ndarray) -> bool:
        value = density.values(mean[None])
        return bool(_is_beyond(value, mean[None], peaks, settings)[0])

    mode = find_mode(density, begin, np.zeros(len(begin), bool), settings.newton)
    if mode is None or any(_is_at(mode.mean, other, settings) for other in known_modes):
        return None
    if is_new(mode.mean):
        rng = np.random.default_rng(6)
        start = mode.mean, mode.precision
        end = ascend_fixed_draws(density, start, edge_mask, settings.draws, rng, settings.ascent)
        if end is not None and is_new(end[0]):
            elbo = float(np.mean(log_ratios(density, end, edge_mask, noise)))
            if np.isfinite(elbo):
                return Peak.at(elbo, end, edge_mask)
    known_modes.append(mode)
    return None


def _is_at(point: np.ndarray, mode: Mode, settings: ModeSettings) -> bool:
    """Whether a point is the mode, as far as its Gaussian tells them apart."""
    away = point - mode.mean
    square = away @ (mode.precision @ away[:, None])[:, 0]
    return bool(0.5 * square < settings.same_mode_nat)


def mixture_of_modes(
    mean: np.ndarray, spread: Arrowhead, elbo: float, others: Sequence[Peak]
) -> Mixture:
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
