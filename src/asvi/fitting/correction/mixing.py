"""Takes draws of particles as they move; gives how far their moments can be trusted.

A particle's mean over its moves is one of many that are nearly independent: their spread is the
Monte Carlo error of the whole, whatever the autocorrelation. Particles of an island may have
forebears in common; islands never met, and the spread of their means tells what particles share.
The larger of both counts. Nested R̂ (Margossian et al. 2022) compares islands, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

__all__ = ["Mixing", "mixing_of"]


@dataclass(frozen=True)
class Mixing:
    """Of every number, (numbers,) each."""

    mean_error: np.ndarray  # standard error of the mean, in posterior sds
    sd_error: np.ndarray  # relative standard error of the sd
    rank_error: np.ndarray  # the larger of both, of ranks made normal: tails do not rule it
    r_hat: np.ndarray  # nested, rank-normalised, of location or scale, whichever is larger
    drift: np.ndarray  # how far mean or sd moved from early to late moves, in standard errors

    @property
    def effective(self) -> np.ndarray:
        """Independent draws that would tell the mean as well."""
        return 1 / np.maximum(self.mean_error, 1e-9) ** 2


def mixing_of(draws: np.ndarray, weights: np.ndarray) -> Mixing:
    """``draws``: (moves, particles, numbers); particles of an island stand together.

    ``weights`` (islands,) are what draws of each island count, 1 in all.

    >>> draws = np.random.default_rng(0).normal(size=(10, 400, 1))   # all independent
    >>> mixing = mixing_of(draws, np.full(8, 1 / 8))
    >>> bool(1000 < mixing.effective[0] <= 5000), bool(mixing.r_hat[0] < 1.01)
    (True, True)
    """
    moves, count, _ = draws.shape
    islands, third = len(weights), max(1, moves // 3)
    each = np.repeat(weights, count // islands) * islands / count  # (particles,)
    mean = each @ draws.mean(0)
    sd = np.sqrt(each @ ((draws - mean) ** 2).mean(0))
    unit = (draws - mean) / np.where(sd > 0, sd, 1.0)

    def error(x: np.ndarray) -> np.ndarray:
        alone = x.mean(0)
        apart = alone.reshape(islands, count // islands, -1).mean(1)
        return np.maximum(_error(alone, each), _error(apart, weights))

    def drift(x: np.ndarray) -> np.ndarray:
        change = x[-third:].mean(0) - x[:third].mean(0)
        return np.abs(each @ change) / np.maximum(_error(change, each), 1e-12)

    scores = normal_scores(unit)
    return Mixing(
        mean_error=error(unit),
        sd_error=0.5 * error(unit**2),
        rank_error=np.maximum(error(scores), 0.5 * error(scores**2)),
        r_hat=np.maximum(
            nested_r_hat(scores, islands),
            nested_r_hat(normal_scores(np.abs(unit - np.median(unit, (0, 1)))), islands),
        ),
        drift=np.maximum(drift(scores), drift(scores**2)) if moves > 2 else np.zeros_like(sd),
    )


def _error(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Standard error of the mean of independent rows (rows, numbers) by these weights, 1 in all."""
    away = x - weights @ x
    return np.sqrt(weights**2 @ away**2 * (len(x) / (len(x) - 1)))


def normal_scores(draws: np.ndarray) -> np.ndarray:
    """Normal quantiles of the ranks among all draws (moves, particles, numbers) of each number."""
    flat = draws.reshape(-1, draws.shape[-1])
    scores = np.empty(flat.shape)
    for k, column in enumerate(flat.T):
        _, place, count = np.unique(column, return_inverse=True, return_counts=True)
        middle = np.cumsum(count) - 0.5 * (count - 1)  # of the ranks of equal draws
        scores[:, k] = ndtri((middle - 0.375) / (len(flat) + 0.25))[place]
    return scores.reshape(draws.shape)


def nested_r_hat(draws: np.ndarray, islands: int) -> np.ndarray:
    """Of draws (moves, particles, numbers), islands of particles being the superchains."""
    moves, count, size = draws.shape
    apart = np.moveaxis(draws.reshape(moves, islands, count // islands, size), 1, 0)
    flat = apart.reshape(islands, -1, size)
    between = flat.mean(1).var(0, ddof=1)
    within = flat.var(1, ddof=1).mean(0)
    return np.sqrt(1 + between / np.maximum(within, 1e-12))
