"""Which family `fit` takes where none is asked for."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import asvi
from asvi.fitting import default_family as choice
from asvi.fitting.guide_draws import GuideDraws
from asvi.fitting.ladder import climb
from asvi.fitting.outcome import Outcome
from asvi.fitting.request import Request
from asvi.fitting.settings import FitSettings, LadderSettings
from asvi.fitting.training import race, run
from asvi.fitting.training.settings import TrainingSettings
from tests.support.marks import all_but

Y = jnp.array([1.0, -0.5, 2.0, 0.3])
PLAN = {"progress_bar": False, "training": asvi.Training(num_steps=1500, num_restarts=2)}


def groups(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("group", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def fitted(
    most: int, plan: TrainingSettings = TrainingSettings(restarts=2, max_steps=1500)
) -> Outcome:
    """What `fit` finds where this many parameters of a coupled guide are few."""
    return climb(requested(most, plan))


def requested(most: int, plan: TrainingSettings) -> Request:
    settings = FitSettings(ladder=LadderSettings(max_params_unmeasured=most))
    key = jax.random.key(0)
    return Request(groups, (Y,), {}, key, plan, 0.0, progress=False, settings=settings)


@pytest.fixture
def no_gaussian(monkeypatch, no_first_look):
    monkeypatch.setattr(race, "gaussian_start", lambda *_: None)


@pytest.mark.slow
def test_a_large_model_near_its_posterior_needs_no_short_runs(no_first_look):
    small = asvi.fit(groups, Y, **PLAN)
    large = fitted(10)
    assert large.run.start == "gaussian"
    assert "beside ConvexUpdate" not in large.family_reason
    assert large.elbo == small.elbo


@pytest.mark.parametrize(
    ("name", "ahead"),
    [
        ("Coupled", 10.0),
        pytest.param("ConvexUpdate", -10.0, marks=pytest.mark.slow),
    ],
)
def test_a_large_model_is_fitted_by_what_is_ahead(name, ahead, no_gaussian, monkeypatch):
    family = getattr(asvi.families, name)()
    asked = asvi.fit(groups, Y, family=family, **PLAN)
    assert asked.family_reason == f"{name}, as asked for"
    conclude = choice.conclude

    def with_lead(problem, *rest):
        found = conclude(problem, *rest)
        lead = ahead if isinstance(problem.family, asvi.families.Coupled) else 0.0
        return replace(found, elbo=found.elbo + lead)

    monkeypatch.setattr(choice, "conclude", with_lead)
    found = fitted(10)
    assert found.family_reason.startswith(name)
    assert "nat beside ConvexUpdate after 1000 steps of each" in found.family_reason
    assert any("coupling" in name for name in found.params) == (name == "Coupled")
    # It goes on as if nothing had been measured.
    assert found.elbo == asked.elbo
    assert (found.losses == asked.losses).all()


@pytest.mark.slow
def test_ctrl_c_in_a_short_run_gives_what_it_has(no_gaussian, monkeypatch):
    steps = iter(range(3))

    def broken(*args):
        if next(steps) == 2:
            raise KeyboardInterrupt
        return step_chunk(*args)

    step_chunk = run.step_chunk
    monkeypatch.setattr(run, "step_chunk", broken)
    found = fitted(10)
    assert "interrupted" in found.message
    assert found.num_steps == 500
    assert np.isfinite(found.elbo)
    draws, _ = GuideDraws(found.problem, found.params).draw(jax.random.key(0), (100,))
    assert np.isfinite(draws["mu"]).all()


@pytest.mark.parametrize("gain", all_but([-1.9, 0.0], [np.nan, -1.9, 0.0]))
def test_what_is_not_told_apart_stays_with_the_default(gain, no_gaussian, monkeypatch):
    conclude, elbos = choice.conclude, iter([gain, 0.0])
    monkeypatch.setattr(
        choice,
        "conclude",
        lambda *args: replace(conclude(*args), elbo=next(elbos), elbo_se=np.sqrt(0.5)),
    )
    chosen = choice.choose_family(requested(0, TrainingSettings(restarts=2, chunk=10)))
    assert isinstance(chosen.problem.family, asvi.families.Coupled)
