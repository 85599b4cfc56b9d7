"""By which way a density is evaluated, and why it may not be: answers, and errors that are none."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from asvi.density import curvature, double_precision, traced_density
from asvi.density.curvature import BlockDensity, block_density
from asvi.density.evaluators import CompiledEvaluator, NumpyEvaluator, SlopeEvaluator
from asvi.density.refusal import Refusal
from asvi.density.settings import DensitySettings, EvaluatorSettings
from asvi.density.split_keys import split_data
from asvi.density.traced_density import TracedDensity
from asvi.errors import InternalError
from asvi.families import StructuredNormal
from asvi.fitting.gaussian.search import find_nearest_gaussian
from asvi.fitting.ladder import climb
from asvi.fitting.problem import Problem
from asvi.fitting.request import Request
from asvi.fitting.training.settings import TrainingSettings
from asvi.program import compiling
from asvi.results.posterior import Posterior

Y = np.array([1.0, -1.0, 2.0, 7.0], np.float32)
COMPILED = DensitySettings(evaluator=EvaluatorSettings(use_numpy=False))


def groups(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    with numpyro.plate("group", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def in_half_precision(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x.astype(jnp.float16).astype(jnp.float32), 1.0), obs=y[0])


def without_second_slopes(y):
    """JAX knows how an incomplete gamma function moves with its shape, and no more."""
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    below = jax.scipy.special.gammainc(jnp.exp(x), 2.0)
    numpyro.sample("y", dist.Normal(below, 1.0), obs=y[0])


def space_of(model, settings=DensitySettings()):
    return Problem(model, StructuredNormal(), (Y,), {}, density=settings).noise_space


def request(settings):
    return Request(
        groups, (Y,), {}, jax.random.key(3), TrainingSettings(), time.monotonic(),
        progress=False, density=settings,
    )  # fmt: skip


# -------------------------------------------------------------------------------------- the switch


def test_without_numpy_the_numbers_are_the_same():
    space, other = space_of(groups), space_of(groups, COMPILED)
    points = 0.3 * np.random.default_rng(0).normal(size=(5, space.size))
    with jax.enable_x64(True):
        ours, theirs = (block_density(s, {}, True) for s in (space, other))
        assert isinstance(ours.evaluator, NumpyEvaluator)
        assert isinstance(theirs.evaluator, CompiledEvaluator)
        assert theirs.evaluator.at_one is None
        one, two = ours(points), theirs(points)
        np.testing.assert_allclose(two.value, one.value, rtol=1e-10)
        np.testing.assert_allclose(two.slope, one.slope, rtol=1e-8, atol=1e-9)
        matrices = (x.hessian.to_dense() for x in (two, one))
        np.testing.assert_allclose(*matrices, rtol=1e-8, atol=1e-9)
        for x, y in zip(theirs.slopes(points), ours.slopes(points), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-9)
        for x, y in zip(theirs.prior_moments(points), ours.prior_moments(points), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-10)
        expected = ours.sites(points)
        for name, x in theirs.sites(points).items():
            np.testing.assert_allclose(x, expected[name], rtol=1e-10)
        assert ours.is_fine()
        assert theirs.is_fine()


def test_without_numpy_nothing_of_it_is_run(monkeypatch):
    def never(*_, **__):
        raise AssertionError("by NumPy")

    monkeypatch.setattr("asvi.density.numpy_backend.NumpyFunction", never)
    outcome = climb(request(COMPILED))
    draws = Posterior(outcome.problem, outcome.params).sample(jax.random.key(0), (30,))
    assert np.isfinite(draws["mu"]).all()
    assert np.isfinite(outcome.elbo)


def test_a_whole_fit_is_the_same_either_way():
    ours, theirs = (climb(request(s)) for s in (DensitySettings(), COMPILED))
    assert abs(ours.elbo - theirs.elbo) < 0.02 + 3 * np.hypot(ours.elbo_se, theirs.elbo_se)
    evidence = [x.correction.log_evidence for x in (ours, theirs)]
    assert abs(evidence[0] - evidence[1]) < 0.05
    key = jax.random.key(1)
    np.testing.assert_array_equal(
        split_data(key, 4), split_data(key, 4, EvaluatorSettings(use_numpy=False))
    )


# ----------------------------------------------------------------------------------------- refusals


def test_types_that_are_written_down_are_a_refusal_and_single_precision_serves():
    space = space_of(in_half_precision)
    refused = TracedDensity.build(space, {}, True)
    assert isinstance(refused, Refusal)
    assert "float16" in refused.why
    assert isinstance(block_density(space, {}, True), Refusal)
    assert isinstance(block_density(space, {}, False), BlockDensity)
    problem = Problem(in_half_precision, StructuredNormal(), (Y,), {})
    found = find_nearest_gaussian(problem, None, 0.01)
    assert found is not None
    assert not found.is_double


@pytest.mark.parametrize("double", [True, False])
def test_a_slope_without_a_slope_is_a_refusal_of_curvature_alone(double):
    space = space_of(without_second_slopes)
    refused = block_density(space, {}, double)
    assert isinstance(refused, Refusal)
    assert "derivative" in refused.why
    assert isinstance(SlopeEvaluator.build(space, {}, double), SlopeEvaluator)


ERRORS = [TypeError, ValueError, NotImplementedError, InternalError]


@pytest.mark.parametrize("kind", ERRORS)
def test_a_fault_in_rounding_is_no_refusal(kind, monkeypatch):
    def broken(*_):
        raise kind("a fault of ours")

    space = space_of(groups)
    monkeypatch.setattr(traced_density, "_RECORDED", compiling.Store(1))
    monkeypatch.setattr(double_precision, "_run", broken)
    with pytest.raises(kind, match="of ours"):
        TracedDensity.build(space, {}, True)


@pytest.mark.parametrize("kind", ERRORS)
def test_a_fault_in_an_evaluator_is_no_refusal(kind, monkeypatch):
    def broken(*_, **__):
        raise kind("a fault of ours")

    problem = Problem(groups, StructuredNormal(), (Y,), {})
    monkeypatch.setattr(curvature.NumpyEvaluator, "build", broken)
    with pytest.raises(kind, match="of ours"):
        find_nearest_gaussian(problem, None, 0.01)


@pytest.mark.parametrize("kind", ERRORS)
def test_a_fault_in_the_quick_check_of_data_is_told(kind, monkeypatch):
    def broken(*_):
        raise kind("a fault of ours")

    monkeypatch.setattr("asvi.density.traced_density.raise_if_invalid", broken)
    problem = Problem(groups, StructuredNormal(), (Y,), {})
    with pytest.raises(kind, match="of ours"):
        find_nearest_gaussian(problem, None, 0.01)


def test_programs_of_other_settings_are_others():
    space = space_of(groups)
    settings = DensitySettings(evaluator=EvaluatorSettings(max_points=20))
    few, many = block_density(space, {}, True, settings), block_density(space, {}, True)
    assert few.averaged_draws == 20
    assert many.averaged_draws == 64
    assert few.evaluator.density.program is not many.evaluator.density.program
