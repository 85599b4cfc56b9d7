"""Small things that several test files need."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.contrib.control_flow import scan
from numpyro.handlers import seed, trace
from numpyro.infer import SVI

import asvi


def random_walk(innovation, noise, reverse=False):
    """A model: a Gaussian random walk from 0 under ``scan``, seen through Gaussian noise."""

    def model(y):
        def step(x, y_t):
            x = numpyro.sample("x", dist.Normal(x, innovation))
            numpyro.sample("y", dist.Normal(x, noise), obs=y_t)
            return x, None

        scan(step, 0.0, y, reverse=reverse)

    return model


def params_of(guide, *args, **kwargs):
    """The initial parameters of a guide."""
    sites = trace(seed(guide, 0)).get_trace(*args, **kwargs)
    return {name: site["value"] for name, site in sites.items() if site["type"] == "param"}


def fit(model, *args, steps=500, lr=3e-2, estimator="plain", draws=8, family=None, key=0, **kwargs):
    """A guide and the result of training it with a decaying Adam."""
    guide = asvi.AutoASVI(model, family=family)
    optimizer = optax.adam(optax.cosine_decay_schedule(lr, steps))
    svi = SVI(model, guide, optimizer, asvi.ELBO(num_particles=draws, estimator=estimator))
    result = svi.run(jax.random.key(key), steps, *args, progress_bar=False, **kwargs)
    return guide, result


def analytic_params(y, innovation, noise):
    """λ and α with which the convex update is the exact smoother of a random walk.

    Backwards in time, x_t given x_{t-1} and y_t, ..., y_T is normal with mean
    λ_t x_{t-1} + (1-λ_t) α_t; λ_t is the share of the innovation's precision.
    """
    precision, mean = 1 / noise**2, y[-1]  # message from the data at and after t
    weights, terms, scales = [], [], []
    for t in reversed(range(len(y))):
        total = 1 / innovation**2 + precision
        weights.append(1 / innovation**2 / total)
        terms.append(mean)
        scales.append(total**-0.5)
        if t:
            back = 1 / (1 / precision + innovation**2)
            precision, mean = (
                back + 1 / noise**2,
                (back * mean + y[t - 1] / noise**2) / (back + 1 / noise**2),
            )
    weights, terms, scales = (jnp.asarray(x[::-1]) for x in (weights, terms, scales))
    return {
        "auto/x/loc/prior_weight": weights,
        "auto/x/loc/data_term": terms,
        "auto/x/scale/prior_weight": jnp.zeros_like(weights),
        "auto/x/scale/data_term": scales,
    }


def log_evidence_of_chain(y, innovation, noise, seen=None):
    """Kalman filter of a random walk from 0, step by step."""
    mean, variance, total = 0.0, 0.0, 0.0
    for t, value in enumerate(y):
        variance += innovation**2
        if seen is not None and not seen[t]:
            continue
        s = variance + noise**2
        total += -0.5 * (np.log(2 * np.pi * s) + (value - mean) ** 2 / s)
        gain = variance / s
        mean, variance = mean + gain * (value - mean), variance * (1 - gain)
    return total
