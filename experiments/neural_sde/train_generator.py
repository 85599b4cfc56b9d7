"""Takes a packed data set; gives a trained DCGAN generator, its sample grid and its card.

``python -m experiments.neural_sde.train_generator cifar10 --data data_cache --out out``

The standard recipe: non-saturating loss, Adam(2e-4, b1 = 0.5), batches of 128, weights from
N(0, 0.02), pixels in [-1, 1], real labels smoothed to 0.9, mirror images for CIFAR-10. What is kept
is the running average of the generator's weights, with batch normalisation by 4,096 latents. The
whole data set stays on the device, and each chunk of steps is one compiled loop.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from experiments.neural_sde import generator as generators
from experiments.neural_sde.data import images
from experiments.neural_sde.pictures import grid

LATENT = {"cifar10": 100, "fashion": 120}
AVERAGING = 0.9995  # of the generator's weights, per step


class State(NamedTuple):
    """All that a step of training changes."""

    key: jax.Array
    makes: dict[str, Any]
    judges: dict[str, Any]
    average: dict[str, Any]
    optimizers: tuple[Any, Any]


# ------------------------------------------------------------------------------- the discriminator


def start_discriminator(key: jax.Array, width: int, channels: int) -> dict[str, Any]:
    """Four convolutions of stride 2 and a linear layer; normalised but for the first."""
    features = [channels, width, 2 * width, 4 * width, 8 * width]
    shapes = [(4, 4, a, b) for a, b in pairwise(features)]
    shapes.append((2, 2, features[-1], 1))
    keys = jax.random.split(key, len(shapes))
    gains = [jnp.ones(n) for n in features[2:]]
    return {
        "kernels": [0.02 * jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)],
        "gains": gains,
        "offsets": [jnp.zeros_like(g) for g in gains],
    }


def discriminate(params: dict[str, Any], x: jax.Array) -> jax.Array:
    """Log odds that each image is real."""
    for i, kernel in enumerate(params["kernels"][:-1]):
        x = lax.conv_general_dilated(
            x, kernel, (2, 2), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        if i > 0:
            mean, variance = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
            x = (x - mean) * lax.rsqrt(variance + 1e-5)
            x = x * params["gains"][i - 1] + params["offsets"][i - 1]
        x = jax.nn.leaky_relu(x, 0.2)
    return jnp.einsum("nhwi,hwio->n", x, params["kernels"][-1])


def _loss(log_odds: jax.Array, label: float) -> jax.Array:
    return jnp.mean(optax.sigmoid_binary_cross_entropy(log_odds, jnp.full_like(log_odds, label)))


# ----------------------------------------------------------------------------------------- training


def make_step(optimizer: optax.GradientTransformation, latent: int, batch: int, mirror: bool):
    """One step for both networks, as a function of a state and of the data."""

    def step(data: jax.Array, state: State) -> tuple[State, dict[str, jax.Array]]:
        key, rows, turn, first, second = jax.random.split(state.key, 5)
        x = data[jax.random.randint(rows, (batch,), 0, len(data))]
        x = x.astype(jnp.float32) / 127.5 - 1.0
        if mirror:
            turned = jax.random.bernoulli(turn, shape=(batch, 1, 1, 1))
            x = jnp.where(turned, x[:, :, ::-1], x)

        def of_judges(judges):
            made, _ = generators.in_training(state.makes, jax.random.normal(first, (batch, latent)))
            real, fake = discriminate(judges, x), discriminate(judges, made)
            right = (jnp.mean(real > 0) + jnp.mean(fake < 0)) / 2
            return _loss(real, 0.9) + _loss(fake, 0.0), right

        (judge_loss, right), slope = jax.value_and_grad(of_judges, has_aux=True)(state.judges)
        change, judge_memory = optimizer.update(slope, state.optimizers[1])
        judges: Any = optax.apply_updates(state.judges, change)

        def of_makes(makes):
            made, _ = generators.in_training(makes, jax.random.normal(second, (batch, latent)))
            return _loss(discriminate(judges, made), 1.0)

        make_loss, slope = jax.value_and_grad(of_makes)(state.makes)
        change, make_memory = optimizer.update(slope, state.optimizers[0])
        makes: Any = optax.apply_updates(state.makes, change)
        average: Any = optax.incremental_update(makes, state.average, 1 - AVERAGING)
        told = {"generator": make_loss, "discriminator": judge_loss, "right": right}
        return State(key, makes, judges, average, (make_memory, judge_memory)), told

    return step


def train(
    data: np.ndarray,
    *,
    latent: int,
    key: jax.Array,
    width: int = 64,
    steps: int = 40_000,
    seconds: float = 200.0,
    batch: int = 128,
    chunk: int = 1000,
    mirror: bool = False,
) -> tuple[generators.Generator, dict[str, Any]]:
    """A generator of images like ``data``, and an account of its training.

    Stops after ``steps``, or with the chunk that ends after ``seconds``.
    """
    begun = time.monotonic()
    keys = jax.random.split(key, 5)
    channels = data.shape[-1]
    optimizer = optax.adam(2e-4, b1=0.5)
    makes = generators.start(keys[0], latent, width, channels)
    judges = start_discriminator(keys[1], width, channels)
    average = jax.tree.map(jnp.copy, makes)
    state = State(keys[2], makes, judges, average, (optimizer.init(makes), optimizer.init(judges)))
    step = make_step(optimizer, latent, batch, mirror)

    @partial(jax.jit, donate_argnums=1)
    def run(data: jax.Array, state: State) -> tuple[State, dict[str, jax.Array]]:
        state, told = lax.scan(lambda state, _: step(data, state), state, length=chunk)
        return state, jax.tree.map(jnp.mean, told)

    on_device, losses, done = jnp.asarray(data), [], 0
    while done < steps and time.monotonic() - begun < seconds:
        state, told = run(on_device, state)
        done += chunk
        losses.append({"step": done, **{name: round(float(x), 4) for name, x in told.items()}})
        print(f"{time.monotonic() - begun:6.1f} s  {losses[-1]}", flush=True)
        if not np.isfinite(losses[-1]["generator"]):
            raise FloatingPointError("training has diverged; try another --seed")
    made = generators.folded(state.average, jax.random.normal(keys[3], (4096, latent)))
    account = {
        "images": len(data),
        "latent": latent,
        "width": width,
        "batch": batch,
        "steps": done,
        "seconds": round(time.monotonic() - begun, 1),
        "device": jax.devices()[0].device_kind,
        "averaging": AVERAGING,
        "losses": losses,
    }
    return made, account


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(LATENT))
    parser.add_argument("--data", type=Path, default=Path("data_cache"))
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--latent", type=int, default=None)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--chunk", type=int, default=1000)
    parser.add_argument("--images", type=int, default=None, help="use the first so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-as", default=None, help="name of the files; the data set's name")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    data = images(chosen.name, chosen.data)[: chosen.images]
    print(f"{chosen.name}: {data.shape} on {jax.devices()[0].device_kind}", flush=True)
    key = jax.random.key(chosen.seed)
    generator, account = train(
        data,
        latent=chosen.latent or LATENT[chosen.name],
        key=key,
        width=chosen.width,
        steps=chosen.steps,
        seconds=chosen.seconds,
        batch=chosen.batch,
        chunk=chosen.chunk,
        mirror=chosen.name == "cifar10",
    )
    name = chosen.save_as or chosen.name
    path = chosen.out / f"{name}.npz"
    generators.save(generator, path)
    kept = generators.load(path)  # what others will use, rounding and all
    samples = jax.jit(kept)(jax.random.normal(jax.random.key(1), (64, kept.latent)))
    grid(np.asarray(samples), chosen.out / f"{name}_samples.png")
    account = {"data": chosen.name, "seed": chosen.seed, **account, "bytes": path.stat().st_size}
    (chosen.out / f"{name}.json").write_text(json.dumps(account, indent=1) + "\n")
    print(f"wrote {path} ({account['bytes'] / 1e6:.1f} MB), its samples and its card", flush=True)


if __name__ == "__main__":
    main()
