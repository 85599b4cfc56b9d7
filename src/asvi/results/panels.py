"""Takes draws; gives what figures are made of: axes, windows, densities, labels."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from asvi.results.settings import PlotSettings

__all__ = [
    "axes_or_new",
    "bars",
    "columns_of",
    "density",
    "draw_bands",
    "flat",
    "panels_or_new",
    "say_instead",
    "window",
]


def axes_or_new(ax: Axes | None, width: float = 5.0, height: float = 3.2) -> Axes:
    """The axes given, or those of a new figure of pyplot."""
    if ax is not None:
        return ax
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def panels_or_new(
    ax: Any, count: int, across: int, width: float, height: float, **settings: Any
) -> np.ndarray:
    """``count`` axes, of those given (as many as there are) or of a new figure of pyplot."""
    if ax is not None:
        return np.ravel(np.asarray(ax, dtype=object))[:count]
    across = max(1, min(across, count))
    down = max(1, -(-count // across))
    figure, axes = plt.subplots(
        down,
        across,
        figsize=(width * across, height * down),
        layout="constrained",
        squeeze=False,
        **settings,
    )
    for spare in axes.ravel()[count:]:
        figure.delaxes(spare)
    return axes.ravel()[: max(1, count)]


def say_instead(ax: Axes, text: str) -> Axes:
    """A sentence where a picture would be."""
    ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes)
    ax.set_axis_off()
    return ax


def columns_of(shapes: dict[str, tuple[int, ...]]) -> list[tuple[str, str, int]]:
    """Every number: its label, its site, its place in the flattened site."""
    found = []
    for name, shape in shapes.items():
        for i, at in enumerate(np.ndindex(shape)):
            where = f"[{', '.join(map(str, at))}]" if at else ""
            found.append((name + where, name, i))
    return found


def window(after: np.ndarray, before: np.ndarray, settings: PlotSettings) -> tuple[float, float]:
    """The ends of a panel: the posterior's central range, and of the prior's what is near."""
    low, high = _central(after, settings.posterior_share)
    room, edge = settings.room * (high - low), settings.edge * (high - low)
    low, high = max(float(after.min()), low - edge), min(float(after.max()), high + edge)
    prior_low, prior_high = _central(before, settings.prior_share) if len(before) else (low, high)
    low, high = min(low, max(prior_low, low - room)), max(high, min(prior_high, high + room))
    if high > low:
        return low, high
    return low - 0.5, high + 0.5


def _central(x: np.ndarray, share: float) -> tuple[float, float]:
    low, high = np.quantile(x, [0.5 - share / 2, 0.5 + share / 2])
    return float(low), float(high)


def density(
    x: np.ndarray, grid: np.ndarray, ends: tuple[float, float] = (-np.inf, np.inf)
) -> np.ndarray:
    """A kernel estimate at evenly spaced points; no mass leaks beyond the ``ends``.

    Its width is that of the draws in sight: a tail, however heavy, does not smear the middle.
    """
    x = x[np.isfinite(x)]
    seen = x[(x >= grid[0]) & (x <= grid[-1])]
    if len(seen) < 2 or np.ptp(seen) == 0:
        return np.zeros_like(grid)
    quartiles = np.quantile(seen, [0.25, 0.75])
    spread = min(seen.std(), np.ptp(quartiles) / 1.34 or np.inf)
    width = max(1.06 * spread * len(seen) ** -0.2, 1.5 * (grid[1] - grid[0]))
    near = x[(x >= grid[0] - 4 * width) & (x <= grid[-1] + 4 * width)]
    step = grid[1] - grid[0]
    pad = int(np.ceil(4 * width / step)) + 1
    edges = grid[0] + step * (np.arange(-pad, len(grid) + pad + 1) - 0.5)
    # Draws beyond an end come back from it, as at a mirror.
    low, high = ends
    mirrored = [near, 2 * low - near[near < low + 4 * width]]
    mirrored.append(2 * high - near[near > high - 4 * width])
    counts = np.histogram(np.concatenate(mirrored), edges)[0]
    kernel = np.exp(-0.5 * (np.arange(-pad, pad + 1) * step / width) ** 2)
    smooth = np.convolve(counts, kernel / kernel.sum(), mode="same")[pad:-pad]
    return np.where((grid < low) | (grid > high), 0.0, smooth / (len(x) * step))


def bars(ax: Axes, before: np.ndarray | None, after: np.ndarray) -> None:
    """Probabilities of whole numbers, prior and posterior side by side."""
    values = np.unique(after if before is None else np.concatenate([before, after]))
    if len(values) > PlotSettings.most_values:
        low, high = window(after, after if before is None else before, PlotSettings())
        values = values[(values >= low) & (values <= high)]
    half = 0.4 * (np.diff(values).min() if len(values) > 1 else 1.0)
    if before is not None:
        heights = [(before == v).mean() for v in values]
        ax.bar(values - half / 2, heights, half, color="0.75", label="prior")
    heights = [(after == v).mean() for v in values]
    ax.bar(values + half / 2, heights, half, color="C0", label="posterior")
    if len(values) <= 6:
        ax.set_xticks(values)


def flat(draws: Any) -> np.ndarray:
    """Draws (draws, numbers)."""
    x = np.asarray(draws, float)
    return x.reshape(len(x), -1)


def draw_bands(ax: Axes, q: np.ndarray) -> None:
    """Median and 50% and 90% bands; few members of a plate stand apart, many are a line."""
    place = np.arange(q.shape[1])
    if len(place) > 30:
        ax.fill_between(place, q[0], q[4], color="C0", alpha=0.2, lw=0, label="90%")
        ax.fill_between(place, q[1], q[3], color="C0", alpha=0.35, lw=0, label="50%")
        ax.plot(place, q[2], color="C0", lw=1, label="median")
        ax.set_xlim(0, len(place) - 1)
        return
    ax.vlines(place, q[0], q[4], color="C0", alpha=0.5, lw=1.2, label="90%")
    ax.vlines(place, q[1], q[3], color="C0", lw=3.5, label="50%")
    ax.plot(place, q[2], "o", color="white", mec="C0", ms=4.5, label="median")
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
