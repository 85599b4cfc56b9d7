"""Takes log importance ratios; gives smoothed weights and k̂, which says whether to trust them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

__all__ = ["Smoothed", "smooth"]

TIED = 0.1  # of the draws must count, for a tail of equal weights to be no warning


@dataclass(frozen=True)
class Smoothed:
    """Log ratios as given, normalised log weights, the tail's shape k̂, effective draws."""

    log_ratios: np.ndarray
    log_weights: np.ndarray
    k_hat: float
    effective_draws: float


def smooth(log_ratios: np.ndarray) -> Smoothed:
    r"""Pareto-smoothed importance sampling (Vehtari et al. 2024), by ArviZ.

    The largest weights are replaced by the expected order statistics of a generalised Pareto
    distribution fitted to them. Its shape :math:`\hat k` counts the moments that the weights have:
    below 0.5 all is well, up to 0.7 resampling still works, above it the guide misses mass.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(0, 1.1, 4000)             # target: standard normal
    >>> ratios = -x**2 / 2 + (x / 1.1)**2 / 2
    >>> bool(smooth(ratios).k_hat < 0.3)
    True
    >>> x = rng.normal(0, 0.3, 4000)             # far too narrow
    >>> bool(smooth(-x**2 / 2 + (x / 0.3)**2 / 2).k_hat > 0.7)
    True
    """
    log_ratios = np.asarray(log_ratios, float)
    n = len(log_ratios)
    hopeless = np.isnan(log_ratios).any() or (log_ratios == np.inf).any()
    if hopeless or (log_ratios == -np.inf).all():
        return Smoothed(log_ratios, np.full(n, -np.log(n)), float("inf"), 1.0)
    # Draws that the model forbids have weight 0; a huge negative number keeps the fit finite.
    centred = np.maximum(log_ratios - log_ratios.max(), -1e4)
    # The exact posterior: the weights differ by rounding alone, and such a tail has no shape.
    if np.std(centred) < 0.02:
        return Smoothed(log_ratios, np.full(n, -np.log(n)), -1.0, float(n))
    log_weights, k_hat = _by_arviz(centred)
    log_weights = log_weights - np.logaddexp.reduce(log_weights)
    effective = float(np.exp(-np.logaddexp.reduce(2 * log_weights)))
    if not np.isfinite(k_hat) and effective > TIED * n:
        k_hat = 0.0  # a few discrete values: ties are no tail, and the weights are bounded
    return Smoothed(log_ratios, log_weights, k_hat, effective)


def _by_arviz(log_ratios: np.ndarray) -> tuple[np.ndarray, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ArviZ 0.23 announces 1.0; an infinite k̂ is reported by us
        try:
            from arviz_stats.base import array_stats  # pyright: ignore[reportMissingImports]
        except ImportError:  # ArviZ 0.x
            import arviz

            weights, k_hat = arviz.psislw(log_ratios.copy())
        else:  # it takes log likelihoods left out, the negative of log ratios
            weights, k_hat = array_stats.psislw(-log_ratios)
    return np.asarray(weights), float(k_hat)
