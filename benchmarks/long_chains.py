"""Takes nothing; gives whole calls of ``asvi.fit`` on chains of many steps, beside the truth.

``python -m benchmarks.long_chains``: a walk seen with noise, both of unknown scale.
A Kalman filter integrates the walk out, quadrature the scales: evidence and moments are exact.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from benchmarks.harness import save, table
from benchmarks.large import beside_truth

GRID = 81
DEEP = 15.0  # nats below the highest point: what is left out beyond


def model(y: jax.Array) -> None:
    """A walk from 0, seen at each of its steps."""
    step = numpyro.sample("step", dist.HalfNormal(1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))

    def walk(x, y_t):
        x = numpyro.sample("x", dist.Normal(x, step))
        numpyro.sample("y", dist.Normal(x, noise), obs=y_t)
        return x, None

    scan(walk, jnp.zeros(()), y)


def data(length: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    path = np.cumsum(0.3 * rng.normal(size=length))
    return (path + 0.6 * rng.normal(size=length)).astype(np.float32)


def log_joint(y: np.ndarray, step: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Log p(y, scales), for all pairs of scales at once."""
    log = np.log(2 / np.pi) - 0.5 * (step**2 + noise**2)
    mean, variance = np.zeros(step.shape), np.zeros(step.shape)
    for seen in np.asarray(y, float):
        variance = variance + step**2
        total = variance + noise**2
        log = log - 0.5 * np.log(2 * np.pi * total) - 0.5 * (seen - mean) ** 2 / total
        gain = variance / total
        mean, variance = mean + gain * (seen - mean), (1 - gain) * variance
    return log


def truth(y: np.ndarray) -> tuple[float, dict[str, tuple[float, float]]]:
    """Log evidence, and mean and sd of the scales."""
    box = [(0.01, 2.0), (0.01, 2.0)]
    for _ in range(3):  # closer each time
        axes = [np.linspace(*side, GRID) for side in box]
        step, noise = np.meshgrid(*axes, indexing="ij")
        log = log_joint(y, step, noise)
        inside = log > log.max() - DEEP
        wide = [axis[1] - axis[0] for axis in axes]
        box = [
            (max(1e-3, x[inside].min() - w), x[inside].max() + w)
            for x, w in zip((step, noise), wide, strict=True)
        ]
    weights = np.exp(log - log.max())
    evidence = float(log.max() + np.log(weights.sum() * wide[0] * wide[1]))
    weights /= weights.sum()
    moments = {}
    for name, x in (("step", step), ("noise", noise)):
        mean = float(np.sum(weights * x))
        moments[name] = mean, float(np.sqrt(np.sum(weights * (x - mean) ** 2)))
    return evidence, moments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="*", default=[100, 200, 240, 1000])
    parser.add_argument("--data", type=int, nargs="*", default=[0, 1])
    asked = parser.parse_args()
    rows = []
    for length in asked.lengths:
        for seed in asked.data:
            y = data(length, seed)
            rows.append({"length": length, "data": seed, **beside_truth(model, y, *truth(y))})
            print(rows[-1], flush=True)
    print(table(rows))
    save("long_chains", rows)


if __name__ == "__main__":
    main()
