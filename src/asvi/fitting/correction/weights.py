"""Takes draws of a guide with their log ratios; gives draws of the posterior, by their weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asvi.fitting.correction.pareto_smoothing import pareto_smooth
from asvi.fitting.correction.pool import numeric_columns
from asvi.fitting.correction.settings import CorrectionSettings

__all__ = ["WeightedDraws", "weigh"]


@dataclass(frozen=True)
class WeightedDraws:
    """Pareto-smoothed weights of draws, and how far moments by them can be trusted."""

    log_weights: np.ndarray  # (draws,), normalised
    k_hat: float
    effective_draws: float
    names: list[str]
    mean_error: np.ndarray  # (numbers,): standard error of the mean, in posterior sds
    sd_error: np.ndarray  # relative standard error of the sd
    log_evidence: float
    log_evidence_se: float


def weigh(
    sites: dict[str, np.ndarray],
    log_ratios: np.ndarray,
    settings: CorrectionSettings = CorrectionSettings(),
) -> WeightedDraws:
    """``log_ratios`` (draws,) are those of the model's density to the guide's.

    >>> rng = np.random.default_rng(0)
    >>> x = 1.1 * rng.normal(size=4000)                            # target: standard normal
    >>> weighted = weigh({"x": x}, -x**2 / 2 + (x / 1.1) ** 2 / 2 + np.log(1.1))
    >>> bool(weighted.k_hat < 0.5), bool(abs(weighted.log_evidence) < 0.02)
    (True, True)
    """
    smoothed = pareto_smooth(log_ratios, settings.smoothing)
    names, x = numeric_columns(sites, max_numbers=settings.max_watched_numbers)
    w = np.exp(smoothed.log_weights)
    mean = w @ x
    away = x - mean
    variance = np.maximum(w @ away**2, 1e-300)
    unit = away**2 / variance
    mean_error = np.sqrt(w**2 @ unit)
    sd_error = 0.5 * np.sqrt(w**2 @ (unit - 1) ** 2)
    total, count = np.logaddexp.reduce(log_ratios), len(log_ratios)
    relative = np.exp(log_ratios - total) * count
    return WeightedDraws(
        smoothed.log_weights,
        smoothed.k_hat,
        smoothed.effective_draws,
        names,
        mean_error,
        sd_error,
        float(total - np.log(count)),
        float(relative.std(ddof=1) / np.sqrt(count)) if np.isfinite(total) else np.inf,
    )
