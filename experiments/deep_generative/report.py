"""Takes the rows of a study; gives its tables beside the paper's, and the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.deep_generative.data import NAMES, WHOLE
from experiments.deep_generative.model import READINGS
from experiments.deep_generative.study import PAPER
from experiments.deep_generative.train import IMAGES

__all__ = ["figures", "tables"]

TITLES = {"mnist": "MNIST", "kmnist": "KMNIST", "fashion-mnist": "Fashion-MNIST"}


def tables(rows: list[dict[str, Any]], headline: tuple[str, str]) -> str:
    """Markdown: the headline reading first, then the others, then the learned weights."""
    kinds = [(r, i) for r in READINGS for i in IMAGES]
    kinds.sort(key=lambda kind: kind != headline)
    parts = []
    for reading, images in kinds:
        own = [r for r in rows if (r["reading"], r["images"]) == (reading, images)]
        if own:
            word = "standard deviations" if reading == "sd" else "variances"
            title = f"### Scales read as {word}, images {images}"
            parts.append(title + (" (headline)" if (reading, images) == headline else ""))
            parts.append(_table(own))
    parts.append("### Learned prior weights, mean over the latent and the seeds (convex update)")
    parts.append(_weights(rows))
    return "\n\n".join(parts) + "\n"


def _cell(rows: list[dict[str, Any]], key: str = "elbo") -> tuple[float, float]:
    values = np.array([row[key] for row in rows], float)
    spread = values.std(ddof=1) if len(values) > 1 else float("nan")
    return float(values.mean()), float(spread)


def _table(rows: list[dict[str, Any]]) -> str:
    head = ["set", "labels", "convex update", "mean field", "margin", "paper's margin", "paper"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for dataset in NAMES:
        for labels in (False, True):
            own = [r for r in rows if r["dataset"] == dataset and r["labels"] is labels]
            by = {name: [r for r in own if r["family"] == name] for name in PAPER[dataset, labels]}
            if not all(by.values()):
                continue
            convex, field = _cell(by["convex"]), _cell(by["mean_field"])
            paper = PAPER[dataset, labels]
            said = f"{paper['convex'][0]} / {paper['mean_field'][0]}"
            n = own[0]["training_images"]
            name = TITLES[dataset] + ("" if n == WHOLE else f" (first {n:,} training images)")
            lines.append(
                f"| {name} | {'yes' if labels else 'no'} | {_shown(convex)} | {_shown(field)} | "
                f"{convex[0] - field[0]:+.1f} | "
                f"{paper['convex'][0] - paper['mean_field'][0]:+.1f} | {said} |"
            )
    return "\n".join(lines)


def _shown(cell: tuple[float, float]) -> str:
    return f"{cell[0]:.1f}" if np.isnan(cell[1]) else f"{cell[0]:.1f} ± {cell[1]:.1f}"


def _weights(rows: list[dict[str, Any]]) -> str:
    head = ["set", "labels", "reading", "images", "z₂", "z₃"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    kinds = dict.fromkeys(
        (r["dataset"], r["labels"], r["reading"], r["images"])
        for r in rows
        if r["family"] == "convex"
    )
    for kind in sorted(kinds, key=lambda k: (NAMES.index(k[0]), *map(str, k[1:]))):
        own = [
            r
            for r in rows
            if (r["dataset"], r["labels"], r["reading"], r["images"]) == kind
            and r["family"] == "convex"
        ]
        weights = [f"{_cell(own, f'prior_weight_{site}')[0]:.2f}" for site in ("z2", "z3")]
        shown = (TITLES[kind[0]], "yes" if kind[1] else "no", *kind[2:], *weights)
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines)


def figures(out: Path, headline: tuple[str, str]) -> list[Path]:
    """The plane of z₁, generated images with labels, and the learned weights."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    reading, images = headline
    found = {
        name: np.load(path)
        for name in NAMES
        if (path := out / "pictures" / f"{name}-{reading}-{images}.npz").exists()
    }
    if not found:
        return []
    written = []
    figure, axes = plt.subplots(
        1, len(found), figsize=(4.5 * len(found), 4.2), squeeze=False, layout="constrained"
    )
    for axis, (name, data) in zip(axes[0], found.items(), strict=True):
        points = axis.scatter(*data["z1"].T, c=data["z1_labels"], cmap="tab10", s=4)
        axis.set(title=TITLES[name], xlabel="first number of z₁", ylabel="second number of z₁")
    figure.colorbar(points, ax=axes[0, -1], label="class", ticks=range(10))
    written.append(_save(figure, out / "embedding.png"))
    side = 8
    figure = plt.figure(figsize=(5.2 * len(found), 6.2))
    parts = figure.subfigures(1, len(found), squeeze=False)[0]
    for part, (name, data) in zip(parts, found.items(), strict=True):
        part.suptitle(TITLES[name])
        shown = zip(data["generated"], data["generated_labels"], strict=True)
        for axis, (image, label) in zip(part.subplots(side, side).ravel(), shown, strict=False):
            axis.imshow(image, cmap="gray", vmin=0, vmax=255)
            axis.set_title(str(label), fontsize=7, pad=1)
            axis.set_axis_off()
    written.append(_save(figure, out / "generated.png"))
    figure, axes = plt.subplots(
        1, len(found), figsize=(4 * len(found), 3), squeeze=False, layout="constrained"
    )
    for axis, (name, data) in zip(axes[0], found.items(), strict=True):
        for site, label in (("weights_z2", "λ of z₂"), ("weights_z3", "λ of z₃")):
            weights = np.asarray(data[site], float)
            axis.hist(weights, np.linspace(0, 1, 21), histtype="step", label=label)
        axis.set(title=TITLES[name], xlabel="prior weight", ylabel="numbers of the latent")
        axis.legend()
    written.append(_save(figure, out / "weights.png"))
    return written


def _save(figure: Any, path: Path) -> Path:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
    return path
