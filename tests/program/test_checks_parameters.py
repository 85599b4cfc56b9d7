"""Parameters outside their domain, distributions that are not known: the mended line is shown.

Driven as a user would: through ``SVI.init``, or two steps of ``SVI.run`` where the loss must run.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import cond, scan
from numpyro.distributions import constraints

from asvi import SiteError
from asvi.program.checks.parameters import check_distribution
from tests.support.bad_input import (
    Y,
    refused,
    site_refused,
    start,
    walk,
    with_likelihood,
    with_prior,
)

pytestmark = pytest.mark.usefixtures("clean_handlers")


# ------------------------------------------------------------------ parameters outside their domain


@pytest.mark.parametrize(
    ("make", "problem", "mended"),
    [
        (
            lambda: dist.Normal(0.0, -1.0),
            "Normal got scale = -1.0, which is not positive",
            "dist.Normal(..., scale=jnp.exp(log_scale))",
        ),
        (
            lambda: dist.Normal(0.0, 0.0),
            "Normal got scale = 0.0, which is not positive",
            "dist.Normal(..., scale=jnp.exp(log_scale))",
        ),
        (
            lambda: dist.Normal(0.0, jnp.array([1.0, -2.0])),
            "Normal got scale = -2.0",
            "scale=jnp.exp(log_scale)",
        ),
        (
            lambda: dist.HalfNormal(-1.0),
            "HalfNormal got scale = -1.0",
            "dist.HalfNormal(scale=jnp.exp(log_scale))",
        ),
        (
            lambda: dist.LogNormal(0.0, -1.0),
            "LogNormal got scale = -1.0",
            "dist.LogNormal(..., scale=jnp.exp(log_scale))",
        ),
        (
            lambda: dist.TruncatedNormal(0.0, -1.0, low=0.0),
            "Normal got scale = -1.0",
            "scale=jnp.exp(log_scale)",
        ),
        (
            lambda: dist.Normal(0.0, -1.0).expand([2]).to_event(1).mask(True),
            "Normal got scale = -1.0",
            "scale=jnp.exp(log_scale)",
        ),
        (
            lambda: dist.Dirichlet(jnp.array([1.0, -1.0])),
            "Dirichlet got concentration = -1.0, which is not positive",
            "dist.Dirichlet(concentration=jnp.exp(log_concentration))",
        ),
        (
            lambda: dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 2.0], [2.0, 1.0]])),
            "covariance_matrix = [[1., 2.], [2., 1.]], which is not a symmetric positive-def",
            "covariance_matrix=a @ a.T",
        ),
        (
            lambda: dist.Uniform(1.0, 0.0),
            "Uniform got low = 1.0 and high = 0.0: no value lies between them",
            "dist.Uniform(low=0.0, high=1.0)",
        ),
        (
            lambda: dist.MixtureSameFamily(
                dist.Categorical(probs=jnp.array([0.5, 0.6])), dist.Normal(jnp.zeros(2), 1.0)
            ),
            "Categorical got probs",
            "dist.Categorical(probs=jax.nn.softmax(logits))",
        ),
        (
            lambda: dist.MixtureSameFamily(
                dist.Categorical(probs=jnp.array([0.5, 0.5])), dist.Normal(jnp.zeros(2), -1.0)
            ),
            "Normal got scale = -1.0",
            "jnp.exp(log_scale)",
        ),
    ],
)
def test_a_constant_outside_its_domain(make, problem, mended):
    with site_refused("x", problem, mended):
        start(with_prior(make))


@pytest.mark.parametrize(
    ("make", "problem", "mended"),
    [
        (
            lambda x: dist.Normal(0.0, -x),
            "Normal got scale = -2.0, which is not positive",
            "dist.Normal(..., scale=jnp.exp(log_scale))",
        ),
        (
            lambda x: dist.Bernoulli(x),
            "Bernoulli got probs = 2.0, which is not between 0 and 1",
            "dist.Bernoulli(probs=jax.nn.sigmoid(logit))",
        ),
        (
            lambda x: dist.Bernoulli(probs=-0.5),
            "Bernoulli got probs = -0.5",
            "dist.Bernoulli(probs=jax.nn.sigmoid(logit))",
        ),
        (
            lambda x: dist.Binomial(10, probs=1.1),
            "Binomial got probs = 1.1",
            "dist.Binomial(..., probs=jax.nn.sigmoid(logit))",
        ),
        (
            lambda x: dist.Categorical(probs=jnp.array([0.5, 0.7])),
            "which is not non-negative with sum 1",
            "dist.Categorical(probs=jax.nn.softmax(logits))",
        ),
        (lambda x: dist.Poisson(-x), "Poisson got rate = -2.0", "rate=jnp.exp(log_rate)"),
    ],
)
def test_a_likelihood_whose_parameter_is_outside_its_domain(make, problem, mended):
    with site_refused("y", problem, mended):
        start(with_likelihood(make), jnp.array([0, 1, 1]))


def test_a_latent_scale_of_a_latent_site():
    def model(y):
        scale = numpyro.sample("scale", dist.Normal(-1.0, 1.0))
        x = numpyro.sample("x", dist.Normal(0.0, scale))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    with site_refused("x", "Normal got scale = -1.0", "scale=jnp.exp(log_scale)"):
        start(model, Y)


@pytest.mark.parametrize("noise", [-1.0, jnp.array(-1.0)], ids=["python", "jax"])
def test_a_negative_scale_inside_a_scan(noise):
    with site_refused("y", "Normal got scale = -1.0", "scale=jnp.exp(log_scale)"):
        start(walk, Y, noise)


def test_a_negative_scale_at_one_step_of_a_scan():
    def model(scales):
        def step(x, scale):
            return numpyro.sample("x", dist.Normal(x, scale)), None

        scan(step, 0.0, scales)

    with site_refused("x", "Normal got scale = -4.0", "scale=jnp.exp(log_scale)"):
        start(model, jnp.array([1.0, -4.0, 2.0]))


def test_a_negative_scale_in_a_branch():
    def model():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))

        def branch(scale):
            return lambda _: numpyro.sample("z", dist.Normal(0.0, scale))

        cond(x > 0, branch(1.0), branch(-1.0), None)

    with site_refused("z", "Normal got scale = -1.0", "scale=jnp.exp(log_scale)"):
        start(model)


def test_the_edge_of_a_domain_at_the_centre_of_a_prior():
    at_zero, below = (dist.Normal(0.0, scale, validate_args=False) for scale in (0.0, -1.0))
    check_distribution("y", at_zero, edge_is_fine=True)
    with refused(SiteError, "scale = -1.0, which is not positive or 0"):
        check_distribution("y", below, edge_is_fine=True)


def test_a_scale_that_is_zero_only_at_the_centre_of_its_prior():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(0.0, jnp.abs(x)), obs=y)

    start(model, Y)


def test_a_scale_that_is_negative_at_draws_but_not_at_the_centre():
    with site_refused("y", "got scale = -", "scale=jnp.exp(log_scale)"):
        start(with_likelihood(lambda x: dist.Normal(0.0, x - 1.5)), Y)


# -------------------------------------------------------------------------- distributions not known


class Cosine(dist.Distribution):
    """A distribution of the user's own."""

    arg_constraints = {"loc": constraints.real, "width": constraints.positive}
    support = constraints.real
    reparametrized_params = ["loc", "width"]

    def __init__(self, loc, width):
        self.loc, self.width = loc, width
        super().__init__(jnp.broadcast_shapes(jnp.shape(loc), jnp.shape(width)))

    def sample(self, key, sample_shape=()):
        return self.loc + self.width * jax.random.uniform(key, sample_shape + self.shape())

    def log_prob(self, value):
        return -jnp.log(self.width) + 0.0 * value


@pytest.mark.parametrize(
    "make", [lambda: Cosine(0.0, 1.0), lambda: Cosine(0.0, 1.0).expand([3]).to_event(1)]
)
def test_a_distribution_of_the_users_own(make):
    leaves = '{"loc": constraints.real, "width": constraints.positive}'
    line = f"asvi.register_parameters(Cosine, {leaves})"
    with site_refused("x", "asvi does not know the parameters of Cosine", line):
        start(with_prior(make))


@pytest.mark.parametrize(
    ("make", "problem", "mended"),
    [
        (
            lambda: dist.EulerMaruyama(jnp.arange(3.0), lambda x, t: (x, 1.0), dist.Normal(0, 1)),
            "EulerMaruyama hides its steps",
            "scan(step, x0, dts)",
        ),
        (lambda: dist.DiscreteUniform(0, 3), "Uniform has only bounds", "dist.Categorical("),
        (lambda: dist.TruncatedPolyaGamma(), "has no parameters to learn", "dist.Gamma("),
        (
            lambda: dist.RightCensoredDistribution(dist.Normal(0.0, 1.0), jnp.array(0)),
            "describes data, not a latent quantity",
            "numpyro.sample(..., obs=y)",
        ),
    ],
    ids=["EulerMaruyama", "DiscreteUniform", "TruncatedPolyaGamma", "RightCensored"],
)
def test_a_refused_distribution(make, problem, mended):
    with site_refused("x", problem, mended):
        start(with_prior(make))
