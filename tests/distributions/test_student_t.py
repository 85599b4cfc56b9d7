"""Priors of heavy tails: their stand-ins, fits with them, and the verdict on a guide too wide."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from scipy import stats
from scipy.special import logsumexp

import asvi
from asvi.distributions.registry import decompose
from asvi.distributions.student_t import StudentTTransform, TransformedStudentT
from asvi.distributions.substitutions import half_of

Y = np.random.default_rng(1).normal(1.5, 0.7, size=12)


@pytest.mark.parametrize(("df", "most"), [(1.0, 6e-4), (2.0, 6e-5), (3.0, 2e-5), (30.0, 1e-6)])
def test_it_is_the_t_distribution_nearly(df, most):
    with jax.enable_x64(True):
        z = jnp.linspace(-8.0, 8.0, 20_001)
        x = StudentTTransform(df)(z)
        change = TransformedStudentT(df).log_prob(x) - dist.StudentT(df).log_prob(x)
        divergence = float(jnp.trapezoid(jnp.exp(-(z**2) / 2) * change, z)) / np.sqrt(2 * np.pi)
    assert -1e-9 < divergence < most


@pytest.mark.slow
def test_numbers_and_slopes_are_finite_everywhere():
    z = jnp.array([-30.0, -1e-4, 0.0, 1e-4, 30.0])
    for df in (0.3, 1.0, 50.0):

        def x_and_density(z, df):
            x = StudentTTransform(df)(z)
            return x + TransformedStudentT(df).log_prob(x)

        assert jnp.isfinite(jax.vmap(x_and_density, (0, None))(z, df)).all()
        for i in (0, 1):
            slopes = jax.vmap(jax.grad(x_and_density, i), (0, None))(z, df)
            assert jnp.isfinite(slopes).all(), (df, i)
    assert jnp.isfinite(TransformedStudentT(1.0).log_prob(jnp.array([1e-30, 1e25, 1e38]))).all()


@pytest.mark.parametrize(
    ("whole", "half"),
    [
        (dist.Normal(0.0, 2.0), stats.halfnorm(scale=2.0)),
        (dist.Cauchy(0.0, 2.0), stats.halfcauchy(scale=2.0)),
        (dist.Laplace(0.0, 2.0), stats.expon(scale=2.0)),
    ],
)
def test_halves_are_what_scipy_has(whole, half):
    x = np.array([0.01, 0.5, 3.0, 20.0])
    found = half_of(whole).log_prob(jnp.asarray(x))
    np.testing.assert_allclose(found, half.logpdf(x), atol=1e-3)


def test_half_of_a_t_is_twice_the_t():
    x = jnp.array([0.01, 0.5, 3.0, 20.0])
    prior = dist.FoldedDistribution(dist.StudentT(3.0, 0.0, 2.5))
    parts = decompose(prior)
    made = parts.rebuild({name: leaf.value for name, leaf in parts.leaves.items()})
    np.testing.assert_allclose(made.log_prob(x), prior.log_prob(x), atol=0.02)


def log_evidence(scale_prior):
    """Of Y under a Cauchy location and this scale, by quadrature."""
    mu = np.linspace(-2.0, 5.0, 1401)[:, None]
    s = np.exp(np.linspace(np.log(0.2), np.log(20.0), 1201))
    n, mean, var = len(Y), Y.mean(), Y.var()
    log_lik = -n * np.log(s) - n * (var + (mean - mu) ** 2) / (2 * s**2)
    log_lik -= 0.5 * n * np.log(2 * np.pi)
    prior = stats.cauchy.logpdf(mu, scale=2.5) + np.asarray(scale_prior.log_prob(jnp.asarray(s)))
    width = np.log(mu[1] - mu[0]) + np.log(s) + np.log(np.log(s[1] / s[0]))
    return logsumexp(log_lik + prior + width)


@pytest.mark.parametrize(
    "scale_prior",
    [
        pytest.param(dist.FoldedDistribution(dist.StudentT(3.0, 0.0, 2.5)), marks=pytest.mark.slow),
        dist.TruncatedCauchy(0.0, 2.5, low=0.0),
    ],
    ids=["half-t", "truncated Cauchy"],
)
def test_cauchy_and_half_t_priors_are_fitted(scale_prior):
    def model(y):
        mu = numpyro.sample("mu", dist.Cauchy(0.0, 2.5))
        s = numpyro.sample("s", scale_prior)
        numpyro.sample("y", dist.Normal(mu, s).expand([len(Y)]).to_event(1), obs=y)

    result = asvi.fit(model, Y, progress_bar=False, effort="thorough")
    assert log_evidence(scale_prior) - result.elbo < 0.02
    assert result.diagnose().verdict == "good"


def test_levy_priors_are_inverse_gammas():
    prior = dist.Levy(0.5, 2.0)
    parts = decompose(prior)
    made = parts.rebuild({name: leaf.value for name, leaf in parts.leaves.items()})
    x = jnp.array([0.6, 1.0, 30.0])
    np.testing.assert_allclose(made.log_prob(x), prior.log_prob(x), rtol=1e-4)
    assert set(parts.leaves) >= {"concentration", "rate"}


class OneScale(dist.Levy):
    """A family that cannot concentrate: its tail is that of the prior, whatever its scale."""


def test_a_guide_that_is_too_wide_is_not_good():
    """It covers the posterior, so k-hat is small; but its draws are nothing like it."""
    asvi.register_parameters(OneScale, {"scale": constraints.positive}, fixed=("loc",))

    def model(y):
        s = numpyro.sample("s", OneScale(0.0, 1.0))
        numpyro.sample("y", dist.Normal(1.5, s).expand([len(Y)]).to_event(1), obs=y)

    result = asvi.fit(model, Y, progress_bar=False, family=asvi.families.MeanField())
    report = result.diagnose()
    assert report.evidence_gain > 1
    assert report.verdict != "good"
    assert any("too wide" in reason or "move the mean" in reason for reason in report.reasons)
