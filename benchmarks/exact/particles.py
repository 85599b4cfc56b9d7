"""Takes a Lorenz task; gives its log evidence by a bootstrap particle filter, with its error.

The filter's estimate of the evidence is unbiased. Unknown scales are drawn once per particle from
their prior and stay with it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

from asvi.tasks.time_series import DT, lorenz_drift


def log_evidence(
    key: jax.Array, y: jax.Array, observed: jax.Array, particles: int, unknown_scales: bool
) -> jax.Array:
    """One run of the filter."""
    start_key, scale_key, walk_key = jax.random.split(key, 3)
    x = jax.random.normal(start_key, (particles, 3))
    scales = jnp.broadcast_to(jnp.array([0.1, 1.0]), (particles, 2))
    if unknown_scales:
        scales = jnp.exp(-1.0 + jax.random.normal(scale_key, (particles, 2)))

    def step(state, inputs):
        x, scales, first = state
        key, y_t, seen = inputs
        move_key, choose_key = jax.random.split(key)
        noise = jax.random.normal(move_key, x.shape)
        moved = x + DT * lorenz_drift(x) + DT**0.5 * scales[:, :1] * noise
        x = jnp.where(first, x, moved)
        log_weight = jnp.where(seen, norm.logpdf(y_t, x[:, 0], scales[:, 1]), 0.0)
        gained = logsumexp(log_weight) - jnp.log(particles)
        # Systematic resampling: one uniform number, `particles` evenly spaced pointers.
        cumulative = jnp.cumsum(jax.nn.softmax(log_weight))
        pointers = (jnp.arange(particles) + jax.random.uniform(choose_key)) / particles
        chosen = jnp.searchsorted(cumulative / cumulative[-1], pointers)
        chosen = jnp.where(seen, jnp.clip(chosen, 0, particles - 1), jnp.arange(particles))
        return (x[chosen], scales[chosen], False), gained

    keys = jax.random.split(walk_key, len(y))
    _, gained = jax.lax.scan(step, (x, scales, True), (keys, y, observed))
    return gained.sum()


def lorenz(
    y: np.ndarray,
    observed: np.ndarray,
    unknown_scales: bool,
    particles: int = 400_000,
    runs: int = 16,
    seed: int = 0,
) -> dict[str, Any]:
    """Mean and standard error over independent runs (of the evidence, then logarithm)."""
    run = jax.jit(
        lambda key: log_evidence(
            key, jnp.asarray(y), jnp.asarray(observed), particles, unknown_scales
        )
    )
    found = np.array([run(key) for key in jax.random.split(jax.random.key(seed), runs)])
    relative = np.exp(found - found.max())
    mean = relative.mean()
    return {
        "log_evidence": float(found.max() + np.log(mean)),
        "log_evidence_error": float(relative.std(ddof=1) / np.sqrt(runs) / mean),
        "method": f"particle filter, {runs} runs of {particles} particles",
    }
