"""Takes values of sites at draws; gives a pool of posterior draws, and its numbers by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from asvi.fitting.correction.settings import CorrectionSettings

__all__ = ["Pool", "join_pools", "numeric_columns"]


@dataclass(frozen=True)
class Pool:
    """Draws of a posterior, equally weighted; those of one island stand together.

    ``log_p`` is the model's log density, not normalised, ``log_q`` the guide's.
    """

    sites: dict[str, np.ndarray]  # (islands, draws, ...) each
    log_p: np.ndarray  # (islands, draws)
    log_q: np.ndarray

    @property
    def islands(self) -> int:
        return len(self.log_p)

    def __len__(self) -> int:
        return self.log_p.size

    def flat(self) -> dict[str, np.ndarray]:
        """All draws of each site, (draws, ...)."""
        return {n: x.reshape(len(self), *x.shape[2:]) for n, x in self.sites.items()}


def join_pools(first: Pool, then: Pool) -> Pool:
    """Both, island by island."""
    return Pool(
        {n: np.concatenate([x, then.sites[n]], 1) for n, x in first.sites.items()},
        np.concatenate([first.log_p, then.log_p], 1),
        np.concatenate([first.log_q, then.log_q], 1),
    )


def numeric_columns(
    sites: Mapping[str, np.ndarray],
    lead: int = 1,
    max_numbers: int = CorrectionSettings.max_watched_numbers,
) -> tuple[list[str], np.ndarray]:
    """Names of numbers, and their draws with the numbers last; constants are left out.

    So are numbers that are not finite at some draw: they have no moments. Of more than
    ``max_numbers``, as many are taken, evenly.

    >>> names, draws = numeric_columns({"a": np.arange(3.0), "b": np.eye(3, 2), "c": np.ones(3)})
    >>> names, draws.shape
    (['a', 'b[0]', 'b[1]'], (3, 3))
    """
    names, parts = [], []
    for name, x in sites.items():
        shape = x.shape[lead:]
        names += [f"{name}[{','.join(map(str, at))}]" if at else name for at in np.ndindex(shape)]
        parts.append(np.asarray(x, float).reshape(*x.shape[:lead], -1))
    draws = np.concatenate(parts, -1)
    flat = draws.reshape(-1, draws.shape[-1])
    with np.errstate(invalid="ignore"):
        spread = np.ptp(flat, 0)
    columns = np.flatnonzero(np.isfinite(spread) & (spread > 0))
    if len(columns) > max_numbers:
        columns = columns[np.linspace(0, len(columns) - 1, max_numbers).astype(int)]
    return [names[k] for k in columns], draws[..., columns]
