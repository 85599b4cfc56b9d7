"""Which family `fit` takes where none is asked for."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import asvi
from asvi.fitting import choice

Y = jnp.array([1.0, -0.5, 2.0, 0.3])
PLAN = {"progress": False, "steps": 1500, "restarts": 2}


def groups(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("group", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def test_a_large_model_is_fitted_by_what_is_ahead(monkeypatch):
    small = asvi.fit(groups, Y, **PLAN)
    assert "beside ConvexUpdate" not in small.info["family"]
    monkeypatch.setattr(choice, "SMALL", 10)
    large = asvi.fit(groups, Y, **PLAN)
    assert large.info["family"].startswith("Coupled, the default")
    assert "nat beside ConvexUpdate after 1000 steps of each" in large.info["family"]
    assert large.elbo == small.elbo  # the short runs leave no trace
    asked = asvi.fit(groups, Y, family=asvi.families.Coupled(), **PLAN)
    assert asked.info["family"] == "Coupled, as asked for"

    # A rival that is ahead is taken.
    run = choice.run

    def behind(problem, *rest):
        found = run(problem, *rest)
        far = isinstance(problem.family, asvi.families.Coupled)
        return replace(found, elbo=found.elbo - 10.0) if far else found

    monkeypatch.setattr(choice, "run", behind)
    convex = asvi.fit(groups, Y, **PLAN)
    assert convex.info["family"].startswith("ConvexUpdate: Coupled measured -")
    assert not any("coupling" in name for name in convex.params)

    # Ctrl-C in a short run gives what it has.
    monkeypatch.setattr(
        choice, "run", lambda *args: replace(run(*args), steps=250, message="interrupted: ...")
    )
    broken = asvi.fit(groups, Y, **PLAN)
    assert "interrupted" in broken.message
    assert np.isfinite(broken.elbo)
    assert np.isfinite(broken.posterior.mean()["mu"])


@pytest.mark.parametrize("gain", [np.nan, -1.9, 0.0])
def test_what_is_not_told_apart_stays_with_the_default(gain, monkeypatch):
    class Found:
        steps, elbo_se = 1000, np.sqrt(0.5)

        def __init__(self, elbo):
            self.elbo = elbo

    elbos = iter([gain, 0.0])
    monkeypatch.setattr(choice, "SMALL", 0)
    monkeypatch.setattr(choice, "run", lambda *_: Found(next(elbos)))
    chosen = choice.choose_family(groups, (Y,), {}, "auto", None, choice.Plan(), False)
    assert isinstance(chosen.family, asvi.families.Coupled)
