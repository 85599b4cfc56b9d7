"""Takes nothing; gives time series: volatility, autoregressions, forecasts, lynx and hares."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.experimental.ode import odeint
from numpyro.contrib.control_flow import scan

from benchmarks.numpyro_examples.entry import Data, Example


def volatility(returns: jax.Array):
    """Stochastic volatility: log scales walk at random, returns have Student's tails."""
    step = numpyro.sample("step", dist.Exponential(20.0))
    freedom = numpyro.sample("freedom", dist.Exponential(0.1))
    walk = dist.GaussianRandomWalk(scale=step, num_steps=len(returns))
    s = numpyro.sample("s", walk)
    with numpyro.plate("day", len(returns)):
        numpyro.sample("r", dist.StudentT(freedom, 0.0, jnp.exp(s)), obs=returns)


def volatility_free(returns: jax.Array):
    """The same, by the walk's standardised steps: for NUTS."""
    step = numpyro.sample("step", dist.Exponential(20.0))
    freedom = numpyro.sample("freedom", dist.Exponential(0.1))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([len(returns)]).to_event(1))
    s = numpyro.deterministic("s", step * jnp.cumsum(z))
    with numpyro.plate("day", len(returns)):
        numpyro.sample("r", dist.StudentT(freedom, 0.0, jnp.exp(s)), obs=returns)


def volatility_data() -> Data:
    rng = np.random.default_rng(30)
    s = np.cumsum(rng.normal(0.0, 0.1, 150))
    return (np.exp(s) * rng.standard_t(8.0, 150),), {}


def ar2(y: jax.Array):
    """A second-order autoregression in a scan, its values conditioned on the data."""
    constant = numpyro.sample("constant", dist.Normal(0.0, 1.0))
    first = numpyro.sample("first", dist.Normal(0.0, 1.0))
    second = numpyro.sample("second", dist.Normal(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))

    def body(carry, at):
        last, before = carry
        mean = constant + first * last + second * before
        return (numpyro.sample("y", dist.Normal(mean, sigma), obs=at), last), None

    scan(body, (y[1], y[0]), y[2:])


def ar2_data() -> Data:
    rng = np.random.default_rng(31)
    y = [0.0, 0.5]
    for _ in range(118):
        y.append(0.3 + 1.1 * y[-1] - 0.4 * y[-2] + rng.normal(0.0, 0.5))
    return (np.array(y),), {}


def var2(y: jax.Array):
    """A second-order autoregression of three series whose noise is correlated."""
    k = y.shape[1]
    constant = numpyro.sample("constant", dist.Normal(0.0, 1.0).expand([k]).to_event(1))
    lag = numpyro.sample("lag", dist.Normal(0.0, 0.5).expand([2, k, k]).to_event(3))
    scales = numpyro.sample("scales", dist.HalfNormal(1.0).expand([k]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(k, concentration=1.0))
    noise = scales[:, None] * factor

    def body(carry, at):
        last, before = carry
        mean = constant + lag[0] @ last + lag[1] @ before
        value = numpyro.sample("y", dist.MultivariateNormal(mean, scale_tril=noise), obs=at)
        return (value, last), None

    scan(body, (y[1], y[0]), y[2:])


def var2_data() -> Data:
    rng = np.random.default_rng(32)
    a, b = 0.4 * np.eye(3) + 0.1 * rng.normal(size=(3, 3)), 0.2 * np.eye(3)
    noise = np.array([[0.5, 0, 0], [0.2, 0.4, 0], [-0.1, 0.1, 0.3]])
    y = [np.zeros(3), np.zeros(3)]
    for _ in range(98):
        y.append(0.1 + a @ y[-1] + b @ y[-2] + noise @ rng.normal(size=3))
    return (np.array(y),), {}


def holt_winters(y: jax.Array, season: int):
    """Exponential smoothing of level, trend and season: the smoothed values are known steps."""
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    of_level = numpyro.sample("of_level", dist.Beta(1.0, 1.0))
    of_trend = numpyro.sample("of_trend", dist.Uniform(0.0, 1.0))
    of_season = numpyro.sample("of_season", dist.Uniform(0.0, 1.0))
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    trend = numpyro.sample("trend", dist.Normal(0.0, 1.0))
    with numpyro.plate("of_the_year", season):
        seasons = numpyro.sample("seasons", dist.Normal(0.0, 1.0))

    def body(carry, at):
        level, trend, seasons = carry
        numpyro.sample("y", dist.Normal(level + trend + seasons[0], noise), obs=at)
        new_level = of_level * (at - seasons[0]) + (1 - of_level) * (level + trend)
        new_trend = of_trend * (new_level - level) + (1 - of_trend) * trend
        now = of_season * (at - new_level) + (1 - of_season) * seasons[0]
        return (new_level, new_trend, jnp.append(seasons[1:], now)), None

    scan(body, (level, trend, seasons), y)


def holt_winters_data() -> Data:
    rng = np.random.default_rng(33)
    t = np.arange(80)
    return (0.02 * t + np.sin(2 * np.pi * t / 4) + rng.normal(0.0, 0.2, 80), 4), {}


def local_global(y: jax.Array, season: int):
    """Forecasts of counts of lynx: a trend that grows as a power of the level, Student's noise."""
    top = jnp.max(y)
    freedom = numpyro.sample("freedom", dist.Uniform(2.0, 20.0))
    pace = numpyro.sample("pace", dist.Cauchy(0.0, top / 150))
    power = numpyro.sample("power", dist.Uniform(-0.5, 1.0))
    noise = numpyro.sample("noise", dist.HalfCauchy(top / 150))
    floor = numpyro.sample("floor", dist.HalfCauchy(top / 150))
    noise_power = numpyro.sample("noise_power", dist.Uniform(0.0, 1.0))
    of_level = numpyro.sample("of_level", dist.Beta(1.0, 2.0))
    of_season = numpyro.sample("of_season", dist.Beta(2.0, 2.0))
    seasons = numpyro.sample("seasons", dist.Cauchy(0.0, 0.5).expand([season]).to_event(1))
    factors = jnp.exp(seasons - jnp.mean(seasons))

    def body(carry, at):
        level, factors = carry
        mean = (level + pace * level**power) * factors[0]
        scale = noise * jnp.maximum(mean, 1e-3) ** noise_power + floor
        numpyro.sample("y", dist.StudentT(freedom, mean, scale), obs=at)
        new = jnp.maximum(of_level * at / factors[0] + (1 - of_level) * level, 1e-3)
        now = of_season * at / new + (1 - of_season) * factors[0]
        return (new, jnp.append(factors[1:], now)), None

    scan(body, (y[0] / factors[0], factors), y)


def local_global_data() -> Data:
    rng = np.random.default_rng(34)
    t = np.arange(72)
    y = (50 + 0.6 * t) * np.exp(0.3 * np.sin(2 * np.pi * t / 6)) * np.exp(rng.normal(0, 0.1, 72))
    return (y, 6), {}


# Pelts of hares and lynxes, in thousands, of the years 1900 to 1920 (Hudson's Bay Company).
HARES = [30, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22, 25.4, 27.1]
HARES += [40.3, 57, 76.6, 52.3, 19.5, 11.2, 7.6, 14.6, 16.2, 24.7]
LYNXES = [4, 6.1, 9.8, 35.2, 59.4, 41.7, 19, 13, 8.3, 9.1, 7.4]
LYNXES += [8, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8, 9.7, 10.1, 8.6]


def lynx_hare(years: jax.Array, y: jax.Array | None = None):
    """Predators and prey by a differential equation with four rates."""
    start = numpyro.sample("start", dist.LogNormal(jnp.log(10.0), 1.0).expand([2]).to_event(1))
    low = jnp.zeros(4)
    middle = jnp.array([1.0, 0.05, 1.0, 0.05])
    width = jnp.array([0.5, 0.05, 0.5, 0.05])
    rates = numpyro.sample("rates", dist.TruncatedNormal(middle, width, low=low).to_event(1))

    def slope(z, t, rates):
        prey, predators = z[0], z[1]
        return jnp.stack(
            [
                (rates[0] - rates[1] * predators) * prey,
                (-rates[2] + rates[3] * prey) * predators,
            ]
        )

    path = odeint(slope, start, years, rates, rtol=1e-6, atol=1e-5, mxstep=1000)
    sigma = numpyro.sample("sigma", dist.LogNormal(-1.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.LogNormal(jnp.log(jnp.maximum(path, 1e-6)), sigma), obs=y)


def lynx_hare_data() -> Data:
    return (np.arange(21.0),), {"y": np.column_stack([HARES, LYNXES])}


ENTRIES = [
    Example(
        "stochastic-volatility",
        volatility,
        volatility_data,
        truth_model=volatility_free,
        heavy_tailed=("freedom",),
    ),
    Example("ar2", ar2, ar2_data),
    Example("var2", var2, var2_data),
    Example("holt-winters", holt_winters, holt_winters_data),
    Example("local-global-trend", local_global, local_global_data, target_accept=0.95),
    Example("lynx-hare", lynx_hare, lynx_hare_data),
]
