"""Takes finished cells; gives loss curves and the Lorenz picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from asvi import tasks
from asvi.cli.bench.protocol import COLUMNS

__all__ = ["lorenz_picture", "loss_curves"]

Cells = dict[tuple[str, str], dict[str, Any]]


def loss_curves(cells: Cells, path: Path) -> None:
    """Every restart's loss above the floor -log Z, one panel per task and family."""
    task_names = list(dict.fromkeys(task for task, _ in cells))
    families = [f for f in COLUMNS if any(f == family for _, family in cells)]
    figure = Figure(figsize=(2.4 * len(families), 1.9 * len(task_names)), layout="constrained")
    axes = figure.subplots(len(task_names), len(families), squeeze=False, sharex=True)
    for row, name in zip(axes, task_names, strict=True):
        floor = -tasks.get(name).log_evidence
        for ax, family in zip(row, families, strict=True):
            if (name, family) not in cells:
                ax.set_axis_off()
                continue
            cell = cells[name, family]
            for curve in np.array(cell["curves"], float):
                ax.plot(cell["curve_steps"], np.maximum(curve - floor, 1e-3), lw=0.6, alpha=0.7)
            ax.set_yscale("log")
            ax.set_title(f"{name} · {COLUMNS[family].title}", fontsize=7)
            ax.tick_params(labelsize=6)
    figure.supxlabel("step", fontsize=8)
    figure.supylabel("loss above −log Z [nat]", fontsize=8)
    figure.savefig(path, dpi=110)


def lorenz_picture(cells: Cells, path: Path, task_name: str = "lorenz") -> bool:
    """Posterior mean ± 2 sd of the three coordinates by each family, over the MCMC posterior.

    Gives False, and draws nothing, where no cell of the task is there.
    """
    families = [f for f in COLUMNS if (task_name, f) in cells]
    if not families:
        return False
    task = tasks.get(task_name)
    y, observed = task.args
    truth = task.moments

    def path_of(values: Any) -> np.ndarray:
        return np.concatenate([np.asarray(values["x0"])[None], np.asarray(values["x"])])

    figure = Figure(figsize=(2.5 * len(families), 5.5), layout="constrained")
    axes = figure.subplots(3, len(families), sharex=True, sharey="row", squeeze=False)
    time = np.arange(len(y))
    for j, family in enumerate(families):
        picture = cells[task_name, family]["picture"]
        mean, sd = path_of(picture["mean"]), path_of(picture["sd"])
        for i in range(3):
            ax = axes[i, j]
            ax.plot(time, path_of(truth.mean)[:, i], "k--", lw=1, label="MCMC mean")
            ax.plot(time, mean[:, i], color="C0", lw=1, label="guide mean")
            ax.fill_between(
                time,
                mean[:, i] - 2 * sd[:, i],
                mean[:, i] + 2 * sd[:, i],
                color="C0",
                alpha=0.3,
                label="guide ± 2 sd",
            )
            if i == 0:
                ax.plot(time[observed], y[observed], "C3.", ms=3, label="observed")
                ax.set_title(COLUMNS[family].title, fontsize=8)
            ax.tick_params(labelsize=6)
            if j == 0:
                ax.set_ylabel(f"$x_{i + 1}$")
    axes[0, 0].legend(fontsize=5)
    figure.supxlabel("step", fontsize=8)
    figure.savefig(path, dpi=120)
    return True
