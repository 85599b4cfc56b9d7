"""Takes predictors and responses; gives Gaussian linear regressions, most with flat priors.

Stan's parameter without a prior has a flat one on its support: an improper uniform here.
"""

from __future__ import annotations

import jax
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints


def flat(X: jax.Array, y: jax.Array):
    """Coefficients and noise scale all have flat priors."""
    beta = numpyro.sample("beta", dist.ImproperUniform(constraints.real, (), (X.shape[1],)))
    sigma = numpyro.sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def cauchy_noise(X: jax.Array, y: jax.Array):
    """Flat coefficients; the noise scale is half-Cauchy."""
    beta = numpyro.sample("beta", dist.ImproperUniform(constraints.real, (), (X.shape[1],)))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def ridge(X: jax.Array, y: jax.Array):
    """Normal coefficients without a constant; the noise scale is half-normal."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([X.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(10.0))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def centred(X: jax.Array, y: jax.Array):
    """Centred predictors; a constant with heavy tails and a half-Student-t noise scale."""
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    intercept = numpyro.sample("Intercept", dist.StudentT(3.0, 8.0, 10.0))
    sigma = numpyro.sample("sigma", dist.FoldedDistribution(dist.StudentT(3.0, 0.0, 10.0)))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(intercept + X @ b, sigma), obs=y)


def line(x: jax.Array, y: jax.Array, alpha_prior: tuple, beta_prior: tuple):
    """A line, whose priors are data: mean and standard deviation of constant and slope."""
    alpha = numpyro.sample("alpha", dist.Normal(*alpha_prior))
    beta = numpyro.sample("beta", dist.Normal(*beta_prior))
    sigma = numpyro.sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(alpha + beta * x, sigma), obs=y)
