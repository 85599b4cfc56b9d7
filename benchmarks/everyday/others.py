"""Takes nothing; gives nonlinear curves, a differential equation, a Gaussian process, a mixture."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import OrderedTransform

from benchmarks.everyday.entry import Data, Everyday


def gp_poisson(x: jax.Array, y: jax.Array | None = None):
    """Yearly counts whose log rate is a Gaussian process of unknown lengthscale."""
    lengthscale = numpyro.sample("lengthscale", dist.InverseGamma(5.0, 20.0))
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(1.0))
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([len(x)]).to_event(1))
    distance = (x[:, None] - x[None, :]) / lengthscale
    kernel = jnp.exp(-0.5 * distance**2) + 1e-4 * jnp.eye(len(x))
    rate = jnp.exp(mean + amplitude * jnp.linalg.cholesky(kernel) @ z)
    with numpyro.plate("year", len(x)):
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def gp_poisson_data() -> Data:
    rng = np.random.default_rng(41)
    x = np.arange(25.0)
    return (x,), {"y": rng.poisson(np.exp(1.2 + np.sin(x / 4.0)))}


def lotka_volterra(hare_and_lynx: jax.Array):
    """Hares and lynxes in Canada, 1900 to 1920: a differential equation with unknown rates."""
    start = numpyro.sample("start", dist.LogNormal(jnp.log(10.0), 1.0).expand([2]).to_event(1))
    rates = numpyro.sample(
        "rates",
        dist.TruncatedNormal(
            jnp.array([1.0, 0.05, 1.0, 0.05]), jnp.array([0.5, 0.05, 0.5, 0.05]), low=0.0
        ).to_event(1),
    )
    sigma = numpyro.sample("sigma", dist.LogNormal(-1.0, 1.0).expand([2]).to_event(1))
    substeps, length = 4, 0.25

    def slope(logs):
        # Logarithms, so that numbers stay positive whatever the rates.
        hares, lynxes = jnp.exp(logs)
        return jnp.stack([rates[0] - rates[1] * lynxes, -rates[2] + rates[3] * hares])

    def step(logs, _):
        a = slope(logs)
        b = slope(logs + length / 2 * a)
        c = slope(logs + length / 2 * b)
        d = slope(logs + length * c)
        return logs + length / 6 * (a + 2 * b + 2 * c + d), logs

    years = len(hare_and_lynx)
    _, logs = jax.lax.scan(step, jnp.log(start), length=substeps * years)
    numpyro.sample(
        "hare_and_lynx", dist.LogNormal(logs[::substeps], sigma).to_event(2), obs=hare_and_lynx
    )


def lotka_volterra_data() -> Data:
    hares = [
        *(30.0, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22.0, 25.4, 27.1),
        *(40.3, 57.0, 76.6, 52.3, 19.5, 11.2, 7.6, 14.6, 16.2, 24.7),
    ]
    lynxes = [
        *(4.0, 6.1, 9.8, 35.2, 59.4, 41.7, 19.0, 13.0, 8.3, 9.1, 7.4),
        *(8.0, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8, 9.7, 10.1, 8.6),
    ]
    return (np.stack([hares, lynxes], -1),), {}


def logistic_growth(days: jax.Array, y: jax.Array | None = None):
    """Height of a plant that stops growing: a logistic curve of time."""
    ceiling = numpyro.sample("ceiling", dist.HalfNormal(500.0))
    rate = numpyro.sample("rate", dist.LogNormal(-2.0, 1.0))
    midpoint = numpyro.sample("midpoint", dist.Normal(50.0, 50.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(20.0))
    with numpyro.plate("day", len(days)):
        mean = ceiling / (1.0 + jnp.exp(-rate * (days - midpoint)))
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def logistic_growth_data() -> Data:
    rng = np.random.default_rng(42)
    days = np.arange(0.0, 84.0, 3.0)
    mean = 260.0 / (1.0 + np.exp(-0.09 * (days - 38.0)))
    return (days,), {"y": np.round(rng.normal(mean, 8.0), 1)}


def michaelis_menten(concentration: jax.Array, velocity: jax.Array | None = None):
    """Velocity of an enzyme's reaction: saturates with the concentration."""
    v_max = numpyro.sample("v_max", dist.LogNormal(5.0, 1.0))
    k_m = numpyro.sample("k_m", dist.LogNormal(0.0, 1.5))
    sigma = numpyro.sample("sigma", dist.Exponential(0.1))
    with numpyro.plate("assay", len(concentration)):
        mean = v_max * concentration / (k_m + concentration)
        numpyro.sample("velocity", dist.Normal(mean, sigma), obs=velocity)


def michaelis_menten_data() -> Data:
    rng = np.random.default_rng(43)
    concentration = np.repeat([0.02, 0.06, 0.11, 0.22, 0.56, 1.10], 2)
    mean = 210.0 * concentration / (0.065 + concentration)
    return (concentration,), {"velocity": np.round(rng.normal(mean, 10.0))}


def dose_response(dose: jax.Array, response: jax.Array | None = None):
    """A four-parameter logistic curve of the dose, from nanomolar to 100 micromolar."""
    bottom = numpyro.sample("bottom", dist.Normal(0.0, 20.0))
    top = numpyro.sample("top", dist.Normal(100.0, 20.0))
    log_ec50 = numpyro.sample("log_ec50", dist.Normal(0.0, 3.0))
    hill = numpyro.sample("hill", dist.LogNormal(0.0, 0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(10.0))
    with numpyro.plate("well", len(dose)):
        share = jax.nn.sigmoid(hill * (jnp.log(dose) - log_ec50))
        mean = bottom + (top - bottom) * share
        numpyro.sample("response", dist.Normal(mean, sigma), obs=response)


def dose_response_data() -> Data:
    rng = np.random.default_rng(44)
    dose = np.repeat([0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0], 3)
    mean = 4.0 + 90.0 / (1.0 + (0.8 / dose) ** 1.2)
    return (dose,), {"response": np.round(rng.normal(mean, 6.0), 1)}


def mixture(y: jax.Array | None = None, rows: int = 150):
    """Waiting times with two humps: two normals with ordered means, summed over."""
    weight = numpyro.sample("weight", dist.Dirichlet(jnp.array([2.0, 2.0])))
    base = dist.Normal(jnp.array([50.0, 3.0]), jnp.array([20.0, 1.0])).to_event(1)
    means = numpyro.sample("means", dist.TransformedDistribution(base, OrderedTransform()))
    scales = numpyro.sample("scales", dist.HalfNormal(20.0).expand([2]).to_event(1))
    law = dist.MixtureSameFamily(dist.Categorical(weight), dist.Normal(means, scales))
    with numpyro.plate("row", rows):
        numpyro.sample("y", law, obs=y)


def mixture_data() -> Data:
    rng = np.random.default_rng(45)
    second = rng.uniform(size=150) < 0.65
    return (), {"y": np.round(rng.normal(np.where(second, 80.0, 54.0), 6.0))}


ENTRIES = [
    Everyday("gp-poisson", gp_poisson, gp_poisson_data, target_accept=0.99),
    Everyday("lotka-volterra", lotka_volterra, lotka_volterra_data),
    Everyday("logistic-growth", logistic_growth, logistic_growth_data),
    Everyday("michaelis-menten", michaelis_menten, michaelis_menten_data),
    Everyday("dose-response", dose_response, dose_response_data),
    Everyday("mixture", mixture, mixture_data),
]
