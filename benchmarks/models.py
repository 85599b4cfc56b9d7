"""Models for the benchmarks, each with its data."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.handlers import seed, trace


def lorenz(y: jax.Array, mask: jax.Array) -> None:
    """Lorenz system by Euler steps of 0.02; the first of three coordinates is observed."""
    dt, innovation = 0.02, 0.1 * 0.02**0.5

    def step(state, inputs):
        y_t, observed = inputs
        a, b, c = state[0], state[1], state[2]
        drift = jnp.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c])
        state = numpyro.sample("state", dist.Normal(state + dt * drift, innovation).to_event(1))
        with numpyro.handlers.mask(mask=observed):
            numpyro.sample("y", dist.Normal(state[0], 1.0), obs=y_t)
        return state, None

    first = numpyro.sample("first", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    with numpyro.handlers.mask(mask=mask[0]):
        numpyro.sample("y_first", dist.Normal(first[0], 1.0), obs=y[0])
    scan(step, first, (y[1:], mask[1:]))


def lorenz_data(seed_number: int, length: int = 30) -> tuple[jax.Array, jax.Array]:
    """Simulated observations; steps 10 to 19 are missing."""
    mask = jnp.asarray((np.arange(length) < 10) | (np.arange(length) >= 20))
    drawn = trace(seed(lorenz, seed_number)).get_trace(jnp.zeros(length), mask)
    x = jnp.concatenate([drawn["first"]["value"][None, 0], drawn["state"]["value"][:, 0]])
    noise = jax.random.normal(jax.random.key(1000 + seed_number), (length,))
    return jnp.where(mask, x + noise, 0.0), mask


def chain(y: jax.Array) -> None:
    """A Gaussian random walk seen through Gaussian noise, under ``scan``."""

    def step(x, y_t):
        x = numpyro.sample("x", dist.Normal(x, 0.1))
        numpyro.sample("y", dist.Normal(x, 0.15), obs=y_t)
        return x, None

    scan(step, 0.0, y)


def chain_data(length: int) -> jax.Array:
    rng = np.random.default_rng(length)
    walk = np.cumsum(0.1 * rng.standard_normal(length))
    return jnp.asarray(walk + 0.15 * rng.standard_normal(length), jnp.result_type(float))


def chain_loop(y: jax.Array) -> None:
    """The same chain as a Python loop."""
    x = 0.0
    for t in range(len(y)):
        x = numpyro.sample(f"x{t}", dist.Normal(x, 0.1))
        numpyro.sample(f"y{t}", dist.Normal(x, 0.15), obs=y[t])


def groups(y: jax.Array) -> None:
    """A plate of groups below a common mean and spread."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    with numpyro.plate("group", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def regression(x: jax.Array, y: jax.Array) -> None:
    """Linear regression with unknown noise."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 5.0))
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(x.shape[-1]), 1.0).to_event(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Normal(intercept + x @ weights, noise), obs=y)
