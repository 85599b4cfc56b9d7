"""Takes sizes; gives steps per second and memory of a fit, beside the generator's own pass.

One step is ``SVI.update`` with ``asvi.ELBO`` on the filtering problem. Its yardstick is the
likelihood alone: the generator's forward pass on as many frames and its gradient with respect to
the latent path, in a loop of its own. Both are compiled loops of several steps; the fastest of
three counts. Memory is what the compiled program says that it needs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from numpyro.infer import SVI

import asvi
from benchmarks.harness import seconds as fastest
from experiments.neural_sde.fitting import families
from experiments.neural_sde.generator import Generator, random_generator
from experiments.neural_sde.process import FRAMES, NOISE, neural_sde, simulate

__all__ = ["cases", "measure", "one_case"]


def cases(small: bool) -> Iterator[dict[str, Any]]:
    """What is measured: one size at a time is changed, from 100 numbers, 10 frames and 10 draws."""
    names = ("convex", "mean field", "linear", "coupled")
    base = {"family": "convex", "latent": 100, "frames": FRAMES, "draws": 10}
    seen = []
    changes: list[dict[str, Any]] = [{"draws": n} for n in (1, 10, 100)]
    changes += [{"latent": n} for n in (50, 100, 200, 400)]
    changes += [{"frames": n, "draws": 1} for n in (10, 100, 1000)]
    changes += [{"family": name} for name in names]
    if small:
        base |= {"latent": 16, "draws": 2}
        changes = [{"draws": 1}, {"draws": 4}, {"latent": 32}, {"frames": 40}]
    for change in changes:
        case = {**base, **change}
        if case not in seen:
            seen.append(case)
            yield case


def measure(path: Path, *, small: bool, seconds: float = float("inf")) -> None:
    """Measure all cases that are not in the file yet, and start none after ``seconds``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = json.loads(path.read_text()) if path.exists() else []
    begun = time.monotonic()
    for case in cases(small):
        known = any(all(row[key] == value for key, value in case.items()) for row in rows)
        if known or time.monotonic() - begun > seconds:
            continue
        rows.append({**case, **one_case(**case, width=4 if small else 64)})
        print(rows[-1], flush=True)
        path.write_text(json.dumps(rows, indent=1) + "\n")


def one_case(family: str, latent: int, frames: int, draws: int, width: int) -> dict[str, Any]:
    """Speed and memory of one size."""
    generator = random_generator(jax.random.key(0), latent, width, 3)
    episode = simulate(jax.random.key(1), generator, "filtering", frames=frames)
    data = (episode.drift, generator, episode.frames, episode.seen)
    guide = asvi.autoguide(neural_sde, family=families(latent, frames)[family])
    loss = asvi.ELBO(num_particles=draws)
    svi = SVI(neural_sde, guide, asvi.natural_units(optax.adam(1e-3), guide), loss)
    state = svi.init(jax.random.key(2), *data)
    loops = max(2, min(50, 50_000 // (draws * frames)))

    def steps(state: Any, data: Any) -> Any:
        return lax.scan(lambda state, _: svi.update(state, *data), state, length=loops)

    compiled = jax.jit(steps).lower(state, data).compile()
    step = fastest(lambda: compiled(state, data)) / loops
    memory = compiled.memory_analysis()
    alone = fastest(_yardstick(generator, episode.frames, draws, loops)) / loops
    return {
        "steps_per_second": 1.0 / step,
        "step_ms": 1e3 * step,
        "generator_ms": 1e3 * alone,
        "ratio": step / alone,
        "memory_mb": (memory.temp_size_in_bytes + memory.argument_size_in_bytes) / 1e6,
        "device": jax.devices()[0].device_kind,
    }


def _yardstick(
    generator: Generator, frames: jax.Array, draws: int, loops: int
) -> Callable[[], Any]:
    """The generator's forward pass and gradient, ``loops`` times."""

    def loss(paths: jax.Array, generator: Generator, frames: jax.Array) -> jax.Array:
        return jnp.sum((generator(paths) - frames) ** 2) / (2 * NOISE**2)

    @jax.jit
    def passes(paths: jax.Array, generator: Generator, frames: jax.Array) -> Any:
        def one(paths: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            value, slope = jax.value_and_grad(loss)(paths, generator, frames)
            return paths - 1e-6 * slope, value

        return lax.scan(one, paths, length=loops)

    shape = (draws, len(frames), generator.latent)
    paths = jax.random.normal(jax.random.key(3), shape)
    return lambda: passes(paths, generator, frames)
