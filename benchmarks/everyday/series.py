"""Takes nothing; gives time series: ARMA, volatility, hidden levels and hidden states."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.contrib.control_flow import scan
from scipy import stats

from benchmarks.everyday import exact
from benchmarks.everyday.entry import Data, Everyday


def ar2(y: jax.Array):
    """An autoregression on the last two values."""
    constant = numpyro.sample("constant", dist.Normal(0.0, 10.0))
    phi = numpyro.sample("phi", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(5.0))
    with numpyro.plate("time", len(y) - 2):
        mean = constant + phi[0] * y[1:-1] + phi[1] * y[:-2]
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y[2:])


def ar2_data() -> Data:
    rng = np.random.default_rng(31)
    y = [20.0, 20.0]
    for noise in rng.normal(0.0, 1.5, 120):
        y.append(4.0 + 1.1 * y[-1] - 0.3 * y[-2] + noise)
    return (np.round(y, 2),), {}


def ar2_evidence(y) -> float:
    design = np.stack([np.ones(len(y) - 2), y[1:-1], y[:-2]], -1)
    prior_sd = np.array([10.0, 1.0, 1.0])
    return exact.over_scales(
        lambda sigma: exact.linear_regression(design, y[2:], prior_sd, sigma),
        [lambda sigma: stats.halfnorm.logpdf(sigma, scale=5.0)],
        [(0.3, 10.0)],
    )


def arma11(y: jax.Array):
    """ARMA(1, 1): the last value and the last surprise."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    phi = numpyro.sample("phi", dist.Normal(0.0, 0.5))
    theta = numpyro.sample("theta", dist.Normal(0.0, 0.5))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))

    def step(carry, y_t):
        last, surprise = carry
        mean = mu + phi * (last - mu) + theta * surprise
        return (y_t, y_t - mean), mean

    _, mean = jax.lax.scan(step, (mu, jnp.zeros_like(mu)), y)
    with numpyro.plate("time", len(y)):
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def arma11_data() -> Data:
    rng = np.random.default_rng(32)
    noise = rng.normal(0.0, 1.2, 150)
    y = [5.0 + noise[0]]
    for t in range(1, 150):
        y.append(5.0 + 0.7 * (y[-1] - 5.0) + 0.4 * noise[t - 1] + noise[t])
    return (np.round(y, 3),), {}


def garch11(y: jax.Array):
    """GARCH(1, 1) of daily returns: variance follows the last shock and the last variance."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    base = numpyro.sample("base", dist.HalfNormal(1.0))
    shock = numpyro.sample("shock", dist.Uniform(0.0, 1.0))
    memory = numpyro.sample("memory", dist.Uniform(0.0, 1.0 - shock))

    def step(variance, y_t):
        following = base + shock * (y_t - mu) ** 2 + memory * variance
        return following, variance

    _, variance = jax.lax.scan(step, jnp.var(y), y)
    with numpyro.plate("time", len(y)):
        numpyro.sample("y", dist.Normal(mu, jnp.sqrt(variance)), obs=y)


def garch11_data() -> Data:
    rng = np.random.default_rng(33)
    y, variance = [], 1.0
    for z in rng.normal(size=250):
        y.append(0.1 + np.sqrt(variance) * z)
        variance = 0.2 + 0.3 * (y[-1] - 0.1) ** 2 + 0.5 * variance
    return (np.round(y, 3),), {}


def local_level(y: jax.Array):
    """A river's yearly flow around a level that wanders: state-space model."""
    sd_level = numpyro.sample("sd_level", dist.HalfNormal(100.0))
    sd_noise = numpyro.sample("sd_noise", dist.HalfNormal(200.0))
    first = numpyro.sample("first", dist.Normal(1000.0, 300.0))

    def step(level, y_t):
        level = numpyro.sample("level", dist.Normal(level, sd_level))
        numpyro.sample("y", dist.Normal(level, sd_noise), obs=y_t)
        return level, None

    scan(step, first, y)


def local_level_twin(y):
    sd_level = numpyro.sample("sd_level", dist.HalfNormal(100.0))
    sd_noise = numpyro.sample("sd_noise", dist.HalfNormal(200.0))
    first = numpyro.sample("first", dist.Normal(1000.0, 300.0))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
    level = numpyro.deterministic("level", first + sd_level * jnp.cumsum(z))
    numpyro.sample("y", dist.Normal(level, sd_noise).to_event(1), obs=y)


def local_level_data() -> Data:
    rng = np.random.default_rng(34)
    level = 1100.0 + np.cumsum(rng.normal(0.0, 45.0, 50))
    return (np.round(rng.normal(level, 110.0)),), {}


def local_level_evidence(y) -> float:
    time = np.arange(1.0, len(y) + 1)
    walk = np.minimum.outer(time, time)  # covariance of a random walk with steps of variance 1

    def log_likelihood(sd_level: np.ndarray, sd_noise: np.ndarray) -> np.ndarray:
        of_level, of_noise = (s[:, None, None] ** 2 for s in (sd_level, sd_noise))
        return exact.gaussian(y, 1000.0, 300.0**2 + of_level * walk + of_noise * np.eye(len(y)))

    return exact.over_scales(
        log_likelihood,
        [
            lambda s: stats.halfnorm.logpdf(s, scale=100.0),
            lambda s: stats.halfnorm.logpdf(s, scale=200.0),
        ],
        [(1e-6, 1000.0), (20.0, 600.0)],
        points=90,
    )


def stochastic_volatility(y: jax.Array):
    """Returns whose log variance is a hidden autoregression."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    phi = numpyro.sample("phi", dist.Beta(20.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    first = numpyro.sample("first", dist.Normal(mu, sigma / jnp.sqrt(1.0 - phi**2)))

    def step(h, y_t):
        h = numpyro.sample("h", dist.Normal(mu + phi * (h - mu), sigma))
        numpyro.sample("y", dist.Normal(0.0, jnp.exp(h / 2)), obs=y_t)
        return h, None

    scan(step, first, y)


def stochastic_volatility_twin(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    phi = numpyro.sample("phi", dist.Beta(20.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([len(y) + 1]).to_event(1))
    first = numpyro.deterministic("first", mu + sigma / jnp.sqrt(1.0 - phi**2) * z[0])

    def step(h, z_t):
        h = mu + phi * (h - mu) + sigma * z_t
        return h, h

    h = numpyro.deterministic("h", jax.lax.scan(step, first, z[1:])[1])
    numpyro.sample("y", dist.Normal(0.0, jnp.exp(h / 2)).to_event(1), obs=y)


def stochastic_volatility_data() -> Data:
    rng = np.random.default_rng(35)
    h, y = 0.0, []
    for _ in range(60):
        h = 0.95 * h + 0.4 * rng.normal()
        y.append(np.exp(h / 2) * rng.normal())
    return (np.round(y, 3),), {}


def hidden_markov(y: jax.Array):
    """A hidden Markov model of two states, summed over by the forward algorithm."""
    sticky = jnp.array([[4.0, 1.0], [1.0, 4.0]])
    with numpyro.plate("state", 2):
        transition = numpyro.sample("transition", dist.Dirichlet(sticky))
    low = numpyro.sample("low", dist.Normal(0.0, 5.0))
    gap = numpyro.sample("gap", dist.HalfNormal(5.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    means = jnp.stack([low, low + gap])
    log_emission = dist.Normal(means, sigma).log_prob(y[:, None])

    def forward(log_alpha, log_emission_t):
        arrived = logsumexp(log_alpha[:, None] + jnp.log(transition), axis=0)
        return arrived + log_emission_t, None

    start = jnp.log(0.5) + log_emission[0]
    log_alpha, _ = jax.lax.scan(forward, start, log_emission[1:])
    numpyro.factor("forward", logsumexp(log_alpha))


def hidden_markov_data() -> Data:
    rng = np.random.default_rng(36)
    states = [0]
    for u in rng.uniform(size=119):
        states.append(states[-1] if u < (0.9, 0.8)[states[-1]] else 1 - states[-1])
    return (np.round(rng.normal(np.array([-1.0, 3.0])[states], 1.0), 3),), {}


ENTRIES = [
    Everyday("ar2", ar2, ar2_data, closed_form=ar2_evidence),
    Everyday("arma11", arma11, arma11_data),
    Everyday("garch11", garch11, garch11_data, target_accept=0.95),
    Everyday(
        "local-level",
        local_level,
        local_level_data,
        truth_model=local_level_twin,
        closed_form=local_level_evidence,
        target_accept=0.95,
    ),
    Everyday(
        "stochastic-volatility",
        stochastic_volatility,
        stochastic_volatility_data,
        truth_model=stochastic_volatility_twin,
        target_accept=0.99,
    ),
    Everyday("hidden-markov", hidden_markov, hidden_markov_data),
]
