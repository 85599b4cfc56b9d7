"""What is asked of a posterior at many draws: by NumPy the same numbers as by NumPyro."""

from __future__ import annotations

import copy

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import Predictive
from numpyro.infer.util import log_density, log_likelihood

import asvi
from asvi.density.many_draws import ManyDraws
from asvi.density.settings import DensitySettings, EvaluatorSettings
from asvi.density.split_keys import split, split_data
from asvi.errors import SiteError
from asvi.families import ConvexUpdate, StructuredNormal
from asvi.fitting.problem import Problem
from asvi.program import compiling
from asvi.results.inference_data import prior_draws
from asvi.results.posterior import Posterior

X = np.linspace(-1.0, 1.0, 7)
Y = 1.0 + 2.0 * X + np.array([0.3, -0.5, 0.1, 0.9, -0.7, 0.2, -0.1])


def robust(x, y=None):
    level = numpyro.sample("level", dist.Normal(0.0, 2.0))
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.Gamma(2.0, 2.0))
    mean = numpyro.deterministic("mean", level + slopes[0] * x + slopes[1] * x**2)
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.StudentT(4.0, mean, scale), obs=y)


def counted(x, y=None):
    rate = numpyro.sample("rate", dist.Gamma(3.0, 1.0))
    share = numpyro.sample("share", dist.Beta(2.0, 3.0))
    with numpyro.plate("row", len(x)), handlers.scale(scale=2.0):
        numpyro.sample("y", dist.ZeroInflatedPoisson(share, rate * jnp.exp(x)), obs=y)
        numpyro.sample("z", dist.Binomial(9, share), obs=None if y is None else y + 1)


MODELS = {"robust": (robust, Y), "counted": (counted, np.arange(7))}


@pytest.fixture(params=MODELS)
def case(request):
    """A model, its data, its posterior as it begins, and draws of it."""
    model, y = MODELS[request.param]
    problem = Problem(model, ConvexUpdate(), (X, y), {})
    params = problem.params(problem.initial(jax.random.key(1)))
    posterior = Posterior(problem, params)
    return model, y, posterior, posterior.sample(jax.random.key(2), (300,))


@pytest.fixture
def nothing_compiled(monkeypatch):
    """An error where Python code of ours asks for the compiler."""

    def refused(*_):
        raise AssertionError("compiled")

    monkeypatch.setattr(compiling, "_compiling", refused)


@pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey])
def test_keys_are_split_as_jax_splits_them(make):
    key = make(7)
    for ours, theirs in zip(split(key, 4), jax.random.split(key, 4), strict=True):
        assert ours.dtype == theirs.dtype
        assert np.all(ours == theirs)
    other = jax.random.key(7, impl="rbg")
    np.testing.assert_array_equal(
        split_data(other, 3), jax.random.key_data(jax.random.split(other, 3))
    )
    inside = jax.jit(lambda key: jnp.asarray(split_data(key, 3)))(key)
    np.testing.assert_array_equal(inside, split_data(key, 3))


def test_densities_are_numpyros_and_nothing_is_compiled(case, nothing_compiled):
    model, y, posterior, draws = case
    pointwise, joint = posterior.log_likelihood(draws), posterior.model_log_prob(draws)
    latent = {s.name: draws[s.name] for s in posterior.problem.program.latent}
    theirs = log_likelihood(model, latent, X, y)
    assert pointwise.keys() == theirs.keys()
    for name, x in theirs.items():
        assert pointwise[name].dtype == x.dtype
        np.testing.assert_allclose(pointwise[name], x, rtol=1e-4, atol=1e-5)
    whole = jax.vmap(lambda one: log_density(model, (X, y), {}, one)[0])(latent)
    np.testing.assert_allclose(joint, whole, rtol=1e-5, atol=1e-4)


def test_predictions_are_numpyros_and_nothing_is_compiled(case, nothing_compiled):
    model, _, posterior, _ = case
    key = jax.random.key(4)
    first, second = jax.random.split(key)
    drawn = posterior.sample(first, (300,))
    latent = {s.name: drawn[s.name] for s in posterior.problem.program.latent}
    new = np.linspace(2.0, 3.0, 4)
    found = posterior.predictive(key, new, num_samples=300)
    theirs = Predictive(model, latent)(second, new)
    assert found.keys() == theirs.keys()
    for name, x in theirs.items():
        assert found[name].dtype == x.dtype
        assert np.mean(np.isclose(found[name], x, rtol=1e-3, atol=1e-4)) > 0.998, name
    here, theirs = posterior.predictive(key, num_samples=300), Predictive(model, latent)(second, X)
    for name, x in here.items():
        assert np.mean(np.isclose(x, theirs[name], rtol=1e-3, atol=1e-4)) > 0.998, name


def test_draws_of_guide_and_prior_are_those_of_a_compiled_program(case):
    posterior = case[2]
    key = jax.random.key(5)
    found = posterior.draw(key, (2, 70)), prior_draws(posterior, key, 140)
    other = copy.copy(posterior)
    other.problem = posterior.problem.at(*posterior.problem.arguments)
    other.problem.bound.settings = DensitySettings(evaluator=EvaluatorSettings(max_draws_work=0.0))
    compiled = other.draw(key, (2, 70)), prior_draws(other, key, 140)
    assert jax.tree.structure(found) == jax.tree.structure(compiled)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(compiled), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-3)


def test_arviz_data_of_a_small_fit_are_had_without_draws_being_compiled(monkeypatch):
    result = asvi.fit(robust, X, Y, progress_bar=False)
    programs = []

    def noted(traced, *about):
        programs.append({eqn.primitive.name for eqn in traced.jaxpr.eqns})
        return compile_it(traced, *about)

    compile_it = compiling._compiling
    monkeypatch.setattr(compiling, "_compiling", noted)
    data = result.to_arviz(num_samples=200)
    assert not any("scan" in names for names in programs)
    found = {n: np.asarray(data["posterior"][n]) for n in ("level", "slopes", "scale")}
    mean = found["level"][..., None] + found["slopes"] @ np.stack([X, X**2])
    flat = {n: jnp.asarray(x.reshape(-1, *x.shape[2:])) for n, x in found.items()}
    np.testing.assert_allclose(data["posterior"]["mean"], mean, atol=1e-5)
    theirs = log_likelihood(robust, flat, X, Y)["y"]
    shown = np.asarray(data["log_likelihood"]["y"]).reshape(theirs.shape)
    np.testing.assert_allclose(shown, theirs, rtol=1e-4, atol=1e-4)


def test_double_precision_stays_double(float64):
    problem = Problem(robust, StructuredNormal(), (X, Y), {})
    params = problem.params(problem.initial(jax.random.key(1)))
    posterior = Posterior(problem, params)
    draws = posterior.sample(jax.random.key(2), (30,))
    latent = {s.name: draws[s.name] for s in problem.program.latent}
    found = posterior.log_likelihood(draws)["y"]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, log_likelihood(robust, latent, X, Y)["y"], rtol=1e-12)


@pytest.mark.parametrize("count", [1, 255, 256, 257, 600])
def test_any_number_of_draws(count, nothing_compiled):
    run = ManyDraws(lambda key, x, scale: (scale * x, jax.random.uniform(key)))
    key, x = jax.random.key(0), np.arange(count * 2.0, dtype=np.float32).reshape(count, 2)
    doubled, noise = run(x, 2.0, key=key)
    np.testing.assert_array_equal(doubled, 2 * x)
    np.testing.assert_array_equal(noise, jax.vmap(jax.random.uniform)(jax.random.split(key, count)))


def test_long_loops_and_unknown_operations_are_compiled():
    def halved(_key, x, _rest):
        return jax.lax.while_loop(lambda s: s[1] > 0, lambda s: (s[0] + 1, s[1] - 1), (0, x))[0]

    run = ManyDraws(halved)
    assert run(np.array([3, 20, 0]), 0.0).tolist() == [3, 20, 0]
    assert run(np.array([3, 5000, 0]), 0.0).tolist() == [3, 5000, 0]
    run = ManyDraws(lambda _key, x: jnp.sort(x))
    assert run(np.array([[3, 1, 2]])).tolist() == [[1, 2, 3]]
    drawn = ManyDraws(lambda key, _row: jax.random.normal(key))
    other = jax.random.key(0, impl="rbg")
    assert len(np.unique(np.asarray(drawn((), key=other, count=8)))) == 8


def test_draws_inside_of_what_is_recorded(case):
    posterior = case[2]
    key = jax.random.key(6)
    inside = jax.jit(lambda key: posterior.sample(key, (20,)))(key)
    for name, x in posterior.sample(key, (20,)).items():
        np.testing.assert_allclose(inside[name], x, rtol=2e-3, atol=2e-3)


def test_data_that_are_being_recorded():
    def scaled(data):
        return ManyDraws(lambda _key, x: x * data)(np.arange(3.0))

    np.testing.assert_allclose(jax.jit(scaled)(2.0), [0.0, 2.0, 4.0])
    np.testing.assert_allclose(jax.grad(lambda data: scaled(data).sum())(2.0), 3.0)


def test_a_changed_model_is_refused_by_every_call_that_records_it():
    spread, calls = [0.5], []

    def model(y):
        calls.append(1)
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, spread[0]).expand([7]).to_event(1), obs=y)

    result = asvi.fit(model, Y, progress_bar=False)
    spread[0] = 5.0
    for ask in (result.to_arviz, lambda: result.posterior.predictive(jax.random.key(0))):
        with pytest.raises(SiteError, match="when it was fitted"):
            ask()
    spread[0], before = 0.5, len(calls)
    result.to_arviz(num_samples=30)
    assert len(calls) - before == 5  # a look at the model, and one for each of four groups
    result.to_arviz(num_samples=30)
    assert len(calls) - before == 5
    spread[0] = 5.0
    with pytest.raises(SiteError, match="when it was fitted"):
        result.to_arviz(num_samples=41)
    with pytest.raises(SiteError, match="when it was fitted"):
        result.posterior.predictive(jax.random.key(0), num_samples=33)
