"""Takes log importance ratios; gives smoothed weights and k̂, which says whether to trust them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpyro.infer.importance import _fit_generalized_pareto

from asvi.fitting.correction.settings import SmoothingSettings

__all__ = ["SmoothedWeights", "pareto_smooth"]


@dataclass(frozen=True)
class SmoothedWeights:
    """Log ratios as given, normalised log weights, the tail's shape k̂, effective draws."""

    log_ratios: np.ndarray
    log_weights: np.ndarray
    k_hat: float
    effective_draws: float


def pareto_smooth(
    log_ratios: np.ndarray, settings: SmoothingSettings = SmoothingSettings()
) -> SmoothedWeights:
    r"""Pareto-smoothed importance sampling (Vehtari et al. 2024).

    The largest weights are replaced by the expected order statistics of a generalised Pareto
    distribution fitted to them. Its shape :math:`\hat k` counts the moments that the weights have:
    below 0.5 all is well, up to 0.7 resampling still works, above it the guide misses mass.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(0, 1.1, 4000)             # target: standard normal
    >>> ratios = -x**2 / 2 + (x / 1.1)**2 / 2
    >>> bool(pareto_smooth(ratios).k_hat < 0.3)
    True
    >>> x = rng.normal(0, 0.3, 4000)             # far too narrow
    >>> bool(pareto_smooth(-x**2 / 2 + (x / 0.3)**2 / 2).k_hat > 0.7)
    True
    """
    log_ratios = np.asarray(log_ratios, float)
    n = len(log_ratios)
    hopeless = np.isnan(log_ratios).any() or (log_ratios == np.inf).any()
    if hopeless or (log_ratios == -np.inf).all():
        return SmoothedWeights(log_ratios, np.full(n, -np.log(n)), float("inf"), 1.0)
    # Draws that the model forbids have weight 0; a huge negative number keeps the fit finite.
    centred = np.maximum(log_ratios - log_ratios.max(), -1e4)
    # The exact posterior: the weights differ by rounding alone, and such a tail has no shape.
    if np.std(centred) < settings.max_equal_sd:
        return SmoothedWeights(log_ratios, np.full(n, -np.log(n)), -1.0, float(n))
    log_weights, k_hat = _smooth_tail(centred, settings)
    log_weights = log_weights - np.logaddexp.reduce(log_weights)
    effective = float(np.exp(-np.logaddexp.reduce(2 * log_weights)))
    if not np.isfinite(k_hat) and effective > settings.min_tied_share * n:
        k_hat = 0.0  # a few discrete values: ties are no tail, and the weights are bounded
    return SmoothedWeights(log_ratios, log_weights, k_hat, effective)


def _smooth_tail(log_ratios: np.ndarray, settings: SmoothingSettings) -> tuple[np.ndarray, float]:
    """Log weights whose tail is smoothed, and the tail's shape, which NumPyro fits."""
    count = len(log_ratios)
    tail = int(np.ceil(min(0.2 * count, 3 * np.sqrt(count))))
    order = np.argsort(log_ratios)
    ascending = log_ratios[order] - log_ratios[order[-1]]
    cut = max(ascending[-tail - 1], float(np.log(np.finfo(float).tiny)))
    above = ascending > cut
    if np.sum(above) < settings.min_tail_draws:
        return log_ratios, np.inf
    k_hat, sigma = _fit_generalized_pareto(np.exp(ascending[above]) - np.exp(cut))
    if np.isfinite(k_hat):
        at = (np.arange(np.sum(above)) + 0.5) / np.sum(above)
        drawn = sigma * np.expm1(-k_hat * np.log1p(-at)) / k_hat if k_hat else -np.log1p(-at)
        ascending[above] = np.minimum(np.log(drawn + np.exp(cut)), 0.0)
    smoothed = np.empty(count)
    smoothed[order] = ascending
    return smoothed, float(k_hat)
