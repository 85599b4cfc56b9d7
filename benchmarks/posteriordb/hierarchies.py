"""Takes estimates and their errors; gives the eight schools, centred and non-centred."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist


def schools(d: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors and estimates."""
    return np.asarray(d["sigma"], float), np.asarray(d["y"], float)


def eight_schools_centered(sigma: jax.Array, y: jax.Array):
    """Effects are drawn around their mean."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("J", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def eight_schools_noncentered(sigma: jax.Array, y: jax.Array):
    """Standardised effects are drawn, then moved and scaled."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("J", len(sigma)):
        theta_trans = numpyro.sample("theta_trans", dist.Normal(0.0, 1.0))
        theta = numpyro.deterministic("theta", mu + tau * theta_trans)
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)
