"""Takes embedded data; gives the eight-schools and radon tasks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from asvi.tasks.task import DATA, Task

__all__ = ["TASKS"]

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], np.float32)
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], np.float32)


def eight_schools(sigma: jax.Array, y: jax.Array) -> None:
    """Effects of coaching in eight schools, drawn from one population; centred."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(5.0, 1.0))
    with numpyro.plate("school", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, jnp.exp(log_tau)))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def radon(features: jax.Array, county: jax.Array, y: jax.Array) -> None:
    """Log radon in houses: three regression weights and an effect of each county.

    ``features`` has the columns log uranium, floor, mean floor of the county.
    """
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("county", 85):
        theta: Any = numpyro.sample("theta", dist.Normal(mu, tau))
    with numpyro.plate("feature", 3):
        w: Any = numpyro.sample("w", dist.Normal(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("house", len(y)):
        numpyro.sample("y", dist.Normal(features @ w + theta[county], sigma), obs=y)


def _radon_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with (DATA / "radon.npz").open("rb") as file:
        rows = np.load(file)
        columns = [rows["log_uranium"], rows["floor"], rows["floor_by_county"]]
        features = np.stack(columns, -1).astype(np.float32)
        return features, rows["county"], rows["log_radon"].astype(np.float32)


TASKS = {
    "eight-schools": lambda: Task(
        "eight-schools",
        eight_schools,
        (ERRORS, EFFECTS),
        citation="Rubin (1981), Journal of Educational Statistics 6(4), 377-401",
        description="effects of coaching in eight schools, partially pooled",
    ),
    "radon": lambda: Task(
        "radon",
        radon,
        _radon_data(),
        citation="Gelman and Hill (2007), Data Analysis Using Regression and Multilevel/"
        "Hierarchical Models, ch. 12",
        description="radon in 919 houses of 85 counties, partially pooled",
    ),
}
