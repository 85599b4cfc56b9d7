"""Models with solvers in them: linear systems, and differential equations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.experimental.ode import odeint
from numpyro.infer.util import log_density

import asvi
from asvi.errors import FamilyError
from asvi.families import ConvexUpdate, StructuredNormal


def linear(y):
    k = numpyro.sample("k", dist.LogNormal(0.0, 0.5))
    x = jnp.linalg.solve(k * jnp.array([[2.0, 0.3], [0.3, 1.0]]), jnp.ones(2))
    numpyro.sample("y", dist.Normal(x, 0.1).to_event(1), obs=y)


def decay(y):
    k = numpyro.sample("k", dist.LogNormal(0.0, 0.5))
    x = odeint(lambda x, t: -k * x, jnp.array(2.0), jnp.array([0.0, 0.5, 1.0, 2.0]))
    numpyro.sample("y", dist.Normal(x[1:], 0.1).to_event(1), obs=y)


def is_numpyros(result, model, y):
    draws = result.posterior.sample(jax.random.key(0), (3,))
    ours = result.posterior.model_log_prob(draws)
    wanted = [log_density(model, (y,), {}, {"k": k})[0] for k in draws["k"]]
    np.testing.assert_allclose(ours, wanted, rtol=1e-3)


def test_a_linear_system():
    y = np.array([0.4, 0.8])
    result = asvi.fit(linear, y, family=StructuredNormal(), progress_bar=False)
    is_numpyros(result, linear, y)
    assert result.diagnose().verdict == "good"


@pytest.mark.slow
def test_a_differential_equation():
    """Its derivative has none itself: the search by curvature says so, and others fit it."""
    y = np.array([1.2, 0.7, 0.3])
    with pytest.raises(FamilyError):
        asvi.fit(decay, y, family=StructuredNormal(), progress_bar=False)
    result = asvi.fit(
        decay,
        y,
        family=ConvexUpdate(),
        training=asvi.Training(num_steps=500, num_restarts=2),
        progress_bar=False,
    )
    is_numpyros(result, decay, y)
    assert abs(result.posterior.mean()["k"] - 1.0) < 0.15
