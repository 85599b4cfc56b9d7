"""Takes places and responses; gives Gaussian processes with normal and with Poisson responses.

The Poisson model adds only 1e-10 to the diagonal, as posteriordb's does: it needs 64-bit numbers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist


def covariance(x: jax.Array, alpha: jax.Array, rho: jax.Array) -> jax.Array:
    """The exponentiated quadratic: standard deviation alpha, length scale rho."""
    return alpha**2 * jnp.exp(-0.5 * ((x[:, None] - x[None, :]) / rho) ** 2)


def places_and_values(d: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(d["x"], float), np.asarray(d["y"], float)


def gp_regr(x: jax.Array, y: jax.Array):
    """Normal responses; sigma is the variance of the noise, the function is integrated out."""
    rho = numpyro.sample("rho", dist.Gamma(25.0, 4.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    cov = covariance(x, alpha, rho) + sigma * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), cov), obs=y)


def places_and_counts(d: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(d["x"], float), np.asarray(d["k"], int)


def gp_pois_regr(x: jax.Array, k: jax.Array):
    """Counts, whose log rate is a function; its standardised values are drawn."""
    rho = numpyro.sample("rho", dist.Gamma(25.0, 4.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2.0))
    f_tilde = numpyro.sample("f_tilde", dist.Normal(0.0, 1.0).expand([len(x)]).to_event(1))
    factor = jnp.linalg.cholesky(covariance(x, alpha, rho) + 1e-10 * jnp.eye(len(x)))
    f = numpyro.deterministic("f", factor @ f_tilde)
    with numpyro.plate("N", len(x)):
        numpyro.sample("k", dist.Poisson(jnp.exp(f)), obs=k)
