"""A family of a user's own: two methods outside the package, and all that `asvi` does with it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import asvi
from asvi.errors import AsviError
from asvi.families import Family, Parameter
from asvi.fitting.training import run

Y = np.array([1.0, 2.0, 4.5], np.float32)
Z = np.array([-1.0, 0.5, 3.0], np.float32)
SETTINGS = {
    "rng_key": jax.random.key(3),
    "progress_bar": False,
    "training": asvi.Training(num_restarts=2, num_steps=3000),
}


class Moved(Family):
    """The prior conditional, its mean moved and its scale multiplied."""

    def declare(self, site):
        shape = site.full_batch_shape
        return {"shift": Parameter(shape), "width": Parameter(shape, dist.constraints.positive)}

    def update(self, prior, parameters, site):
        sd = jnp.sqrt(prior.variance)
        return dist.Normal(prior.mean + parameters["shift"] * sd, parameters["width"] * sd)


def model(y, z):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mu, 1.0).expand([3]).to_event(1), obs=y)
    with numpyro.plate("group", 3):
        effect = numpyro.sample("effect", dist.Normal(1.0, 2.0))
        numpyro.sample("z", dist.Normal(effect, 0.5), obs=z)


def truth(prior_mean, prior_sd, noise_sd, data):
    """Posterior mean and sd of a normal mean, and the log evidence of its data."""
    precision = prior_sd**-2 + len(data) * noise_sd**-2
    mean = (prior_mean * prior_sd**-2 + data.sum() * noise_sd**-2) / precision
    ends = dist.Normal(prior_mean, prior_sd).log_prob(mean) + jnp.sum(
        dist.Normal(mean, noise_sd).log_prob(data)
    )
    return mean, precision**-0.5, float(ends - dist.Normal(mean, precision**-0.5).log_prob(mean))


MU = truth(0.0, 10.0, 1.0, Y)
EFFECTS = [truth(1.0, 2.0, 0.5, z[None]) for z in Z]
EVIDENCE = MU[2] + sum(evidence for _, _, evidence in EFFECTS)


@pytest.fixture(scope="module")
def fitted():
    return asvi.fit(model, Y, Z, family=Moved(), **SETTINGS)


def test_it_is_fitted(fitted):
    assert abs(fitted.elbo - EVIDENCE) < 0.02
    mean, sd = fitted.posterior.mean(), fitted.posterior.sd()
    assert abs(mean["mu"] - MU[0]) < 0.1
    assert abs(sd["mu"] - MU[1]) < 0.05
    np.testing.assert_allclose(mean["effect"], [m for m, _, _ in EFFECTS], atol=0.1)
    np.testing.assert_allclose(sd["effect"], [s for _, s, _ in EFFECTS], atol=0.05)
    assert fitted.diagnose().verdict == "good"


def test_it_is_explained(fitted):
    explanation = fitted.explain()
    assert [(row.name, row.family) for row in explanation.rows] == [
        ("mu", "Moved"),
        ("effect", "Moved"),
    ]
    assert explanation.missed == ()
    assert fitted.family_reason == "Moved, as asked for"


def test_it_is_saved_and_loaded(fitted, tmp_path):
    path = tmp_path / "own.asvi"
    fitted.save(path)
    loaded = asvi.load(path, model)
    assert type(loaded.problem.family) is Moved
    assert loaded.elbo == fitted.elbo
    key = jax.random.key(4)
    ours, theirs = (f.posterior.sample(key, (50,)) for f in (fitted, loaded))
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6)


def test_it_is_resumed(fitted, tmp_path, monkeypatch):
    """To the same result, after a run that died."""
    path, chunks, step = tmp_path / "own.ckpt", [], run.step_chunk

    def dying(*args):
        chunks.append(1)
        if len(chunks) == 4:
            raise RuntimeError("died")
        return step(*args)

    monkeypatch.setattr(run, "step_chunk", dying)
    with pytest.raises(RuntimeError, match="died"):
        asvi.fit(model, Y, Z, family=Moved(), checkpoint=path, **SETTINGS)
    monkeypatch.undo()
    resumed = asvi.fit(model, Y, Z, family=Moved(), checkpoint=path, **SETTINGS)
    assert resumed.elbo == fitted.elbo
    assert all(np.array_equal(resumed.params[k], fitted.params[k]) for k in fitted.params)


def notebook_cell(sd):
    """A class that a notebook defines anew, by the same name and with the same parameters."""

    class Redefined(Family):
        def declare(self, site):
            return {"loc": Parameter(site.full_batch_shape)}

        def update(self, prior, parameters, site):
            return dist.Normal(parameters["loc"], sd)

    return Redefined()


def one_number(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def test_a_class_that_is_defined_anew_is_another_family(tmp_path):
    """Nothing that was made or compiled for the old class serves the new one."""
    _, sd, evidence = truth(0.0, 1.0, 1.0, np.array([3.0]))
    found = {}
    for width in (1.0, 0.5):
        family = notebook_cell(width)
        result = found[width] = asvi.fit(one_number, 3.0, family=family, **SETTINGS)
        divergence = np.log(sd / width) + 0.5 * (width / sd) ** 2 - 0.5
        assert abs(result.elbo - (evidence - divergence)) < 4 * result.elbo_se
        draws = result.posterior.sample(jax.random.key(1), (4000,))["x"]
        assert abs(draws.std() - width) < 0.05 * width
        assert result.problem.family is family
    first, then = found[1.0], found[0.5]
    assert repr(first.problem.family) == repr(then.problem.family)
    assert first.problem.family != then.problem.family
    assert first.problem is not then.problem
    # What was fitted before keeps to the class that it was fitted with.
    again = first.posterior.sample(jax.random.key(2), (4000,))["x"]
    assert abs(again.std() - 1.0) < 0.05
    first.save(tmp_path / "old.asvi")
    with pytest.raises(AsviError, match="what is computed from"):
        asvi.load(tmp_path / "old.asvi", one_number)


def test_settings_are_shown_compared_and_stored_where_they_are_not_the_usual_ones(tmp_path):
    from asvi.families import Coupled
    from asvi.families.coupled.settings import CouplingSettings
    from asvi.results.storage import file

    usual, other = Coupled(), Coupled(settings=CouplingSettings(max_skew=0.5, max_edges=7))
    assert "settings" not in repr(usual)
    assert "max_skew=0.5" in repr(other)
    assert usual != other
    assert other.max_edges == 7
    assert usual == Coupled(settings=CouplingSettings())
    for family in (usual, other):
        assert file._family_from_json(file._family_to_json(family), tmp_path) == family
