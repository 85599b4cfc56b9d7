"""Takes nothing; gives what a result shows of itself: how many rows, how many draws a picture."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DisplaySettings", "PlotSettings"]


@dataclass(frozen=True)
class DisplaySettings:
    """Of ``print(result)`` and of what a notebook shows."""

    whole_site: int = 3
    """Numbers of a site up to which all of them are shown."""
    rows_to_share: int = 6
    """Rows that long sites share, less one each: the first numbers of each, and how many more."""
    max_sites: int = 30
    """Sites of which rows are shown; of more, it is said how many."""
    digits: int = 3
    """Digits of a standard deviation; means and ends of intervals have the same decimals."""
    unfolded_rows: int = 50
    """Rows of a long site that a notebook shows once it is unfolded."""
    min_width: int = 50
    """Characters below which a line is not broken."""


@dataclass(frozen=True)
class PlotSettings:
    """Of figures."""

    num_samples: int = 4000
    """Draws that a density is made of."""
    grid: int = 256
    """Points at which a density is drawn."""
    prior_share: float = 0.9
    """Central share of the prior that a panel shows, where that is not far wider than the
    posterior."""
    posterior_share: float = 0.99
    """Central share of the posterior that a panel shows at least."""
    max_ratio: float = 4.0
    """Widths of the posterior that a panel is wide at most: a prior that is wider is cut."""
    replicates: int = 50
    """Draws of the data that a predictive check shows."""
    max_axes: int = 4
    """Panels of a site with further axes beside that which is drawn along."""
    candidates: int = 300
    """Numbers among which the strongest pairs are looked for."""
