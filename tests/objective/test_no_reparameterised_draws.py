"""Sites without reparameterised draws are trained where they can be.

Driven as a user would: through ``SVI.init``, or two steps of ``SVI.run`` where the loss must run.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

from tests.support.bad_input import (
    Y,
    angle,
    run,
    untrained,
)

pytestmark = pytest.mark.usefixtures("clean_handlers")


def coin(y):
    z = numpyro.sample("z", dist.Categorical(probs=jnp.array([0.5, 0.5])))
    numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=y)


def hidden_markov(y):
    def step(z, y_t):
        z = numpyro.sample("z", dist.Categorical(probs=jnp.array([[0.9, 0.1], [0.2, 0.8]])[z]))
        numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=y_t)
        return z, None

    scan(step, 0, y)


@pytest.mark.filterwarnings("ignore:Currently, SVI with ELBO loss does not support")
@pytest.mark.parametrize("model", [coin, hidden_markov], ids=["plain", "scan"])
def test_a_discrete_latent_site_is_trained(model):
    before, after = untrained(model, Y), run(model, Y).params
    name = "auto/z/probs/data_term"
    assert not np.allclose(before[name], after[name])


def two_humps(y):
    weights = dist.Categorical(probs=jnp.array([0.5, 0.5]))
    z = numpyro.sample("z", dist.MixtureSameFamily(weights, dist.Normal(jnp.arange(2.0), 1.0)))
    numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


@pytest.mark.filterwarnings("ignore:.*score-function:UserWarning")
@pytest.mark.parametrize("model", [angle, two_humps], ids=["angle", "mix"])
def test_a_continuous_latent_site_without_reparameterised_draws_is_trained(model):
    result = run(model, Y)
    assert np.isfinite(result.losses).all()
    before = untrained(model, Y)
    assert any(not np.allclose(before[name], x) for name, x in result.params.items())
