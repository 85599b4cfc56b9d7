"""Takes nothing; gives linear regressions: raw, collinear, robust and sparse."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular
from scipy import stats

from benchmarks.everyday import exact
from benchmarks.everyday.entry import Data, Everyday


def linear_raw(age: jax.Array, income: jax.Array, year: jax.Array, y: jax.Array | None = None):
    """Linear regression on age, income and year as they stand in the table."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 1000.0))
    b_age = numpyro.sample("b_age", dist.Normal(0.0, 10.0))
    b_income = numpyro.sample("b_income", dist.Normal(0.0, 1.0))
    b_year = numpyro.sample("b_year", dist.Normal(0.0, 10.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(50.0))
    mean = intercept + b_age * age + b_income * income + b_year * year
    with numpyro.plate("row", len(age)):
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def linear_raw_data() -> Data:
    rng = np.random.default_rng(1)
    age = rng.integers(20, 65, 150).astype(float)
    income = np.round(rng.lognormal(np.log(48_000), 0.4, 150), -2)
    year = rng.integers(2002, 2020, 150).astype(float)
    mean = 118 + 0.6 * (age - 40) - 1e-4 * (income - 50_000) - 0.4 * (year - 2010)
    return (age, income, year), {"y": np.round(rng.normal(mean, 9.0), 1)}


def linear_raw_evidence(age, income, year, y) -> float:
    design = np.stack([np.ones_like(age), age, income, year], -1)
    prior_sd = np.array([1000.0, 10.0, 1.0, 10.0])
    return exact.over_scales(
        lambda sigma: exact.linear_regression(design, y, prior_sd, sigma),
        [lambda sigma: stats.halfnorm.logpdf(sigma, scale=50.0)],
        [(1.0, 100.0)],
    )


def linear_collinear(x: jax.Array, y: jax.Array | None = None):
    """Linear regression with two columns that are nearly the same."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 10.0))
    b = numpyro.sample("b", dist.Normal(0.0, 10.0).expand([x.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(intercept + x @ b, sigma), obs=y)


def linear_collinear_data() -> Data:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(100, 5))
    x[:, 1] = x[:, 0] + 0.02 * x[:, 1]
    x = np.round(x, 3)
    mean = 1.5 + x @ np.array([1.0, 0.5, -0.7, 0.0, 0.3])
    return (x,), {"y": np.round(rng.normal(mean, 0.8), 3)}


def linear_collinear_evidence(x, y) -> float:
    design = np.concatenate([np.ones((len(x), 1)), x], 1)
    return exact.over_scales(
        lambda sigma: exact.linear_regression(design, y, np.full(6, 10.0), sigma),
        [lambda sigma: stats.expon.logpdf(sigma)],
        [(0.2, 5.0)],
    )


def linear_known_noise(x: jax.Array, y: jax.Array | None = None):
    """Linear regression whose noise is known, as that of a calibrated instrument."""
    b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(x @ b, 0.5), obs=y)


def linear_known_noise_data() -> Data:
    rng = np.random.default_rng(3)
    x = np.round(np.c_[np.ones(40), rng.normal(size=(40, 4))], 3)
    mean = x @ np.array([0.5, 1.0, -1.0, 0.2, 0.0])
    return (x,), {"y": np.round(rng.normal(mean, 0.5), 3)}


def linear_known_noise_evidence(x, y) -> float:
    return float(exact.linear_regression(x, y, np.full(5, 2.0), np.array(0.5)))


def polynomial_raw(x: jax.Array, y: jax.Array | None = None):
    """Cubic regression on raw powers of x between 0 and 20."""
    b0 = numpyro.sample("b0", dist.Normal(0.0, 100.0))
    b1 = numpyro.sample("b1", dist.Normal(0.0, 10.0))
    b2 = numpyro.sample("b2", dist.Normal(0.0, 10.0))
    b3 = numpyro.sample("b3", dist.Normal(0.0, 10.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(10.0))
    with numpyro.plate("row", len(x)):
        mean = b0 + b1 * x + b2 * x**2 + b3 * x**3
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def polynomial_raw_data() -> Data:
    rng = np.random.default_rng(4)
    x = np.round(rng.uniform(0.0, 20.0, 60), 1)
    mean = 5.0 + 4.0 * x - 0.6 * x**2 + 0.02 * x**3
    return (x,), {"y": np.round(rng.normal(mean, 3.0), 2)}


def polynomial_raw_evidence(x, y) -> float:
    design = np.stack([np.ones_like(x), x, x**2, x**3], -1)
    prior_sd = np.array([100.0, 10.0, 10.0, 10.0])
    return exact.over_scales(
        lambda sigma: exact.linear_regression(design, y, prior_sd, sigma),
        [lambda sigma: stats.halfnorm.logpdf(sigma, scale=10.0)],
        [(0.5, 30.0)],
    )


def wide_scales(x: jax.Array, y: jax.Array | None = None):
    """Linear regression whose coefficients span four orders of magnitude: grams beside tonnes."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 100.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1000.0).expand([x.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.Exponential(0.1))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(intercept + x @ b, sigma), obs=y)


def wide_scales_data() -> Data:
    rng = np.random.default_rng(5)
    units = np.array([0.01, 0.1, 1.0, 10.0, 100.0])
    x = np.round((3.0 + rng.normal(size=(120, 5))) * units, 5)
    mean = 10.0 + x @ (np.array([2.0, -1.0, 3.0, 0.5, -2.0]) / units)
    return (x,), {"y": np.round(rng.normal(mean, 4.0), 2)}


def wide_scales_evidence(x, y) -> float:
    design = np.concatenate([np.ones((len(x), 1)), x], 1)
    prior_sd = np.array([100.0, *[1000.0] * 5])
    return exact.over_scales(
        lambda sigma: exact.linear_regression(design, y, prior_sd, sigma),
        [lambda sigma: stats.expon.logpdf(sigma, scale=10.0)],
        [(0.5, 50.0)],
    )


def robust(x: jax.Array, y: jax.Array | None = None):
    """Student-t regression: a few outliers must not move the line."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 10.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 10.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(5.0))
    nu = numpyro.sample("nu", dist.Gamma(2.0, 0.1))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.StudentT(nu, intercept + slope * x, sigma), obs=y)


def robust_data() -> Data:
    rng = np.random.default_rng(6)
    x = np.round(rng.uniform(0.0, 10.0, 100), 2)
    y = 2.0 + 0.8 * x + 0.7 * rng.standard_t(3.0, 100)
    y[:4] += np.array([12.0, -9.0, 15.0, 8.0])
    return (x,), {"y": np.round(y, 3)}


def horseshoe(x: jax.Array, y: jax.Array | None = None):
    """Sparse regression with the horseshoe, non-centred as in NumPyro's own example."""
    with numpyro.plate("column", x.shape[1]):
        lam = numpyro.sample("lam", dist.HalfCauchy(1.0))
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    b = numpyro.deterministic("b", tau * lam * z)
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(x @ b, sigma), obs=y)


def horseshoe_twin(x, y):
    """Coefficients integrated out, and drawn from what is then their exact normal law."""
    with numpyro.plate("column", x.shape[1]):
        lam = numpyro.sample("lam", dist.HalfCauchy(1.0))
        e = numpyro.sample("e", dist.Normal(0.0, 1.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    design, target = x * (tau * lam) / sigma, y / sigma
    factor = jnp.linalg.cholesky(jnp.eye(x.shape[1]) + design.T @ design)
    half = solve_triangular(factor, design.T @ target, lower=True)
    numpyro.deterministic("z", solve_triangular(factor, half + e, lower=True, trans=1))
    log_volume = jnp.log(jnp.diagonal(factor)).sum() + len(y) * jnp.log(sigma)
    square = target @ target - half @ half
    numpyro.factor("y", -0.5 * (square + len(y) * jnp.log(2 * jnp.pi)) - log_volume)


def horseshoe_data() -> Data:
    rng = np.random.default_rng(7)
    x = np.round(rng.normal(size=(60, 8)), 3)
    mean = x @ np.array([3.0, 0.0, 0.0, -1.5, 0.0, 0.0, 0.0, 0.0])
    return (x,), {"y": np.round(rng.normal(mean, 1.0), 3)}


ENTRIES = [
    Everyday("linear-raw", linear_raw, linear_raw_data, closed_form=linear_raw_evidence),
    Everyday(
        "linear-collinear",
        linear_collinear,
        linear_collinear_data,
        closed_form=linear_collinear_evidence,
    ),
    Everyday(
        "linear-known-noise",
        linear_known_noise,
        linear_known_noise_data,
        closed_form=linear_known_noise_evidence,
    ),
    Everyday(
        "polynomial-raw", polynomial_raw, polynomial_raw_data, closed_form=polynomial_raw_evidence
    ),
    Everyday("wide-scales", wide_scales, wide_scales_data, closed_form=wide_scales_evidence),
    Everyday("robust", robust, robust_data),
    Everyday(
        "horseshoe",
        horseshoe,
        horseshoe_data,
        truth_model=horseshoe_twin,
        target_accept=0.95,
        heavy_tailed=("lam", "tau"),
    ),
]
