"""Takes stored fits; gives two pictures: error against seconds, and seconds over those of NUTS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.race.methods import METHODS, REFERENCE
from benchmarks.race.summary import (
    LARGEST_MEAN_ERROR,
    LARGEST_SD_ERROR,
    answered,
    errors_of,
    ratios,
    right,
)

Row = dict[str, Any]

COLOURS = dict(zip(METHODS, plt.get_cmap("tab10").colors)) | {"nutpie": "#333333"}
MARKERS = ("o", "^", "s")  # of the methods of one panel
LOWEST, HIGHEST = 0.03, 300.0  # what is further away is drawn at the edge

NOTE = f"""A point is a fit.

Its height is the error of its worst number,
over the limit: of the mean, {LARGEST_MEAN_ERROR:g} sd;
of the sd, {LARGEST_SD_ERROR:.0%}.

Shaded: within the limit, right.
Errors beyond {HIGHEST:g} are drawn at {HIGHEST:g}.
Fits without an answer have no point."""


def draw(rows: list[Row], results: Path) -> None:
    """Write ``race.png`` and ``ratio.png``."""
    with plt.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        error_against_seconds(rows).savefig(results / "race.png", dpi=150)
        seconds_over_nuts(rows).savefig(results / "ratio.png", dpi=150)
    plt.close("all")


def distance(row: Row) -> float:
    """The larger error over its limit: 1 is the limit of what is right."""
    mean, sd = errors_of(row)
    return float(np.clip(max(mean / LARGEST_MEAN_ERROR, sd / LARGEST_SD_ERROR), LOWEST, HIGHEST))


def error_against_seconds(rows: list[Row]) -> plt.Figure:
    """A panel for each family of methods, a point for each fit."""
    families = {method.family: None for method in METHODS.values()}
    wide = 3
    high = -(-len(families) // wide)
    figure, axes = plt.subplots(
        high, wide, figsize=(11, 3.6 * high), sharex=True, sharey=True, layout="constrained"
    )
    good = [row for row in rows if answered(row)]
    for axis, family in zip(axes.flat, families):
        names = [name for name, method in METHODS.items() if method.family == family]
        for marker, name in zip(MARKERS, names):
            own = [row for row in good if row["method"] == name]
            fits = sum(row["method"] == name for row in rows)
            if not fits:
                continue
            axis.plot(
                [row["first_seconds"] for row in own],
                [distance(row) for row in own],
                marker,
                ms=5,
                mew=0,
                alpha=0.65,
                color=COLOURS[name],
                label=f"{name}: {sum(map(right, own))} right of {fits}",
            )
        _limits(axis, family)
    for number, axis in enumerate(list(axes.flat)[len(families) :]):
        axis.axis("off")
        if number == 0:
            axis.text(0.08, 0.92, NOTE, transform=axis.transAxes, va="top", linespacing=1.5)
    for axis in axes[:, 0]:
        axis.set_ylabel("worst error / limit")
    for column in range(wide):  # the lowest panel of a column has the scale of seconds
        lowest = max(row for row in range(high) if row * wide + column < len(families))
        axes[lowest, column].set_xlabel("seconds to the draws, first call")
        axes[lowest, column].tick_params(labelbottom=True)
    return figure


def _limits(axis: plt.Axes, family: str) -> None:
    axis.set_title(family, loc="left", fontweight="bold", fontsize=11)
    axis.set(xscale="log", yscale="log", ylim=(LOWEST * 0.8, HIGHEST * 40))
    axis.set_yticks([0.1, 1.0, 10.0, 100.0])
    axis.axhline(1.0, color="black", lw=0.9)
    axis.axhspan(LOWEST * 0.8, 1.0, color="green", alpha=0.06, lw=0)
    axis.grid(alpha=0.25, lw=0.6)
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        scale.set_minor_formatter(NullFormatter())
    if axis.get_legend_handles_labels()[0]:
        # The room above the highest point is kept free for it.
        axis.legend(loc="upper left", frameon=False, fontsize=8.5, handletextpad=0.2)


def seconds_over_nuts(rows: list[Row]) -> plt.Figure:
    """A line for each method: its ratios over all problems, from the smallest to the largest."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
    columns = {"first call": "first_seconds", "later call": "later_seconds"}
    for axis, (title, column) in zip(axes, columns.items()):
        for name in METHODS:
            found = sorted(ratios(rows, name, column).values())
            if name == REFERENCE or not found:
                continue
            share = (np.arange(len(found)) + 0.5) / len(found) * 100
            label = f"{name} ({len(found)})"
            axis.plot(share, found, "o-", ms=3, lw=1.4, color=COLOURS[name], label=label)
        axis.axhline(1.0, color="black", lw=0.9)
        axis.set_title(title, loc="left", fontweight="bold", fontsize=11)
        axis.set(yscale="log", xlabel="problems, by ratio (%)", xlim=(0, 100))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.grid(alpha=0.25, lw=0.6)
    axes[0].set_ylabel("seconds / seconds of NUTS")
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside right center",
        frameon=False,
        title="method (problems)",
        fontsize=9,
    )
    return figure
