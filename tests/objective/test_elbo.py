"""asvi.ELBO: three estimators of one gradient, and never more than the evidence."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import asvi
from tests.support.helpers import analytic_params, fit, params_of, random_walk
from tests.support.marks import all_but

pytestmark = pytest.mark.usefixtures("float64")


def plate(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    s = numpyro.sample("s", dist.LogNormal(0.0, 0.3))
    with numpyro.plate("n", 3):
        x = numpyro.sample("x", dist.Normal(mu, s))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def chain(y):
    def step(x, y_t):
        x = numpyro.sample("x", dist.Normal(0.9 * x, 0.5))
        g = numpyro.sample("g", dist.Gamma(3.0, jnp.exp(0.1 * x)))
        numpyro.sample("y", dist.Normal(x, g), obs=y_t)
        return x, None

    scan(step, 0.0, y)


def vector(y):
    x = numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
    z = numpyro.sample("z", dist.Normal(x, 0.5).to_event(1))
    numpyro.sample("y", dist.Normal(z, 1.0).to_event(1), obs=y)


Y = jnp.array([0.5, -0.4, 1.2])


@pytest.mark.parametrize(
    "model", all_but(["vector"], [plate, chain, vector]), ids=lambda m: m.__name__
)
def test_estimators_have_the_same_mean(model, key):
    """Value and gradient of the three forms, 6,000 draws each."""
    guide = asvi.AutoASVI(model)
    params = params_of(guide, Y)
    keys = jax.random.split(key, len(params))
    params = {  # away from the start and from the optimum
        n: v * jax.random.uniform(k, v.shape, minval=0.6, maxval=0.95)
        for (n, v), k in zip(params.items(), keys, strict=True)
    }

    def all_forms(params, key):
        return [
            jax.value_and_grad(
                lambda p, form=form: asvi.ELBO(estimator=form).loss(key, p, model, guide, Y)
            )(params)
            for form in ("plain", "path", "analytic")
        ]

    plain, *others = jax.jit(jax.vmap(all_forms, (None, 0)))(params, jax.random.split(key, 6000))
    for other in others:
        for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(other), strict=True):
            spread = np.std(np.asarray(a) - np.asarray(b), 0) / np.sqrt(len(a))  # same draws
            assert np.all(np.abs(np.mean(a, 0) - np.mean(b, 0)) < 5 * spread + 1e-9)


def test_plain_gradient_agrees_with_finite_differences(key):
    guide = asvi.AutoASVI(plate)
    params = params_of(guide, Y)

    @jax.jit
    def loss(p):
        return asvi.ELBO(num_particles=16).loss(key, p, plate, guide, Y)

    gradient = jax.grad(loss)(params)
    for name, g in gradient.items():
        shift = jnp.zeros_like(params[name]).at[(0,) * g.ndim].set(1e-5)
        up, down = ({**params, name: params[name] + s} for s in (shift, -shift))
        numeric = (loss(up) - loss(down)) / 2e-5
        np.testing.assert_allclose(g[(0,) * g.ndim], numeric, rtol=1e-4, atol=1e-6)


def test_path_gradient_vanishes_at_the_exact_posterior(key):
    walk = random_walk(0.1, 0.15)
    y = jnp.asarray(np.random.default_rng(0).normal(size=20).cumsum() * 0.1)
    guide = asvi.AutoASVI(walk)
    guide._setup_prototype(y)
    params = analytic_params(np.asarray(y), 0.1, 0.15)
    size = {
        form: max(
            float(jnp.abs(g).max())
            for g in jax.grad(
                lambda p, form=form: asvi.ELBO(estimator=form).loss(key, p, walk, guide, y)
            )(params).values()
        )
        for form in ("plain", "path")
    }
    assert size["path"] < 1e-8
    assert size["plain"] > 1.0


def test_elbo_never_exceeds_the_evidence(key):
    """A conjugate model whose posterior the family does not contain (a collider)."""

    def collider(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a + b, 0.3), obs=y)

    exact = float(dist.Normal(0.0, np.sqrt(2 + 0.09)).log_prob(1.0))
    guide, result = fit(collider, 1.0, steps=1500)
    draws = -jax.vmap(lambda k: asvi.ELBO().loss(k, result.params, collider, guide, 1.0))(
        jax.random.split(key, 20_000)
    )
    error = float(draws.std()) / np.sqrt(len(draws))
    assert float(draws.mean()) < exact + 4 * error
    assert float(draws.mean()) < exact - 0.3  # and this one really falls short


def test_it_works_with_stock_guides(key):
    """On a plain model it is Trace_ELBO, with NumPyro's own autoguides too."""
    guide = AutoNormal(plate)
    params = params_of(guide, Y)
    ours, theirs = (
        float(loss.loss(key, params, plate, guide, Y))
        for loss in (asvi.ELBO(num_particles=3), Trace_ELBO(num_particles=3))
    )
    assert ours == pytest.approx(theirs)


def test_draws_one_by_one_or_together(key):
    guide = asvi.AutoASVI(plate)
    params = params_of(guide, Y)
    values = [
        float(
            asvi.ELBO(num_particles=4, vectorize_particles=together).loss(
                key, params, plate, guide, Y
            )
        )
        for together in (True, False)
    ]
    assert values[0] == pytest.approx(values[1])


def test_terms_by_site_sum_to_the_loss(key):
    guide = asvi.AutoASVI(plate)
    params = params_of(guide, Y)
    terms, _ = asvi.ELBO().site_terms(key, params, plate, guide, Y)
    assert set(terms) == {"mu", "s", "x", "y"}
    assert float(-sum(terms.values())) == pytest.approx(
        float(asvi.ELBO().loss(key, params, plate, guide, Y))
    )
