"""Takes nothing, or Gaussians over noise; gives the distribution that particles come from.

A standard normal, as a rule: the noise of the one Gaussian that was found. Where the posterior has
several modes it is a mixture with a Gaussian at each,

.. math:: q_0(\\epsilon) = \\sum_k w_k\\,N(\\epsilon; m_k, S_k S_k^T).

Moves do not cross from mode to mode. *Jumps* do (after Tjelmeland and Hegstad 2001): a particle is
said to be of Gaussian j with probability :math:`r_j(\\epsilon) \\propto w_j N_j(\\epsilon)`, and
takes its own noise to another one,
:math:`\\epsilon' = m_k + S_k S_j^{-1}(\\epsilon - m_j)`.

Weights want tails that are heavier than the posterior's: a Gaussian's weights have none that bound
them, however near it is. So a third of the draws that are weighted are of a wider t, and all count
as draws of the mixture (Hesterberg 1995): where the Gaussian is the posterior no weight is above
3/2, and where the posterior is wider weights stay bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.special import gammaln, logsumexp

__all__ = ["Base", "Mixture", "UnitNormal", "heavy_noise", "unit_density", "wide_density"]

#: constant of the formula: share of the draws that are of the t
HEAVY = 1 / 3
#: constant of the formula: degrees of freedom, and scale, of the t
FREEDOM, SCALE = 5.0, 1.2


class Base(Protocol):
    """A distribution over noise that can be drawn from."""

    @property
    def size(self) -> int:
        """Numbers of noise."""
        ...

    @property
    def modes(self) -> int:
        """Gaussians that it is made of."""
        ...

    def __call__(self, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log density (draws,) and slope (draws, numbers) at noise (draws, numbers)."""
        ...

    def wide(self, noise: np.ndarray) -> np.ndarray:
        """Log density (draws,), a third of the draws being of a wider t."""
        ...

    def draws_from_noise(self, noise: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draws of it, made of standard normal ones (draws, numbers)."""
        ...

    def labels(self, noise: np.ndarray) -> np.ndarray:
        """Of which Gaussian each draw is most likely, (draws,)."""
        ...


def unit_density(noise: np.ndarray) -> np.ndarray:
    """Log density of standard normal noise (draws, numbers)."""
    return -0.5 * np.sum(noise**2, -1) - 0.5 * noise.shape[-1] * np.log(2 * np.pi)


def wide_density(noise: np.ndarray) -> np.ndarray:
    """Log density of noise (draws, numbers), a third of which is of a wider t.

    >>> at = np.linspace(-60, 60, 40001)[:, None]
    >>> round(float(np.exp(wide_density(at)).sum() * 120 / 40000), 4)
    1.0
    """
    size, whole = noise.shape[-1], FREEDOM + noise.shape[-1]
    constant = gammaln(0.5 * whole) - gammaln(0.5 * FREEDOM)
    constant -= 0.5 * size * np.log(FREEDOM * np.pi * SCALE**2)
    square = np.sum(noise**2, -1) / (FREEDOM * SCALE**2)
    heavy = constant - 0.5 * whole * np.log1p(square)
    return np.logaddexp(np.log1p(-HEAVY) + unit_density(noise), np.log(HEAVY) + heavy)


def heavy_noise(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Draws of the t that go with ``count`` standard normal ones."""
    count = round(count * HEAVY / (1 - HEAVY))
    width = np.sqrt(rng.chisquare(FREEDOM, size=(count, 1)) / FREEDOM)
    return SCALE * rng.normal(size=(count, size)) / width


@dataclass(frozen=True)
class UnitNormal:
    """Standard normal noise."""

    size: int
    modes: int = 1

    def __call__(self, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return unit_density(noise), -noise

    def wide(self, noise: np.ndarray) -> np.ndarray:
        return wide_density(noise)

    def draws_from_noise(self, noise: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return noise

    def labels(self, noise: np.ndarray) -> np.ndarray:
        return np.zeros(len(noise), int)


@dataclass(frozen=True)
class Mixture:
    """Gaussians over noise.

    >>> ends = np.array([[-5.0], [5.0]])
    >>> base = Mixture(np.log([0.25, 0.75]), ends, np.ones((2, 1, 1)))
    >>> rng = np.random.default_rng(0)
    >>> draws = base.draws_from_noise(rng.normal(size=(1000, 1)), rng)
    >>> np.bincount(base.labels(draws)).tolist()
    [250, 750]
    """

    log_weights: np.ndarray  # (modes,), normalised
    means: np.ndarray  # (modes, numbers)
    factors: np.ndarray  # (modes, numbers, numbers), lower triangular

    @cached_property
    def _inverses(self) -> np.ndarray:
        return np.linalg.inv(self.factors)

    @cached_property
    def log_volumes(self) -> np.ndarray:
        """Logarithms of the factors' determinants, (modes,)."""
        return np.sum(np.log(np.diagonal(self.factors, axis1=1, axis2=2)), -1)

    @property
    def size(self) -> int:
        return self.means.shape[1]

    @property
    def modes(self) -> int:
        return len(self.means)

    def _own_noise(self, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Noise of each Gaussian (modes, draws, numbers), and its weighted log density."""
        own = (noise - self.means[:, None]) @ np.swapaxes(self._inverses, 1, 2)
        scale = (self.log_weights - self.log_volumes)[:, None]
        return own, unit_density(own) + scale

    def wide(self, noise: np.ndarray) -> np.ndarray:
        own = (noise - self.means[:, None]) @ np.swapaxes(self._inverses, 1, 2)
        scale = (self.log_weights - self.log_volumes)[:, None]
        return logsumexp(wide_density(own) + scale, axis=0)

    def __call__(self, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        own, each = self._own_noise(noise)
        total = logsumexp(each, axis=0)
        share = np.exp(each - total)
        return total, -np.sum(share[..., None] * (own @ self._inverses), 0)

    def draws_from_noise(self, noise: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        ends = np.cumsum(np.exp(self.log_weights))
        at = (np.arange(len(noise)) + rng.uniform()) / len(noise) * ends[-1]
        k = rng.permutation(np.searchsorted(ends, at).clip(0, self.modes - 1))
        return self._from_own_noise(noise, k)

    def labels(self, noise: np.ndarray) -> np.ndarray:
        return np.argmax(self._own_noise(noise)[1], 0)

    def jump(self, noise: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws at other modes, and the log of how much likelier the way back is.

        What the map does to volumes is in it.
        """
        rows = np.arange(len(noise))
        own, each = self._own_noise(noise)
        before = each - logsumexp(each, axis=0)
        begin = _draw_modes(before, rng)
        others = np.repeat(self.log_weights[:, None], len(noise), 1)
        others[begin, rows] = -np.inf
        ahead = others - logsumexp(others, axis=0)
        end = _draw_modes(ahead, rng)
        there = self._from_own_noise(own[begin, rows], end)
        each = self._own_noise(there)[1]
        after = each - logsumexp(each, axis=0)
        back = self.log_weights[begin] - np.log1p(-np.exp(self.log_weights[end]))
        gain = after[end, rows] - before[begin, rows] + back - ahead[end, rows]
        return there, gain + self.log_volumes[end] - self.log_volumes[begin]

    def _from_own_noise(self, noise: np.ndarray, k: np.ndarray) -> np.ndarray:
        """Draws of Gaussians k (draws,) of their own noise (draws, numbers)."""
        draws = np.empty_like(noise)
        for mode in range(self.modes):
            mine = k == mode
            draws[mine] = self.means[mode] + noise[mine] @ self.factors[mode].T
        return draws


def _draw_modes(log_shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One of the modes for each draw, by shares (modes, draws)."""
    ends = np.cumsum(np.exp(log_shares), 0)
    return np.sum(rng.uniform(size=ends.shape[1]) * ends[-1] > ends, 0).clip(0, len(ends) - 1)
