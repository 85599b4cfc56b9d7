"""Takes a Lorenz task; gives its log evidence and moments by a bootstrap particle filter.

The filter's estimate of the evidence is unbiased. Unknown scales are drawn once per particle from
their prior and stay with it. The lines of descent of the last particles are draws of the posterior;
runs are weighed by their evidence.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

from asvi.tasks.time_series import DT, lorenz_drift


def one_run(
    key: jax.Array, y: jax.Array, observed: jax.Array, particles: int, unknown_scales: bool
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """One run of the filter: log evidence, and first and second moments, (2, ...) by site."""
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
        return (x[chosen], scales[chosen], False), (gained, x, chosen)

    def descent(line, inputs):
        x, chosen = inputs
        line = chosen[line]
        return line, _moments(x[line])

    keys = jax.random.split(walk_key, len(y))
    (_, scales, _), (gained, x, chosen) = jax.lax.scan(step, (x, scales, True), (keys, y, observed))
    _, path = jax.lax.scan(descent, jnp.arange(particles), (x, chosen), reverse=True)
    moments = {"x0": path[0], "x": jnp.swapaxes(path[1:], 0, 1)}
    if unknown_scales:
        innovation, noise = _moments(scales).T
        moments |= {"innovation_scale": innovation, "observation_scale": noise}
    return gained.sum(), moments


def _moments(x: jax.Array) -> jax.Array:
    return jnp.stack([x.mean(0), (x**2).mean(0)])


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
        lambda key: one_run(key, jnp.asarray(y), jnp.asarray(observed), particles, unknown_scales)
    )
    keys = jax.random.split(jax.random.key(seed), runs)
    evidences, moments = zip(*[jax.device_get(run(key)) for key in keys], strict=True)
    found = np.array(evidences)
    relative = np.exp(found - found.max())
    mean = relative.mean()
    weights = relative / relative.sum()
    pooled = jax.tree.map(lambda *each: np.tensordot(weights, np.stack(each), 1), *moments)
    return {
        "log_evidence": float(found.max() + np.log(mean)),
        "log_evidence_error": float(relative.std(ddof=1) / np.sqrt(runs) / mean),
        "method": f"particle filter, {runs} runs of {particles} particles",
        "mean": {site: first for site, (first, _) in pooled.items()},
        "sd": {site: np.sqrt(second - first**2) for site, (first, second) in pooled.items()},
    }
