"""A law: linear Gaussian models are solved, whatever their shape and however nearly noiseless.

Chains, trees and graphs in which several numbers have effects in common, with data on some of the
numbers and on sums of them. The posterior is a Gaussian that NumPy knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import asvi
from asvi.families import StructuredNormal
from tests.support.marks import every

SHAPES = ("chain", "tree", "colliders")
LOGS = (-1.0, -4.0)  # of the smallest scale, to the base of 10


@dataclass
class Graph:
    """x = offset + weights x + scale ε in the order of the numbers; data = rows x + sd noise."""

    weights: np.ndarray  # (numbers, numbers), strictly lower triangular
    offset: np.ndarray
    scale: np.ndarray
    rows: np.ndarray  # (data, numbers)
    sd: np.ndarray
    data: np.ndarray

    def model(self, data):
        values = []
        for i, parents in enumerate(map(np.flatnonzero, self.weights)):
            loc = self.offset[i] + sum(self.weights[i, j] * values[j] for j in parents)
            values.append(numpyro.sample(f"x{i}", dist.Normal(loc, self.scale[i])))
        for k, row in enumerate(self.rows):
            loc = sum(row[j] * values[j] for j in np.flatnonzero(row))
            numpyro.sample(f"y{k}", dist.Normal(loc, self.sd[k]), obs=data[k])

    def exact(self) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Posterior mean and covariance, log evidence, and the condition over the noise."""
        count = len(self.offset)
        ahead = np.linalg.inv(np.eye(count) - self.weights)
        spread = ahead * self.scale
        slope = self.rows @ spread / self.sd[:, None]
        left = (self.data - self.rows @ ahead @ self.offset) / self.sd
        precision = np.eye(count) + slope.T @ slope
        noise = np.linalg.solve(precision, slope.T @ left)
        rest = left - slope @ noise
        evidence = -0.5 * (rest @ rest + noise @ noise + np.linalg.slogdet(precision)[1])
        evidence -= np.sum(np.log(self.sd)) + 0.5 * len(self.sd) * np.log(2 * np.pi)
        mean = ahead @ self.offset + spread @ noise
        covariance = spread @ np.linalg.solve(precision, spread.T)
        return mean, covariance, evidence, np.linalg.cond(precision)


def graph(seed: int, shape: str, log: float, surprising: bool) -> Graph:
    """One at random; its data come from it, or from elsewhere."""
    rng = np.random.default_rng(seed)
    count = 15
    weights = np.zeros((count, count))
    for i in range(1, count):
        parents = {
            "chain": [i - 1],
            "tree": [(i - 1) // 2],
            "colliders": rng.choice(i, min(i, rng.integers(1, 4)), replace=False),
        }[shape]
        weights[i, parents] = rng.normal(size=len(parents))
    seen = np.flatnonzero(rng.random(count) < 0.6)
    sums = rng.normal(size=(3, count)) * (rng.random((3, count)) < 0.2)
    rows = np.concatenate([np.eye(count)[seen], sums[sums.any(1)]])
    offset, scale = rng.normal(size=count), 10.0 ** rng.uniform(log, 1.0, count)
    sd = 10.0 ** rng.uniform(log, 0.0, len(rows))
    # As the model's single precision has them.
    weights, offset, scale, rows, sd = (
        x.astype(np.float32).astype(float) for x in (weights, offset, scale, rows, sd)
    )
    x = np.linalg.solve(np.eye(count) - weights, offset + scale * rng.normal(size=count))
    x = rng.normal(size=count) if surprising else x
    data = (rows @ x + sd * rng.normal(size=len(rows))).astype(np.float32)
    return Graph(weights, offset, scale, rows, sd, data)


@pytest.mark.parametrize("surprising", [False, True], ids=["its own data", "surprising data"])
@pytest.mark.parametrize("log", every(2, LOGS))
@pytest.mark.parametrize("shape", SHAPES)
def test_a_linear_gaussian_model_is_solved(shape, log, surprising):
    conditions = []
    for seed in range(2):
        made = graph(seed, shape, log, surprising)
        mean, covariance, evidence, condition = made.exact()
        conditions.append(condition)
        result = asvi.fit(made.model, made.data, family=StructuredNormal(), progress_bar=False)
        # Data at a million standard deviations have a density of that many digits.
        assert abs(result.elbo - evidence) < 1e-3 + 1e-9 * abs(evidence)
        assert result.num_steps == 1  # the mode's curvature says it all
        found = result.posterior.sample(jax.random.key(seed), (2000,))
        draws = np.stack([found[f"x{i}"] for i in range(len(mean))], -1).astype(float)
        sd = np.sqrt(np.diag(covariance))
        rounding = 1e-6 * np.abs(mean) / sd  # of draws in single precision
        off = (draws.mean(0) - mean) / sd
        assert np.all(np.abs(off) < 5 / np.sqrt(2000) + rounding)
        assert np.all(np.abs(draws.std(0) / sd - 1) < 5 / np.sqrt(4000) + rounding)
    assert max(conditions) > 10 ** (-1 - 2 * log)
