"""Posteriors of several modes: scouts find them, and draws come from all of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp

import asvi
from asvi.fitting.correction.by_weights import correct_by_weights
from asvi.fitting.correction.settings import CorrectionSettings
from asvi.fitting.particles.base import Mixture, heavy_noise, unit_density, wide_density
from asvi.fitting.particles.moves import Kernel

TWO = Mixture(
    np.log([0.3, 0.7]),
    np.array([[-4.0, 0.0], [3.0, 1.0]]),
    np.array([[[1.0, 0.0], [0.5, 0.8]], [[0.6, 0.0], [-0.4, 1.2]]]),
)


class Hills:
    """Two Gaussians with other weights than the base has."""

    size, work = 2, 100.0
    logits = np.log([0.8, 0.2])

    def __call__(self, noise):
        shares = Mixture(self.logits, TWO.means, TWO.factors)
        return shares(noise)

    def values(self, noise):
        return self(noise)[0]

    def sites(self, noise):
        return {"x": noise}, np.zeros(len(noise))


def test_a_mixture_has_the_density_of_its_draws():
    rng = np.random.default_rng(0)
    draws = TWO.draws_from_noise(rng.normal(size=(200_000, 2)), rng)
    inside = (np.abs(draws - TWO.means[1]) < 0.5).all(1).mean()
    side = np.linspace(-0.5, 0.5, 201)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2) + TWO.means[1]
    assert abs(inside - np.exp(TWO(grid)[0]).mean()) < 0.005
    at, step = draws[:50], 1e-6 * np.eye(2)
    slope = [(TWO(at + h)[0] - TWO(at - h)[0]) / 2e-6 for h in step]
    np.testing.assert_allclose(TWO(at)[1], np.stack(slope, -1), atol=1e-5)


def test_jumps_carry_the_weight_that_a_mode_has():
    rng = np.random.default_rng(1)
    kernel = Kernel.for_size(Hills(), rng, TWO)
    at = kernel.at(TWO.draws_from_noise(rng.normal(size=(4000, 2)), rng))  # with the base's weights
    shares = []
    for _ in range(20):
        at = kernel(at, 1.0).particles
        shares.append(np.mean(TWO.labels(at.noise) == 0))
    assert abs(np.mean(shares[5:]) - 0.8) < 0.01


def test_the_wide_draws_have_their_density():
    rng = np.random.default_rng(2)
    fresh = np.concatenate([rng.normal(size=(40_000, 3)), heavy_noise(rng, 40_000, 3)])
    ratios = unit_density(fresh) - wide_density(fresh)
    assert abs(logsumexp(ratios) - np.log(len(fresh))) < 0.01
    assert ratios.max() <= np.log(1.5) + 1e-9


def test_weights_are_those_of_a_posterior_with_heavier_tails():
    class Heavy(Hills):
        def __call__(self, noise):
            raise AssertionError("weights want no slopes")

        def values(self, noise):  # a t with 5 degrees of freedom, of evidence 1
            return np.sum(asvi_t(noise), -1)

    def asvi_t(x):
        return np.asarray(dist.StudentT(5.0).log_prob(jnp.asarray(x)), float)

    rng = np.random.default_rng(3)
    noise = rng.normal(size=(1024, 2))
    base = Mixture(np.zeros(1), np.zeros((1, 2)), np.eye(2)[None])
    ratios = Heavy().values(noise) - base(noise)[0]
    found = correct_by_weights(Heavy(), base, noise, ratios, CorrectionSettings(), rng)
    assert found.checks.k_hat < 0.5
    assert abs(found.log_evidence) < 3 * found.log_evidence_se + 0.01
    assert abs(found.pool.flat()["x"].std() / np.sqrt(5 / 3) - 1) < 0.1


# --------------------------------------------------------------------------------- whole calls


def sign(y):
    x = numpyro.sample("x", dist.Normal(0.3, 3.0))
    numpyro.sample("y", dist.Normal(x**2, 1.0).expand([5]).to_event(1), obs=y)


def test_a_sign_that_the_data_do_not_tell():
    y = np.array([4.2, 3.5, 4.4, 3.9, 4.1])
    result = asvi.fit(sign, y, progress_bar=False)
    x = np.linspace(-12, 12, 200_001)
    density = np.asarray(dist.Normal(0.3, 3.0).log_prob(x), float)
    density += np.sum(np.asarray(dist.Normal(0.0, 1.0).log_prob(y[:, None] - x**2), float), 0)
    exact = logsumexp(density) + np.log(x[1] - x[0])
    share = np.exp(logsumexp(density[x > 0]) - logsumexp(density))
    draws = result.posterior.sample(jax.random.key(1), (4000,))["x"]
    assert abs(np.mean(np.asarray(draws) > 0) - share) < 0.03
    assert abs(result.log_evidence - exact) < 0.05
    assert "2 modes" in str(result)
    assert result.diagnose().verdict == "good"


def uneven(y):
    x = numpyro.sample("x", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    here = dist.Normal(x, 0.4).log_prob(y).sum()
    there = dist.Normal(x, 0.4).log_prob(y - 6.0).sum() - 1.2
    numpyro.factor("either", jnp.logaddexp(here, there))


@pytest.mark.parametrize("seed", range(3))
def test_modes_of_different_weight(seed):
    y = np.random.default_rng(seed).normal(size=3)
    result = asvi.fit(uneven, y, progress_bar=False)
    sd = np.sqrt(25 + 0.16)
    here = float(np.sum(np.asarray(dist.Normal(0.0, sd).log_prob(y), float)))
    there = float(np.sum(np.asarray(dist.Normal(0.0, sd).log_prob(y - 6.0), float))) - 1.2
    assert abs(result.log_evidence - np.logaddexp(here, there)) < 0.1
    share = np.exp(there - np.logaddexp(here, there))
    draws = np.asarray(result.posterior.sample(jax.random.key(1), (4000,))["x"])
    far = np.abs(draws - (y - 6.0)).sum(1) < np.abs(draws - y).sum(1)
    assert abs(far.mean() - share) < 0.04


def mixture(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(2)))
    noise = dist.MixtureSameFamily(dist.Categorical(share), dist.Normal(loc, 1.0))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", noise, obs=y)


def test_labels_are_switched():
    rng = np.random.default_rng(0)
    y = np.where(rng.uniform(size=80) < 0.3, -3.0, 3.0) + rng.normal(size=80)
    result = asvi.fit(mixture, y, progress_bar=False)
    loc = np.asarray(result.posterior.sample(jax.random.key(1), (4000,))["loc"])
    assert abs(np.mean(loc[:, 0] < loc[:, 1]) - 0.5) < 0.05
    assert result.diagnose().verdict == "good"
