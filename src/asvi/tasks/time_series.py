"""Takes embedded observations; gives the Brownian and Lorenz tasks, as scans and as loops.

Both processes run for 30 steps, and steps 10 to 19 are not observed: the guide has to bridge them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow import scan

from asvi.tasks.task import Task, read_json

__all__ = ["TASKS", "lorenz_drift"]

#: constant of the formula: the Euler step of the Lorenz system
DT = 0.02
GYM = (
    "Inference Gym (Sountsov, Radul and contributors, 2020), https://pypi.org/project/inference_gym"
)


# ------------------------------------------------------------------------------------- Brownian


def brownian(y: jax.Array, observed: jax.Array) -> None:
    """A random walk with steps of sd 0.1, seen through noise of sd 0.15."""
    _walk(y, observed, 0.1, 0.15)


def brownian_global(y: jax.Array, observed: jax.Array) -> None:
    """The same walk; both scales unknown."""
    innovation = numpyro.sample("innovation_scale", dist.LogNormal(0.0, 2.0))
    noise = numpyro.sample("observation_scale", dist.LogNormal(0.0, 2.0))
    _walk(y, observed, innovation, noise)


def _walk(y: jax.Array, observed: jax.Array, innovation, noise) -> None:
    def step(x, inputs):
        y_t, seen = inputs
        x = numpyro.sample("x", dist.Normal(x, innovation))
        with handlers.mask(mask=seen):
            numpyro.sample("y", dist.Normal(x, noise), obs=y_t)
        return x, None

    scan(step, 0.0, (y, observed))


def brownian_loop(y: jax.Array, observed: np.ndarray) -> None:
    """`brownian` as a Python loop."""
    x = 0.0
    for t in range(len(y)):
        x = numpyro.sample(f"x_{t}", dist.Normal(x, 0.1))
        if observed[t]:
            numpyro.sample(f"y_{t}", dist.Normal(x, 0.15), obs=y[t])


# --------------------------------------------------------------------------------------- Lorenz


def lorenz_drift(x: jax.Array) -> jax.Array:
    """The Lorenz system's vector field with (σ, ρ, β) = (10, 28, 8/3); last axis has size 3."""
    a, b, c = x[..., 0], x[..., 1], x[..., 2]
    return jnp.stack([10.0 * (b - a), a * (28.0 - c) - b, a * b - 8.0 / 3.0 * c], -1)


def lorenz(y: jax.Array, observed: jax.Array) -> None:
    """Euler steps of 0.02 of a noisy Lorenz system; the first coordinate is seen, with sd 1."""
    _system(y, observed, 0.1, 1.0)


def lorenz_global(y: jax.Array, observed: jax.Array) -> None:
    """The same system; both scales unknown."""
    innovation = numpyro.sample("innovation_scale", dist.LogNormal(-1.0, 1.0))
    noise = numpyro.sample("observation_scale", dist.LogNormal(-1.0, 1.0))
    _system(y, observed, innovation, noise)


def _system(y: jax.Array, observed: jax.Array, innovation, noise) -> None:
    def observe(name, x, y_t, seen):
        with handlers.mask(mask=seen):
            numpyro.sample(name, dist.Normal(x[0], noise), obs=y_t)

    def step(x, inputs):
        y_t, seen = inputs
        moved = dist.Normal(x + DT * lorenz_drift(x), DT**0.5 * innovation)
        x = numpyro.sample("x", moved.to_event(1))
        observe("y", x, y_t, seen)
        return x, None

    x0 = numpyro.sample("x0", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    observe("y0", x0, y[0], observed[0])
    scan(step, x0, (y[1:], observed[1:]))


def lorenz_loop(y: jax.Array, observed: np.ndarray) -> None:
    """`lorenz` as a Python loop."""
    x: Any = numpyro.sample("x_0", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    for t in range(len(y)):
        if t > 0:
            moved = dist.Normal(x + DT * lorenz_drift(x), DT**0.5 * 0.1)
            x = numpyro.sample(f"x_{t}", moved.to_event(1))
        if observed[t]:
            numpyro.sample(f"y_{t}", dist.Normal(x[0], 1.0), obs=y[t])


# ---------------------------------------------------------------------------------------- tasks


def _observations(name: str) -> tuple[np.ndarray, np.ndarray]:
    values = np.array(read_json("time_series.json")[name], float)
    # Unobserved entries are masked; 0 keeps their unused densities finite.
    return np.nan_to_num(values).astype(np.float32), ~np.isnan(values)


TASKS = {
    "brownian": lambda: Task(
        "brownian",
        brownian,
        _observations("brownian"),
        citation=GYM,
        description="random walk of 30 steps, scales known",
        loop=brownian_loop,
    ),
    "brownian-global": lambda: Task(
        "brownian-global",
        brownian_global,
        _observations("brownian"),
        citation=GYM,
        description="random walk of 30 steps, both scales unknown",
    ),
    "lorenz": lambda: Task(
        "lorenz",
        lorenz,
        _observations("lorenz"),
        citation=GYM,
        description="chaotic 3-D system of 30 steps, one coordinate seen",
        loop=lorenz_loop,
    ),
    "lorenz-global": lambda: Task(
        "lorenz-global",
        lorenz_global,
        _observations("lorenz"),
        citation=GYM,
        description="the same system, both scales unknown",
    ),
}
