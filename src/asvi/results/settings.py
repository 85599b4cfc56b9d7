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

    prior_draws: int = 20_000
    """Draws that the density of a prior is made of: of a wide one few are near the posterior."""
    fewest_prior_draws: int = 1_000
    """Of a large model."""
    max_prior_numbers: int = 20_000_000
    """Numbers that draws of a prior hold in all."""
    grid: int = 256
    """Points at which a density is drawn."""
    prior_share: float = 0.8
    """Central share of the prior that a panel shows, as far as there is room."""
    posterior_share: float = 0.99
    """Central share of the posterior that a panel shows."""
    edge: float = 0.1
    """Widths of it that a panel has beside it, where there are draws."""
    room: float = 0.8
    """Widths of the posterior that a panel has for the prior on each side of it."""
    prior_height: float = 1.6
    """Heights of the posterior beyond which a prior's peak is cut."""
    data_margin: float = 0.5
    """Widths of the data that a predictive check shows on each side of them."""
    most_values: int = 20
    """Different whole numbers up to which data are shown as bars."""
    candidates: int = 300
    """Numbers among which the strongest pairs are looked for."""
