"""Takes log ratios of two densities at draws of both; gives the ratio of their evidences.

Bennett's acceptance ratio is the root r of

.. math:: \\sum_{x\\sim p_0} f(\\Delta(x) - r + c) = \\sum_{x\\sim p_1} f(r - c - \\Delta(x)),
   \\qquad f(u) = \\frac1{1+e^{-u}},\\quad c = \\log(n_1/n_0),

with :math:`\\Delta = \\log p_1 - \\log p_0`, not normalised. Of all estimates from these draws it
has the least variance (Bennett 1976; Meng and Wong 1996). Heavy weights, which rule the mean of a
few hundred, do not rule it: they meet the draws of the other side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

__all__ = ["bennett", "bennett_by_islands"]

#: constant of the formula: halvings, after which doubles have no more digits
BISECTIONS = 60


def bennett(
    before: np.ndarray, after: np.ndarray, effective: float | None = None
) -> tuple[Any, Any]:
    """Log of the ratio of evidences, and its standard error, of draws along the last axis.

    ``before`` and ``after`` are log ratios of the second density to the first at draws of the first
    and of the second, of which ``effective`` are worth an independent one. Where the second density
    is 0, ``before`` is below -1e250.

    >>> rng = np.random.default_rng(0)
    >>> ratio = lambda x: 1.0 - 0.5 * (x - 1) ** 2 + 0.5 * x**2   # e N(1, 1) beside N(0, 1)
    >>> log_ratio, error = bennett(ratio(rng.normal(size=4000)), ratio(rng.normal(size=4000) + 1))
    >>> bool(abs(log_ratio - 1.0) < 3 * error), bool(error < 0.03)
    (True, True)
    """
    before, after = np.asarray(before, float), np.asarray(after, float)
    total = before.shape[-1]
    effective = float(after.shape[-1] if effective is None else effective)
    c, allowed = np.log(effective / total), before > -1e250
    low = np.minimum(np.where(allowed, before, np.inf).min(-1), after.min(-1)) - abs(c) - 1.0
    high = np.maximum(before.max(-1), after.max(-1)) + abs(c) + 1.0
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        ahead = total * expit(before - (middle - c)[..., None]).mean(-1)
        above = ahead > effective * expit((middle - c)[..., None] - after).mean(-1)
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    log_ratio = 0.5 * (low + high)
    parts = (
        (expit(before - (log_ratio - c)[..., None]), total),
        (expit((log_ratio - c)[..., None] - after), effective),
    )
    variance = sum((np.mean(f**2, -1) / np.mean(f, -1) ** 2 - 1) / max(n, 1) for f, n in parts)
    return log_ratio, np.sqrt(np.maximum(variance, 0.0))  # of equal ratios it is rounding alone


def bennett_by_islands(
    before: np.ndarray, after: np.ndarray, effective: float | None = None
) -> tuple[float, float, np.ndarray]:
    """The same of all draws (islands, draws), and the log ratio of each island, (islands,)."""
    share = None if effective is None else max(1.0, effective / len(after))
    whole, error = bennett(before.ravel(), after.ravel(), effective)
    return float(whole), float(error), bennett(before, after, share)[0]
