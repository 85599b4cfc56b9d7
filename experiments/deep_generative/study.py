"""Takes settings and a folder; gives the study's rows there, one training group after another.

A group is a data set, with labels or without, and a family; its lanes train together. A group whose
file is there already is not trained again, so a study that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.deep_generative.data import Images
from experiments.deep_generative.model import PIXELS, _apply, decode, encode, scales
from experiments.deep_generative.train import Lane, Setting, as_floats, lanes_of, train

__all__ = ["PAPER", "collect", "run"]

#: Table 3 of the paper: test ELBO and its standard error.
PAPER = {
    ("mnist", False): {"convex": (-134.6, 0.1), "mean_field": (-153.8, 0.2)},
    ("mnist", True): {"convex": (-99.7, 0.5), "mean_field": (-146.3, 0.5)},
    ("kmnist", False): {"convex": (-252.4, 0.3), "mean_field": (-267.0, 0.3)},
    ("kmnist", True): {"convex": (-200.3, 0.7), "mean_field": (-258.6, 0.8)},
    ("fashion-mnist", False): {"convex": (-151.1, 0.4), "mean_field": (-166.7, 0.2)},
    ("fashion-mnist", True): {"convex": (-116.4, 1.2), "mean_field": (-158.2, 1.3)},
}
DRAWN, PLACED = 64, 2000  # images generated, and test images placed in the plane of z₁


def run(
    sets: list[Images],
    setting: Setting,
    out: Path,
    groups: list[tuple[bool, str]],
    stop_after: float = float("inf"),
) -> None:
    """Train what ``out`` lacks of these groups, (with labels, family), on all sets.

    No new group is begun after ``stop_after`` seconds.
    """
    begun = time.monotonic()
    (out / "cells").mkdir(parents=True, exist_ok=True)
    for images, labels, name in _groups(sets, groups):
        path = out / "cells" / f"{images.name}-{'labels' if labels else 'images'}-{name}.json"
        if path.exists():
            continue
        if time.monotonic() - begun > stop_after:
            print("stopped: the same command goes on from here")
            return
        start = time.monotonic()
        lanes = lanes_of(setting)
        found = train(images, labels, name, lanes, setting)
        seconds = time.monotonic() - start
        rows = [_row(images, labels, name, lane, i, found, setting) for i, lane in enumerate(lanes)]
        if labels and name == "convex":
            _picture(images, lanes, found["params"], setting.means, out / "pictures")
        text = json.dumps({"setting": asdict(setting), "seconds": round(seconds, 1), "rows": rows})
        path.with_suffix(".part").write_text(text)
        path.with_suffix(".part").rename(path)
        shown = ", ".join(
            f"{lane.reading} {lane.images} {row['elbo']:.1f}"
            for lane, row in zip(lanes, rows, strict=True)
            if lane.seed == 0
        )
        print(f"{path.stem}: {shown} ({seconds:.1f} s)", flush=True)


def collect(out: Path) -> list[dict[str, Any]]:
    """All rows that are there; written to ``results.json`` too."""
    rows = []
    for path in sorted((out / "cells").glob("*.json")):
        rows += json.loads(path.read_text())["rows"]
    versions = {"jax": jax.__version__, "device": jax.devices()[0].device_kind}
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    head = json.dumps(versions)
    (out / "results.json").write_text(f'{{"versions": {head},\n "rows": [\n{lines}\n]}}\n')
    return rows


def _groups(
    sets: list[Images], groups: list[tuple[bool, str]]
) -> Iterator[tuple[Images, bool, str]]:
    for labels, name in groups:
        for images in sets:  # those of one program one after another
            yield images, labels, name


def _row(
    images: Images,
    labels: bool,
    name: str,
    lane: Lane,
    i: int,
    found: dict[str, Any],
    setting: Setting,
) -> dict[str, Any]:
    test = found["test"][i]
    weights = {
        f"prior_weight_{site}": round(float(jnp.mean(found["params"][key][i])), 4)
        for site in ("z2", "z3")
        if (key := f"auto/{site}/loc/prior_weight") in found["params"]
    }
    return {
        "dataset": images.name,
        "labels": labels,
        "family": name,
        "reading": lane.reading,
        "images": lane.images,
        "seed": lane.seed,
        "elbo": round(float(test.mean()), 3),
        "elbo_sem": round(float(test.std(ddof=1) / np.sqrt(len(test))), 4),
        "train_elbo": round(float(found["train"][i, -1]), 2),
        **weights,
        "training_images": len(images.train_images),
        "test_images": len(images.test_images),
        "steps": found["steps"],
    }


# --------------------------------------------------------------------------------- for the pictures


def _picture(
    images: Images, lanes: list[Lane], params: dict[str, Any], means: str, folder: Path
) -> None:
    """What the figures need of the models of the first seed: z₁ of test images, and new images."""
    folder.mkdir(exist_ok=True)
    for i, lane in enumerate(lanes):
        if lane.seed:
            continue
        own = jax.tree.map(lambda x, i=i: x[i], params)
        placed = _place(own, images.test_images[:PLACED], lane, means)
        drawn, labels = _generate(own, jax.random.key(lane.seed), lane)
        np.savez_compressed(
            folder / f"{images.name}-{lane.reading}-{lane.images}.npz",
            z1=np.asarray(placed, np.float16),
            z1_labels=images.test_labels[:PLACED],
            generated=np.asarray(jnp.clip(255 * drawn, 0, 255), np.uint8).reshape((-1, 28, 28)),
            generated_labels=np.asarray(labels, np.uint8),
            weights_z2=np.asarray(own["auto/z2/loc/prior_weight"], np.float16).ravel(),
            weights_z3=np.asarray(own["auto/z3/loc/prior_weight"], np.float16).ravel(),
        )


def _encoder(params: dict[str, Any]) -> dict[str, Any]:
    """The inference network's parameters, as :func:`encode` takes them."""
    nested: dict[str, Any] = {}
    for name, value in params.items():
        if name.startswith("auto/encoder/"):
            layer, part = name.split("/")[2:]
            nested.setdefault(layer, {})[part] = value
    return nested


def _place(params: dict[str, Any], images: np.ndarray, lane: Lane, means: str) -> jax.Array:
    shown = as_floats(jnp.asarray(images), lane.images == "binarised")
    return encode(_encoder(params), shown, means)["z1"]["loc"]


def _generate(params: dict[str, Any], key: jax.Array, lane: Lane) -> tuple[jax.Array, jax.Array]:
    """Images and labels from the prior: latents drawn, pixels and labels at their likeliest."""
    networks, sd = params["networks"], scales(lane.reading)
    keys = jax.random.split(key, 3)
    z1 = sd[0] * jax.random.normal(keys[0], (DRAWN, 2))
    mean = decode(networks, "f1", z1)
    z2 = mean + sd[1] * jax.random.normal(keys[1], mean.shape)
    mean = decode(networks, "f2", z2)
    z3 = mean + sd[2] * jax.random.normal(keys[2], mean.shape)
    pixels = _apply(networks["g1"], z3).reshape((-1, PIXELS))
    return pixels, jnp.argmax(_apply(networks["g2"], z2), -1)
