"""Plates that are seen in parts: no single draw's rows are taken for all data."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import asvi
from asvi.errors import FamilyError
from asvi.families import ConvexUpdate, StructuredNormal
from asvi.fitting.problem import Problem
from asvi.fitting.training.step_sizes import named_step_sizes

Y = np.linspace(-5.0, 9.0, 20).astype(np.float32)


def rows_of_a_mean(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("row", 20, subsample_size=10) as rows:
        numpyro.sample("y", dist.Normal(mu, 5.0), obs=jnp.asarray(y)[rows])


def test_a_gaussian_at_one_draws_rows_is_refused():
    with pytest.raises(FamilyError, match=r"'y' is in plate 'row'.* 10 of 20"):
        asvi.fit(rows_of_a_mean, Y, family=StructuredNormal(), progress_bar=False)


def test_the_default_fits_the_mean_of_all_rows():
    result = asvi.fit(
        rows_of_a_mean,
        Y,
        training=asvi.Training(num_steps=2000, num_restarts=2),
        progress_bar=False,
    )
    exact = np.sum(Y) / 25 / (20 / 25 + 1 / 25)
    assert abs(result.posterior.mean()["mu"] - exact) < 0.4  # sd 1.1; steps have noise


def test_units_of_members_that_a_draw_does_not_see():
    def model(y):
        with (
            numpyro.plate("column", 3, dim=-2),
            numpyro.plate("row", 20, dim=-1, subsample_size=4) as rows,
        ):
            x = numpyro.sample("x", dist.Normal(0.0, jnp.array([[1.0], [2.0], [3.0]])))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=jnp.asarray(y)[rows])

    units = named_step_sizes(Problem(model, ConvexUpdate(), (Y,), {}))["auto/x/loc/data_term"]
    np.testing.assert_allclose(units, np.broadcast_to([[1.0], [2.0], [3.0]], (3, 20)), rtol=1e-6)
