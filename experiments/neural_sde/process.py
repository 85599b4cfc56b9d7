"""Takes a network for the drift and a generator; gives the neural SDE as a NumPyro model, and data.

The latent path is dx = F(x) dt + dB with F(x) = W2 tanh(x + tanh(W1 x)), by Euler-Maruyama with
step 1 from x = 0, so that the first state is standard normal:

    x_0 ~ N(0, I),    x_t ~ N(x_{t-1} + F(x_{t-1}), I),    y_t ~ N(G(x_t), sigma^2)

for t = 0..9. W1, W2, G and sigma are known; the path is not. In *filtering* all frames are seen
through noise; in *bridging* only the first three and the last two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow import scan

from experiments.neural_sde.generator import Generator

__all__ = ["FRAMES", "PROBLEMS", "Drift", "Episode", "neural_sde", "observed_frames", "simulate"]

FRAMES = 10
PROBLEMS = ("filtering", "bridging")
NOISE = 1.0  # sigma, on pixels in [-1, 1]; the paper gives no number
WEIGHTS = 0.2  # standard deviation of the entries of W1 and W2


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Drift:
    """F(x) = W2 tanh(x + tanh(W1 x))."""

    first: jax.Array
    second: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second @ jnp.tanh(x + jnp.tanh(self.first @ x))


class Episode(NamedTuple):
    """One repetition: what is known, what is seen and, for judging alone, the true path."""

    drift: Drift
    frames: jax.Array  # (time, height, width, channels), noisy
    seen: jax.Array  # (time,), boolean
    path: jax.Array  # (time, latent)


def neural_sde(
    drift: Drift,
    generator: Generator,
    frames: jax.Array,
    seen: jax.Array,
    noise: float | jax.Array = NOISE,
) -> None:
    """The model. Frames that are not ``seen`` are masked: their pixels do not matter."""

    def step(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        x = numpyro.sample("x", dist.Normal(x + drift(x), 1.0).to_event(1))
        return x, x

    # The path first, then all frames at once: one large batch for the generator.
    _, path = scan(step, jnp.zeros(generator.latent), None, length=len(frames))
    with numpyro.plate("time", len(frames)), handlers.mask(mask=seen):
        numpyro.sample("y", dist.Normal(generator(path), noise).to_event(3), obs=frames)


def observed_frames(problem: str, frames: int = FRAMES) -> jax.Array:
    """Which frames are seen.

    >>> observed_frames("bridging").tolist()
    [True, True, True, False, False, False, False, False, True, True]
    """
    if problem not in PROBLEMS:
        raise ValueError(f"problem={problem!r} is not known; choose one of {', '.join(PROBLEMS)}.")
    time = jnp.arange(frames)
    return (problem == "filtering") | (time < 3) | (time >= frames - 2)


def simulate(
    key: jax.Array,
    generator: Generator,
    problem: str,
    *,
    frames: int = FRAMES,
    noise: float = NOISE,
) -> Episode:
    """New dynamics, a path from them, and its frames with noise."""
    first, second, steps, pixels = jax.random.split(key, 4)
    d = generator.latent
    drift = Drift(
        WEIGHTS * jax.random.normal(first, (d, d)), WEIGHTS * jax.random.normal(second, (d, d))
    )

    def step(x: jax.Array, jump: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = x + drift(x) + jump
        return x, x

    _, path = jax.lax.scan(step, jnp.zeros(d), jax.random.normal(steps, (frames, d)))
    clean = generator(path)
    noisy = clean + noise * jax.random.normal(pixels, clean.shape)
    return Episode(drift, noisy, observed_frames(problem, frames), path)
