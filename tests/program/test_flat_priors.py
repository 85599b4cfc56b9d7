"""``ImproperUniform`` priors: what NUTS gives where the posterior is proper, else an error."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.infer.util import log_density

import asvi
from asvi.errors import SiteError
from asvi.families import ConvexUpdate, Coupled, StructuredNormal
from asvi.fitting.problem import Problem
from asvi.results.posterior import Posterior

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0]) + 3.0 + 0.5 * RNG.normal(size=30)).astype(np.float32)
DESIGN = np.c_[np.ones(30), X].astype(float)


def regression(x, y):
    a = numpyro.sample("a", dist.ImproperUniform(constraints.real, (), ()))
    b = numpyro.sample("b", dist.ImproperUniform(constraints.real, (), (2,)))
    sigma = numpyro.sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(a + x @ b, sigma), obs=y)


def ordered(y):
    cuts = numpyro.sample("cuts", dist.ImproperUniform(constraints.ordered_vector, (), (2,)))
    numpyro.sample("y", dist.Normal(cuts, 1.0).to_event(1), obs=y)


def in_a_plate(y):
    with numpyro.plate("group", 3):
        mu = numpyro.sample("mu", dist.ImproperUniform(constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(mu, 0.5), obs=y)


def bounded(y):
    p = numpyro.sample("p", dist.ImproperUniform(constraints.unit_interval, (), ()))
    numpyro.sample("y", dist.Binomial(10, p), obs=y)


def test_a_regression_is_the_textbooks():
    result = asvi.fit(regression, X, Y, progress_bar=False)
    coefficients, rest, *_ = np.linalg.lstsq(DESIGN, Y.astype(float), rcond=None)
    freedom = 30 - 3 - 1  # a flat prior on sigma has one less than the usual 1 / sigma
    scale = np.sqrt(rest[0] / (freedom - 2))
    sd = np.sqrt(np.diag(np.linalg.inv(DESIGN.T @ DESIGN))) * scale
    draws = result.posterior.resample(jax.random.key(0), 4000)
    found = np.c_[draws["a"], draws["b"]]
    np.testing.assert_allclose((found.mean(0) - coefficients) / sd, 0.0, atol=0.1)
    np.testing.assert_allclose(found.std(0), sd, rtol=0.1)
    data = result.to_arviz(num_samples=100)
    assert not hasattr(data, "prior")  # there is none to draw from


@pytest.mark.parametrize("family", [StructuredNormal(), ConvexUpdate(), Coupled()])
@pytest.mark.parametrize(
    ("model", "args"),
    [(regression, (X, Y)), (ordered, (Y[:2],)), (in_a_plate, (Y[:3],)), (bounded, (4,))],
    ids=["regression", "ordered", "plate", "bounded"],
)
def test_densities_are_numpyros(model, args, family):
    problem = Problem(model, family, args, {})
    posterior = Posterior(problem, problem.params(problem.initial(jax.random.key(0))))
    draws = posterior.sample(jax.random.key(1), (3,))
    ours = posterior.model_log_prob(draws)
    for k in range(3):
        one = {name: jnp.asarray(x[k]) for name, x in draws.items()}
        np.testing.assert_allclose(ours[k], log_density(model, args, {}, one)[0], rtol=1e-4)


def test_an_ordered_vector_and_a_bounded_number():
    result = asvi.fit(ordered, np.array([-5.0, 5.0]), progress_bar=False)
    np.testing.assert_allclose(result.posterior.mean()["cuts"], [-5.0, 5.0], atol=0.1)
    result = asvi.fit(bounded, 4, progress_bar=False)
    assert abs(result.posterior.mean()["p"] - 5 / 12) < 0.01


def no_datum(y):
    numpyro.sample("lost", dist.ImproperUniform(constraints.real, (), ()))
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def only_the_sum(y):
    lost = numpyro.sample("lost", dist.ImproperUniform(constraints.real, (), (2,)))
    numpyro.sample("y", dist.Normal(lost.sum(), 1.0), obs=y)


def one_of_two(y):
    lost = numpyro.sample("lost", dist.ImproperUniform(constraints.real, (), (2,)))
    numpyro.sample("y", dist.Normal(lost[0], 1.0), obs=y)


@pytest.mark.parametrize("model", [no_datum, only_the_sum, one_of_two])
@pytest.mark.parametrize("family", [None, StructuredNormal()])
def test_an_improper_posterior_is_an_error_that_names_the_site(model, family):
    with pytest.raises(SiteError, match=r"site 'lost'.*do not make its posterior proper"):
        asvi.fit(model, 1.0, family=family, progress_bar=False)


SUPPORTS = {
    "real": (constraints.real, (3,), ()),
    "matrix": (constraints.real_matrix, (), (2, 3)),
    "positive": (constraints.positive, (), ()),
    "above": (constraints.greater_than(2.0), (), (2,)),
    "below": (constraints.less_than(2.0), (), ()),
    "unit": (constraints.unit_interval, (2,), ()),
    "interval": (constraints.interval(-1.0, 3.0), (), ()),
    "ordered": (constraints.ordered_vector, (2,), (3,)),
    "simplex": (constraints.simplex, (), (3,)),
    "cholesky": (constraints.lower_cholesky, (), (3, 3)),
    "correlation": (constraints.corr_cholesky, (2,), (3, 3)),
}


@pytest.mark.parametrize("name", SUPPORTS)
def test_the_mended_line_has_the_support_and_the_shape(name):
    """What the error tells one to write is a proper prior in the same place."""
    support, batch, event = SUPPORTS[name]

    def model(y):
        numpyro.sample("lost", dist.ImproperUniform(support, batch, event))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    with pytest.raises(SiteError) as caught:
        asvi.fit(model, 1.0, progress_bar=False)

    def sample(site, prior):
        assert site == "lost"
        assert prior.batch_shape + prior.event_shape == batch + event
        assert jnp.all(support(prior.sample(jax.random.key(0))))

    names = {"numpyro": SimpleNamespace(sample=sample), "dist": dist, "jnp": jnp}
    exec(caught.value.mended, names | {"constraints": constraints})
