"""Takes nothing; gives smooth functions: Gaussian processes, reduced ones, on a ring; splines."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.numpyro_examples.entry import Data, Example


def squared_exponential(x: jax.Array, variance: jax.Array, length: jax.Array) -> jax.Array:
    return variance * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2)


def gp(x: jax.Array, y: jax.Array | None = None):
    """A Gaussian process with its function integrated out: three log-normal hyperparameters."""
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 10.0))
    length = numpyro.sample("length", dist.LogNormal(0.0, 10.0))
    noise = numpyro.sample("noise", dist.LogNormal(0.0, 10.0))
    covariance = squared_exponential(x, variance, length) + (noise + 1e-5) * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), covariance), obs=y)


def gp_data() -> Data:
    rng = np.random.default_rng(20)
    x = np.linspace(-1.0, 1.0, 30)
    y = x + 0.2 * x**3 + 0.5 * (0.5 + x) ** 2 * np.sin(4 * x) + rng.normal(0.0, 0.15, 30)
    return (x,), {"y": (y - y.mean()) / y.std()}


def gp_counts(x: jax.Array, y: jax.Array | None = None):
    """Poisson counts whose log rate is a Gaussian process, drawn from white noise."""
    length = numpyro.sample("length", dist.InverseGamma(5.0, 1.5))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    level = numpyro.sample("level", dist.Normal(1.0, 1.0))
    covariance = squared_exponential(x, 1.0, length) + 1e-4 * jnp.eye(len(x))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([len(x)]).to_event(1))
    f = numpyro.deterministic("f", level + scale * jnp.linalg.cholesky(covariance) @ z)
    with numpyro.plate("point", len(x)):
        numpyro.sample("y", dist.Poisson(jnp.exp(f)), obs=y)


def gp_counts_data() -> Data:
    rng = np.random.default_rng(21)
    x = np.linspace(0.0, 1.0, 25)
    return (x,), {"y": rng.poisson(np.exp(1.3 + 0.8 * np.sin(7 * x)))}


def hsgp(x: jax.Array, terms: int, y: jax.Array | None = None):
    """A Gaussian process by its first twenty sines on an interval (Hilbert space approximation)."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    length = numpyro.sample("length", dist.InverseGamma(4.0, 2.0))
    noise = numpyro.sample("noise", dist.HalfNormal(0.5))
    half = 1.5
    frequency = jnp.arange(1, terms + 1) * jnp.pi / (2 * half)
    basis = jnp.sin(frequency * (x[:, None] + half)) / jnp.sqrt(half)
    spectrum = scale**2 * jnp.sqrt(2 * jnp.pi) * length * jnp.exp(-0.5 * (length * frequency) ** 2)
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([terms]).to_event(1))
    f = numpyro.deterministic("f", basis @ (jnp.sqrt(spectrum) * weights))
    with numpyro.plate("point", len(x)):
        numpyro.sample("y", dist.Normal(f, noise), obs=y)


def hsgp_data() -> Data:
    rng = np.random.default_rng(22)
    x = np.linspace(-1.0, 1.0, 60)
    return (x, 20), {"y": np.sin(3 * x) + 0.3 * np.cos(9 * x) + rng.normal(0.0, 0.2, 60)}


def ring(n: int, y: jax.Array | None = None):
    """A Gaussian process on a ring: its covariance is circulant, its noise on top."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    length = numpyro.sample("length", dist.InverseGamma(5.0, 3.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    chord = jnp.sin(jnp.pi * jnp.arange(n) / n)
    row = scale**2 * jnp.exp(-2 * (chord / length) ** 2)
    row = row + (noise**2 + 1e-3) * (jnp.arange(n) == 0)
    spectrum = jnp.maximum(jnp.fft.rfft(row).real, 1e-4)  # rounding, which NumPyro would refuse
    law = dist.CirculantNormal(jnp.zeros(n), covariance_rfft=spectrum)
    numpyro.sample("y", law, obs=y)


def ring_data() -> Data:
    rng = np.random.default_rng(23)
    angle = np.arange(64) * 2 * np.pi / 64
    return (64,), {"y": np.sin(2 * angle) + 0.5 * np.cos(3 * angle) + rng.normal(0.0, 0.4, 64)}


def spline(basis: jax.Array, y: jax.Array | None = None):
    """Penalised cubic splines: second differences of the weights are small."""
    count = basis.shape[1]
    step = numpyro.sample("step", dist.HalfNormal(1.0))
    first = numpyro.sample("first", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    bends = numpyro.sample("bends", dist.Normal(0.0, 1.0).expand([count - 2]).to_event(1))
    slopes = first[1] + jnp.cumsum(jnp.concatenate([jnp.zeros(1), step * bends]))
    weights = first[0] + jnp.concatenate([jnp.zeros(1), jnp.cumsum(slopes)])
    f = numpyro.deterministic("f", basis @ weights)
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with numpyro.plate("point", len(basis)):
        numpyro.sample("y", dist.Normal(f, noise), obs=y)


def spline_data() -> Data:
    from scipy.interpolate import BSpline

    rng = np.random.default_rng(24)
    x = np.sort(rng.uniform(0.0, 1.0, 80))
    knots = np.concatenate([np.zeros(3), np.linspace(0.0, 1.0, 10), np.ones(3)])
    basis = BSpline.design_matrix(x, knots, 3).toarray()
    return (basis,), {"y": np.sin(6 * x) + x + rng.normal(0.0, 0.25, 80)}


ENTRIES = [
    Example("gp", gp, gp_data, heavy_tailed=("variance", "length", "noise")),
    Example("gp-counts", gp_counts, gp_counts_data),
    Example("hsgp", hsgp, hsgp_data, target_accept=0.95),
    Example("circulant-gp", ring, ring_data),
    Example("cubic-splines", spline, spline_data, target_accept=0.95),
]
