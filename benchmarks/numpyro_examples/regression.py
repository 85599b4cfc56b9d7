"""Takes nothing; gives regressions: divorces, cover types, shrinkage, lungs, a small network."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.numpyro_examples.entry import Data, Example


def divorce(marriage: jax.Array, age: jax.Array, rate: jax.Array | None = None):
    """Divorce rates of fifty states on marriage rates and the age at marriage, standardised."""
    a = numpyro.sample("a", dist.Normal(0.0, 0.2))
    b_marriage = numpyro.sample("b_marriage", dist.Normal(0.0, 0.5))
    b_age = numpyro.sample("b_age", dist.Normal(0.0, 0.5))
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    mean = a + b_marriage * marriage + b_age * age
    numpyro.sample("rate", dist.Normal(mean, sigma), obs=rate)


def divorce_measured(marriage, age, error, rate=None):
    """The same states with divorce rates that are measured with known errors."""
    a = numpyro.sample("a", dist.Normal(0.0, 0.2))
    b_marriage = numpyro.sample("b_marriage", dist.Normal(0.0, 0.5))
    b_age = numpyro.sample("b_age", dist.Normal(0.0, 0.5))
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    mean = a + b_marriage * marriage + b_age * age
    with numpyro.plate("state", len(marriage)):
        true = numpyro.sample("true", dist.Normal(mean, sigma))
        numpyro.sample("rate", dist.Normal(true, error), obs=rate)


def states() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(10)
    age = rng.normal(size=50)
    marriage = -0.7 * age + 0.7 * rng.normal(size=50)
    return marriage, age, -0.6 * age + 0.7 * rng.normal(size=50), rng.uniform(0.2, 0.7, 50)


def divorce_data() -> Data:
    marriage, age, rate, _ = states()
    return (marriage, age), {"rate": rate}


def divorce_measured_data() -> Data:
    marriage, age, rate, error = states()
    noise = np.random.default_rng(11).normal(0.0, error)
    return (marriage, age, error), {"rate": rate + noise}


def covtype(x: jax.Array, y: jax.Array | None = None):
    """Logistic regression of one cover type on twelve standardised columns, a thousand rows."""
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def covtype_data() -> Data:
    rng = np.random.default_rng(12)
    common = rng.normal(size=(1000, 3))
    x = 0.8 * common @ rng.normal(size=(3, 11)) + rng.normal(size=(1000, 11))
    x = np.column_stack([(x - x.mean(0)) / x.std(0), np.ones(1000)])
    logits = x @ rng.normal(0.0, 0.6, 12)
    return (x,), {"y": rng.binomial(1, 1 / (1 + np.exp(-logits)))}


def horseshoe(x: jax.Array, y: jax.Array | None = None):
    """Linear regression with a horseshoe prior: two of ten columns matter."""
    local = numpyro.sample("local", dist.HalfCauchy(1.0).expand([x.shape[1]]).to_event(1))
    overall = numpyro.sample("overall", dist.HalfCauchy(1.0))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    weights = numpyro.deterministic("weights", overall * local * z)
    precision = numpyro.sample("precision", dist.Gamma(3.0, 1.0))
    numpyro.sample("y", dist.Normal(x @ weights, 1 / jnp.sqrt(precision)), obs=y)


def horseshoe_data() -> Data:
    rng = np.random.default_rng(13)
    x = rng.normal(size=(80, 10))
    weights = np.zeros(10)
    weights[:2] = 1.5, -0.8
    return (x,), {"y": x @ weights + rng.normal(0.0, 0.5, 80)}


def pairwise(x: jax.Array, y: jax.Array | None = None):
    """Sparse regression on columns and their pairs, the weights integrated out in a kernel."""
    n, columns = x.shape
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    overall = numpyro.sample("overall", dist.HalfNormal(1.0))
    pair = numpyro.sample("pair", dist.HalfNormal(0.5))
    with numpyro.plate("column", columns):
        local = numpyro.sample("local", dist.HalfNormal(1.0))
    scaled = x * local
    inner = scaled @ scaled.T
    of_pairs = 0.5 * (inner**2 - (scaled**2) @ (scaled**2).T)
    covariance = overall**2 * inner + pair**2 * of_pairs + (noise**2 + 1e-4) * jnp.eye(n)
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(n), covariance), obs=y)


def pairwise_data() -> Data:
    rng = np.random.default_rng(14)
    x = rng.normal(size=(60, 6))
    return (x,), {"y": x[:, 0] - 0.7 * x[:, 1] + 0.6 * x[:, 0] * x[:, 1] + rng.normal(0, 0.3, 60)}


def lungs(patient: jax.Array, week: jax.Array, patients: int, volume: jax.Array | None = None):
    """Volumes of lungs over weeks: each patient has an intercept and a slope of his own."""
    mean_intercept = numpyro.sample("mean_intercept", dist.Normal(0.0, 100.0))
    sd_intercept = numpyro.sample("sd_intercept", dist.HalfNormal(100.0))
    mean_slope = numpyro.sample("mean_slope", dist.Normal(0.0, 3.0))
    sd_slope = numpyro.sample("sd_slope", dist.HalfNormal(3.0))
    with numpyro.plate("patients", patients):
        intercept = numpyro.sample("intercept", dist.Normal(mean_intercept, sd_intercept))
        slope = numpyro.sample("slope", dist.Normal(mean_slope, sd_slope))
    sigma = numpyro.sample("sigma", dist.HalfNormal(100.0))
    mean = intercept[patient] + slope[patient] * week
    with numpyro.plate("visit", len(patient)):
        numpyro.sample("volume", dist.Normal(mean, sigma), obs=volume)


def lungs_data() -> Data:
    rng = np.random.default_rng(15)
    patient = np.repeat(np.arange(20), 6)
    week = np.tile([0.0, 5.0, 10.0, 20.0, 30.0, 50.0], 20) + rng.integers(-2, 3, 120)
    intercept, slope = rng.normal(250.0, 60.0, 20), rng.normal(-2.5, 1.5, 20)
    volume = intercept[patient] + slope[patient] * week + rng.normal(0.0, 25.0, 120)
    return (patient, week, 20), {"volume": volume}


def network(x: jax.Array, y: jax.Array | None = None):
    """A network with one layer of three units, seen through its noise and its curve."""
    inner = numpyro.sample("inner", dist.Normal(jnp.zeros((2, 3)), 1.0).to_event(2))
    outer = numpyro.sample("outer", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    precision = numpyro.sample("precision", dist.Gamma(3.0, 1.0))
    curve = numpyro.deterministic("curve", jnp.tanh(x @ inner) @ outer)
    with numpyro.plate("point", len(x)):
        numpyro.sample("y", dist.Normal(curve, 1 / jnp.sqrt(precision)), obs=y)


def network_data() -> Data:
    rng = np.random.default_rng(16)
    x = np.linspace(-1.0, 1.0, 40)
    y = x + 0.4 * np.sin(4 * x) + rng.normal(0.0, 0.3, 40)
    return (np.column_stack([np.ones(40), x]),), {"y": y}


def cuped(before: jax.Array, treated: jax.Array, after: jax.Array | None = None):
    """An experiment whose outcome is known before it, too: that sharpens the effect."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    effect = numpyro.sample("effect", dist.Normal(0.0, 2.0))
    scales = numpyro.sample("scales", dist.HalfNormal(3.0).expand([2]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, concentration=1.5))
    at = mean + jnp.stack([jnp.zeros(len(before)), effect * treated], -1)
    both = None if after is None else jnp.stack([before, after], -1)
    with numpyro.plate("unit", len(before)):
        law = dist.MultivariateNormal(at, scale_tril=scales[:, None] * factor)
        numpyro.sample("both", law, obs=both)


def cuped_data() -> Data:
    rng = np.random.default_rng(17)
    before, treated = rng.normal(3.0, 1.5, 120), rng.binomial(1, 0.5, 120).astype(float)
    after = 0.8 * before + 1.0 + 0.4 * treated + rng.normal(0.0, 0.7, 120)
    return (before, treated), {"after": after}


ENTRIES = [
    Example("divorce", divorce, divorce_data),
    Example("divorce-measured", divorce_measured, divorce_measured_data),
    Example("covtype", covtype, covtype_data),
    Example(
        "horseshoe",
        horseshoe,
        horseshoe_data,
        target_accept=0.98,
        heavy_tailed=("local", "overall"),
    ),
    Example("sparse-pairwise", pairwise, pairwise_data, target_accept=0.95),
    Example("lungs", lungs, lungs_data),
    Example("small-network", network, network_data, compared=("curve", "precision")),
    Example("cuped", cuped, cuped_data),
]
