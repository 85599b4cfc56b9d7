"""Takes weights of draws; gives draws that are equally weighted, systematically."""

from __future__ import annotations

import numpy as np

__all__ = ["resample"]


def resample(log_weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of ``count`` draws, taken systematically, by their weights (..., draws).

    >>> resample(np.log([0.5, 0.25, 0.25]), 4, np.random.default_rng(0)).tolist()
    [0, 0, 1, 2]
    >>> resample(np.log([[0.8, 0.2], [0.2, 0.8]]), 1, np.random.default_rng(0)).tolist()
    [[0], [1]]
    """
    ends = np.cumsum(np.exp(log_weights - log_weights.max(-1, keepdims=True)), -1)
    start = rng.uniform(size=(*ends.shape[:-1], 1))
    at = (np.arange(count) + start) / count * ends[..., -1:]
    if ends.ndim == 1:
        index = np.searchsorted(ends, at)
    else:  # few of each: they are counted
        index = np.sum(ends[..., None, :] < at[..., None], -1)
    return index.clip(0, ends.shape[-1] - 1)
