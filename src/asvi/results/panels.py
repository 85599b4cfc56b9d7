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
    "predicted_densities",
    "predicted_shares",
    "say_instead",
    "two_densities",
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


def two_densities(ax: Axes, before: np.ndarray, after: np.ndarray, settings: PlotSettings) -> None:
    """Prior and posterior of a number, each a density."""
    grid = np.linspace(*window(after, before, settings), settings.grid)
    # Where draws of the prior end, there may be an end of the support.
    together = np.concatenate([before, after])
    ends = (together.min(), together.max()) if len(before) else (-np.inf, np.inf)
    heights, colour = density(after, grid, ends), "C0"
    top = heights.max()
    if len(before):
        prior = density(before, grid, ends)
        ax.fill_between(grid, prior, color="0.8", lw=0, label="prior")
        top = max(top, min(prior.max(), settings.prior_height * top))
    ax.fill_between(grid, heights, color=colour, alpha=0.35, lw=0)
    ax.plot(grid, heights, color=colour, lw=1.2, label="posterior")
    ax.set_xlim(grid[0], grid[-1])
    ax.set_ylim(0, 1.08 * top if top > 0 else 1.0)


def predicted_shares(ax: Axes, data: np.ndarray, draws: np.ndarray) -> None:
    """Whole numbers: how often each is met in the data, and in draws of them."""
    values = np.unique(data)
    values = np.arange(values.min(), values.max() + 1) if len(values) > 2 else values
    shares = np.stack([(draws == v).mean(1) for v in values])
    low, middle, high = np.quantile(shares, [0.05, 0.5, 0.95], axis=1)
    ax.bar(values, [(data == v).mean() for v in values], 0.7, color="0.8", label="data")
    ax.errorbar(
        values,
        middle,
        [middle - low, high - middle],
        fmt="o",
        ms=4,
        color="C0",
        label="posterior predictive, 90%",
    )
    if len(values) <= 12:
        ax.set_xticks(values)


def predicted_densities(
    ax: Axes, data: np.ndarray, draws: np.ndarray, settings: PlotSettings
) -> None:
    """Densities of the data and of draws of them; few data are marked below."""
    margin = settings.data_margin * (np.ptp(data) or 1.0)
    low, high = np.quantile(draws, [0.005, 0.995])
    low = min(data.min(), max(low, data.min() - margin))
    high = max(data.max(), min(high, data.max() + margin))
    grid = np.linspace(low, high, settings.grid)
    ends = (0.0 if min(data.min(), draws.min()) >= 0 else -np.inf, np.inf)
    for k, row in enumerate(draws):
        label = None if k else f"posterior predictive, {len(draws)} draws"
        ax.plot(grid, density(row, grid, ends), color="C0", lw=0.8, alpha=0.25, label=label)
    ax.plot(grid, density(data, grid, ends), color="k", lw=1.6, label="data")
    if len(data) <= 50:
        ax.plot(data, np.zeros_like(data), "|", color="k", ms=9, clip_on=False)
    ax.set_ylim(bottom=0)
    ax.set_xlim(low, high)
