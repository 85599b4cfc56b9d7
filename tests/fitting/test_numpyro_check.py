"""A contradiction between what is reported and NumPyro's own word ends in an error of ours."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import asvi
from asvi.density import noise_space
from asvi.errors import InternalError
from asvi.families import ConvexUpdate, StructuredNormal
from asvi.fitting.numpyro_check import check_elbo

Y = np.array([1.0, 2.0, 4.0])


def model(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mu, 1.0).expand([len(y)]).to_event(1), obs=y)


def test_a_density_that_is_not_numpyros_ends_in_an_error_of_ours(monkeypatch):
    true = noise_space.log_density
    monkeypatch.setattr(noise_space, "log_density", lambda site: 0.99 * true(site))
    with pytest.raises(InternalError, match="log_density"):
        asvi.fit(model, Y, progress_bar=False)


def test_an_elbo_that_is_not_the_posteriors_ends_in_an_error_with_the_fit(monkeypatch):
    monkeypatch.setattr("asvi.fitting.rungs.trained.check_elbo", lambda *_: False)
    with pytest.raises(InternalError, match="fault of asvi") as told:
        asvi.fit(
            model,
            Y,
            family=ConvexUpdate(),
            progress_bar=False,
            training=asvi.Training(num_steps=250, num_restarts=1),
        )
    assert told.value.result.posterior.sample(jax.random.key(0), (3,))["mu"].shape == (3,)


def test_what_chance_explains_is_no_contradiction():
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert check_elbo(0.0, 0.05, rng.normal(size=500))
    assert not check_elbo(1.0, 0.05, rng.normal(size=500))
    assert check_elbo(-np.inf, 0.05, rng.normal(size=500))  # said already


def test_numbers_that_single_precision_does_not_hold_are_not_trusted():
    y = (1e6 + np.arange(20.0)).astype(np.float32)

    def rough(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1e7))
        numpyro.sample("y", dist.Normal(a, 0.01).expand([20]).to_event(1), obs=y)

    report = asvi.fit(rough, y, family=StructuredNormal(), progress_bar=False).diagnose()
    assert report.verdict == "not trustworthy"
    assert "single precision" in report.reasons[0]
    assert "jax_enable_x64" in report.advice
