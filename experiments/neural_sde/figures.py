"""Takes stored results; gives the paper's figures: reconstructions, bridges, bars, losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from experiments.neural_sde.fitting import FAMILIES
from experiments.neural_sde.pictures import to_bytes
from experiments.neural_sde.study import Store
from experiments.neural_sde.table import summarise

matplotlib.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["bars", "bridge", "draw_all", "losses", "reconstructions"]


def draw_all(store: Store) -> list[Path]:
    """All figures that the stored results allow, beside them."""
    content = store.content
    made = [bars(content["rows"], store.folder / "neg_elbo.png")]
    made.append(losses(content["fits"], store.folder / "losses.png"))
    problems = dict.fromkeys((row["generator"], row["problem"]) for row in content["rows"])
    for generator, problem in problems:
        path = store.folder / f"{generator}_{problem}.png"
        made.append(reconstructions(store, generator, problem, path))
        if problem == "bridging" and store.pictures(generator, problem, "coupled").exists():
            path = store.folder / f"{generator}_bridge_draws.png"
            made.append(bridge(store, generator, path))
    return made


def reconstructions(store: Store, generator: str, problem: str, path: Path) -> Path:
    """Truth, noisy frames, and the posterior mean of each family through the generator."""
    rows: dict[str, np.ndarray] = {}
    for family in FAMILIES:
        file = store.pictures(generator, problem, family)
        if file.exists():
            with np.load(file) as kept:
                rows.setdefault("truth", kept["truth"])
                rows.setdefault("seen", _hide(kept["noisy"], kept["seen"]))
                rows[family] = kept["mean"]
    return _film(rows, path)


def bridge(store: Store, generator: str, path: Path, family: str = "coupled") -> Path:
    """Several draws of the posterior across the gap: they part, and meet again."""
    with np.load(store.pictures(generator, "bridging", family)) as kept:
        rows = {"truth": kept["truth"], "seen": _hide(kept["noisy"], kept["seen"])}
        rows.update({f"draw {i + 1}": draw for i, draw in enumerate(kept["draws"])})
    return _film(rows, path)


def bars(rows: list[dict[str, Any]], path: Path) -> Path:
    """−ELBO of each family above the best one, with standard errors over repetitions."""
    lines = summarise(rows)
    problems = list(dict.fromkeys((line["generator"], line["problem"]) for line in lines))
    figure, axes = plt.subplots(1, len(problems), figsize=(2.6 * len(problems), 3.2), squeeze=False)
    for axis, problem in zip(axes[0], problems, strict=True):
        mine = [line for line in lines if (line["generator"], line["problem"]) == problem]
        names, heights = [line["family"] for line in mine], [line["neg_elbo"] for line in mine]
        errors = [line["neg_elbo_se"] or 0.0 for line in mine]
        axis.bar(names, heights, yerr=errors, color=[f"C{FAMILIES.index(n)}" for n in names])
        low, high = min(heights), max(heights)
        margin = max(high - low, 1.0)
        axis.set_ylim(low - 0.3 * margin, high + 0.2 * margin + max(errors))
        axis.set_title(f"{problem[0]}, {problem[1]}", fontsize=9)
        axis.tick_params(axis="x", rotation=45, labelsize=8)
        axis.tick_params(axis="y", labelsize=7)
    axes[0, 0].set_ylabel("−ELBO [nats]")
    return _saved(figure, path)


def losses(fits: list[dict[str, Any]], path: Path) -> Path:
    """The loss of each family along the run, mean over repetitions, without its first quarter."""
    problems = list(dict.fromkeys((fit["generator"], fit["problem"]) for fit in fits))
    figure, axes = plt.subplots(1, len(problems), figsize=(2.8 * len(problems), 3.0), squeeze=False)
    for axis, problem in zip(axes[0], problems, strict=True):
        for fit in fits:
            if (fit["generator"], fit["problem"]) != problem:
                continue
            budget = fit["settings"]["budget"]
            trace = np.mean(fit["losses"], 0)
            steps = budget["chunk"] * np.arange(1, len(trace) + 1)
            late = slice(len(trace) // 4, None)  # the start is off the scale
            colour = f"C{FAMILIES.index(fit['family'])}"
            axis.plot(steps[late], trace[late], label=fit["family"], color=colour)
        axis.set_title(f"{problem[0]}, {problem[1]}", fontsize=9)
        axis.set_xlabel("step", fontsize=8)
        axis.tick_params(labelsize=7)
    axes[0, 0].set_ylabel("−ELBO, mean over a chunk")
    axes[0, -1].legend(fontsize=7)
    return _saved(figure, path)


def _hide(noisy: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Unseen frames in grey."""
    return np.where(seen[:, None, None, None], noisy, 0.0)


def _film(rows: dict[str, np.ndarray], path: Path) -> Path:
    frames = len(next(iter(rows.values())))
    size = (0.75 * frames + 1.0, 0.75 * len(rows))
    figure, axes = plt.subplots(len(rows), frames, figsize=size, squeeze=False)
    for line, (label, images) in zip(axes, rows.items(), strict=True):
        for axis, image in zip(line, to_bytes(images), strict=True):
            axis.imshow(
                image[..., 0] if image.shape[-1] == 1 else image, cmap="gray", vmin=0, vmax=255
            )
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
    figure.subplots_adjust(wspace=0.04, hspace=0.04)
    return _saved(figure, path)


def _saved(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
    return path
