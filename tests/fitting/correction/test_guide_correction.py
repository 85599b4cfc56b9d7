"""Draws of trained guides that are corrected in the guide's own noise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import log_density

import asvi
from asvi.density.curvature import precision
from asvi.density.evaluators import SlopeEvaluator
from asvi.density.noncentering import split_numbers
from asvi.fitting.correction.of_guide import correct_guide
from asvi.fitting.particles.target import GuideTarget
from asvi.guide.run_from_noise import SurrogateFromNoise
from tests.support.marks import all_but

ROWS = jnp.array([1.0, 2.5, 0.3, 4.0])


def hierarchy(y):
    width = numpyro.sample("width", dist.HalfNormal(2.0))
    rate = numpyro.sample("rate", dist.Gamma(3.0, 2.0))
    with numpyro.plate("row", len(y)):
        level = numpyro.sample("level", dist.Normal(rate, width))
        numpyro.sample("y", dist.StudentT(4.0, level, 1.0), obs=y)


def walk(y):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))

    def step(before, seen):
        now = numpyro.sample("now", dist.Normal(0.9 * before, scale))
        numpyro.sample("y", dist.Normal(now, 0.5), obs=seen)
        return now, None

    scan(step, jnp.zeros(()), y)


def line(y):
    """Its evidence and its moments are known; see `exact_line`."""
    level = numpyro.sample("level", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", len(y)):
        own = numpyro.sample("own", dist.Normal(level, 1.0))
        numpyro.sample("y", dist.Normal(own, 0.5), obs=y)


def exact_line():
    noise = dist.MultivariateNormal(
        jnp.zeros(4), covariance_matrix=4.0 * jnp.ones((4, 4)) + 1.25 * jnp.eye(4)
    )
    variance = 1 / (1 / 4.0 + 4 / 1.25)
    return float(noise.log_prob(ROWS)), variance * float(ROWS.sum()) / 1.25, variance**0.5


def trained(model, steps, family=None):
    family = asvi.families.Coupled() if family is None else family
    return asvi.fit(
        model,
        ROWS,
        family=family,
        training=asvi.Training(num_steps=steps, num_restarts=2),
        progress_bar=False,
    )


@pytest.mark.parametrize("model", all_but(["hierarchy"], [hierarchy, walk]))
def test_density_over_noise_is_numpyros_at_the_guides_values(model):
    fit = trained(model, 40)
    space = fit.problem.guide.guide_space(fit.problem.bound)
    target = GuideTarget(SlopeEvaluator.build(space, fit.params, True))
    noise = np.random.default_rng(0).normal(size=(5, space.size))
    latent = [s.name for s in fit.problem.program.latent]
    with precision(True):
        density, slope = target(noise)
        sites, volume = target.sites(noise)
        for i in range(5):
            here = {n: jnp.asarray(sites[n][i]) for n in latent}
            expected = float(log_density(model, (ROWS,), {}, here)[0])
            assert density[i] == pytest.approx(expected + volume[i], rel=1e-6)
        assert target.values(noise) == pytest.approx(density)
        step = 1e-5 * np.eye(space.size)
        numeric = (target.values(noise[0] + step) - target.values(noise[0] - step)) / 2e-5
        assert slope[0] == pytest.approx(numeric, rel=1e-4, abs=1e-4)

        def values(vector):
            made = SurrogateFromNoise(
                fit.problem.guide, (ROWS,), {}, split_numbers(vector, space.shapes)
            )
            with (
                handlers.trace() as met,
                handlers.seed(rng_seed=0),
                handlers.substitute(data=fit.params),
                made,
            ):
                model(ROWS)
            return jnp.concatenate([jnp.ravel(met[n]["value"]) for n in latent])

        jacobian = jax.jit(jax.jacfwd(values))(jnp.asarray(noise[0]))
        assert volume[0] == pytest.approx(np.linalg.slogdet(jacobian)[1], rel=1e-6)


@pytest.mark.parametrize(
    "family", [asvi.families.Coupled(), asvi.families.MeanField(), asvi.families.ConvexUpdate()]
)
def test_a_guide_that_is_not_the_posterior_gives_the_posterior(family):
    fit = trained(line, 300, family)
    made = correct_guide(fit.problem, fit.params, jax.random.key(1))
    evidence, mean, sd = exact_line()
    draws = made.pool
    level = fit.posterior  # the guide's own: `family` was asked for
    assert level is fit.guide
    fit.correction = made
    del fit.__dict__["posterior"]
    assert abs(made.log_evidence - evidence) < 0.05
    assert abs(float(fit.posterior.mean()["level"]) - mean) < 0.08 * sd
    assert float(fit.posterior.sd()["level"]) == pytest.approx(sd, rel=0.08)
    assert len(draws) > 500


def with_a_parameter(y):
    """A parameter of the model's own: no Gaussian is looked for."""
    width = numpyro.param("width", 1.0, constraint=dist.constraints.positive)
    rate = numpyro.sample("rate", dist.Exponential(0.1))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.LogNormal(jnp.log(rate), width), obs=y)


@pytest.mark.slow
def test_by_default_a_trained_guide_is_corrected(tmp_path):
    fit = asvi.fit(with_a_parameter, ROWS, progress_bar=False)
    assert "Coupled" in fit.family_reason
    assert fit.correction is not None
    assert fit.diagnose().verdict == "good"
    grid = jnp.linspace(0.01, 30, 20_000)
    width = fit.params["width"]
    density = dist.Exponential(0.1).log_prob(grid) + dist.LogNormal(
        jnp.log(grid)[:, None], width
    ).log_prob(ROWS).sum(-1)
    weight = jnp.exp(density - density.max())
    weight = weight / weight.sum()
    mean = float((weight * grid).sum())
    sd = float(jnp.sqrt((weight * (grid - mean) ** 2).sum()))
    assert abs(float(fit.posterior.mean()["rate"]) - mean) < 0.06 * sd
    assert float(fit.posterior.sd()["rate"]) == pytest.approx(sd, rel=0.06)
    fit.save(tmp_path / "fit.npz")
    loaded = asvi.load(tmp_path / "fit.npz", with_a_parameter)
    key = jax.random.key(3)
    assert np.array_equal(
        loaded.posterior.sample(key, (50,))["rate"], fit.posterior.sample(key, (50,))["rate"]
    )
    assert loaded.log_evidence == fit.log_evidence


def test_a_guide_that_was_asked_for_is_not_corrected():
    fit = trained(with_a_parameter, 100)
    assert fit.correction is None
