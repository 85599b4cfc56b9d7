"""Takes a series of numbers; gives AR(5), ARMA(1, 1) and GARCH(1, 1).

The loops over time are scans, which compile once for all steps.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints


def lagged(d: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The K values before each time, the last one first; the values from time K on."""
    y, lags = np.asarray(d["y"], float), d["K"]
    before = [y[lags - k : len(y) - k] for k in range(1, lags + 1)]
    return np.stack(before, axis=1), y[lags:]


def ark(lags: jax.Array, y: jax.Array):
    """An autoregression on the values before."""
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 10.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([lags.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    with numpyro.plate("T", len(y)):
        numpyro.sample("y", dist.Normal(alpha + lags @ beta, sigma), obs=y)


def values(d: dict[str, Any]) -> tuple[np.ndarray]:
    """The series alone."""
    return (np.asarray(d["y"], float),)


def arma11(y: jax.Array):
    """The last value and the last error make the mean; before the start, the value is mu."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    phi = numpyro.sample("phi", dist.Normal(0.0, 2.0))
    theta = numpyro.sample("theta", dist.Normal(0.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))

    def step(carry, y_t):
        last, error = carry
        mean = mu + phi * last + theta * error
        return (y_t, y_t - mean), mean

    _, mean = jax.lax.scan(step, (mu, jnp.zeros_like(mu)), y)
    with numpyro.plate("T", len(y)):
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def values_and_first_scale(d: dict[str, Any]) -> tuple[np.ndarray, float]:
    """The series, and its scale at the first time."""
    return np.asarray(d["y"], float), float(d["sigma1"])


def garch11(y: jax.Array, sigma1: float):
    """The last surprise and the last variance make the variance.

    The prior is flat where ``alpha1 + beta1 < 1``. There ``alpha1`` is Beta(1, 2) and, given it,
    ``beta1`` is uniform: the two densities have a constant product, 2 (1 - a) / (1 - a).
    """
    mu = numpyro.sample("mu", dist.ImproperUniform(constraints.real, (), ()))
    alpha0 = numpyro.sample("alpha0", dist.ImproperUniform(constraints.positive, (), ()))
    alpha1 = numpyro.sample("alpha1", dist.Beta(1.0, 2.0))
    beta1 = numpyro.sample("beta1", dist.Uniform(0.0, 1.0 - alpha1))

    def step(variance, y_t):
        return alpha0 + alpha1 * (y_t - mu) ** 2 + beta1 * variance, variance

    _, variance = jax.lax.scan(step, jnp.zeros_like(mu) + sigma1**2, y)
    with numpyro.plate("T", len(y)):
        numpyro.sample("y", dist.Normal(mu, jnp.sqrt(variance)), obs=y)
