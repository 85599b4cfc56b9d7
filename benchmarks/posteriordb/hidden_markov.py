"""Takes series with two hidden states; gives models in which the states are summed out.

Rows of ``theta`` are the probabilities of going from a state to the others. The first state's
probabilities are left out, as Stan's programs leave them out: each state counts 1.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints

Draws = dict[str, np.ndarray]


def forward(log_theta: jax.Array, log_likelihood: jax.Array) -> jax.Array:
    """The log likelihood of a series, given that of each time (rows) and state (columns)."""

    def step(log_alpha, log_likelihood_t):
        before = logsumexp(log_alpha[:, None] + log_theta, axis=0)
        return before + log_likelihood_t, None

    last, _ = jax.lax.scan(step, log_likelihood[0], log_likelihood[1:])
    return logsumexp(last)


def _ordered(site: str, support, means: jax.Array) -> jax.Array:
    """Increasing numbers, whose density is that of independent normals with these means."""
    x = numpyro.sample(site, dist.ImproperUniform(support, (), means.shape))
    numpyro.factor(f"{site}_prior", dist.Normal(means, 1.0).log_prob(x).sum())
    return x


def two_series(d: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prior counts of transitions; the inverse speed; the distance from the hoop."""
    return tuple(np.asarray(d[k], float) for k in ("alpha", "u", "v"))


def hmm_drive_0(alpha: jax.Array, u: jax.Array, v: jax.Array):
    """Two exponential series."""
    with numpyro.plate("from", len(alpha)):
        theta = numpyro.sample("theta", dist.Dirichlet(alpha))
    means = jnp.array([0.0, 3.0])
    phi = _ordered("phi", constraints.positive_ordered_vector, means)
    rate = _ordered("lambda", constraints.positive_ordered_vector, means)
    of_u = dist.Exponential(phi).log_prob(u[:, None])
    of_v = dist.Exponential(rate).log_prob(v[:, None])
    numpyro.factor("series", forward(jnp.log(theta), of_u + of_v))


def two_series_and_scales(d: dict[str, Any]) -> tuple:
    """The same, and the standard deviations of the two series."""
    return *two_series(d), float(d["tau"]), float(d["rho"])


def hmm_drive_1(alpha: jax.Array, u: jax.Array, v: jax.Array, tau: float, rho: float):
    """Two normal series with known standard deviations."""
    with numpyro.plate("from", len(alpha)):
        theta = numpyro.sample("theta", dist.Dirichlet(alpha))
    means = jnp.array([0.0, 3.0])
    phi = _ordered("phi", constraints.ordered_vector, means)
    centre = _ordered("lambda", constraints.ordered_vector, means)
    of_u = dist.Normal(phi, tau).log_prob(u[:, None])
    of_v = dist.Normal(centre, rho).log_prob(v[:, None])
    numpyro.factor("series", forward(jnp.log(theta), of_u + of_v))


def one_series(d: dict[str, Any]) -> tuple[np.ndarray]:
    """The series alone."""
    return (np.asarray(d["y"], float),)


def hmm_example(y: jax.Array):
    """One normal series of unit variance; transition probabilities have a flat prior."""
    with numpyro.plate("from", 2):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(2)))
    means = jnp.array([3.0, 10.0])
    mu = _ordered("mu", constraints.positive_ordered_vector, means)
    of_y = dist.Normal(mu, 1.0).log_prob(y[:, None])
    numpyro.factor("series", forward(jnp.log(theta), of_y))


def rows_apart(draws: Draws) -> Draws:
    """Stan's names for the rows of ``theta``: ``theta1`` and ``theta2``."""
    rest = {site: x for site, x in draws.items() if site != "theta"}
    return {"theta1": draws["theta"][..., 0, :], "theta2": draws["theta"][..., 1, :], **rest}
