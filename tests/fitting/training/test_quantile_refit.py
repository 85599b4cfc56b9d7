"""Splines led through weighted quantiles: tails the ELBO does not feel, and what is left alone."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import cond

import asvi
from asvi.distributions.spline import KNOTS, spline_forward
from asvi.fitting.problem import Problem
from asvi.fitting.training import quantile_refit as marginals
from asvi.fitting.training import run
from asvi.fitting.training.parallel_optimizer import evaluate_with_noise
from asvi.fitting.training.quantile_refit import quantile_map, refit_splines
from asvi.fitting.training.settings import TrainingSettings


def heavy(y=None):
    """A posterior that is its prior, with tails that a Gaussian start leaves out."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.factor("tail", dist.StudentT(4.0).log_prob(a) - dist.Normal(0.0, 1.0).log_prob(a))
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


def at_start(model, *args):
    problem = Problem(model, asvi.families.Coupled(), args, {})
    return problem, problem.initial(jax.random.key(0))


def spread(problem, flat, name="a"):
    draws = asvi.Posterior(problem, problem.params(flat))
    return float(np.std(draws.sample(jax.random.key(3), (40_000,))[name]))


def test_a_tail_that_was_left_out_is_taken_in():
    problem, flat = at_start(heavy, 0.0)
    wide = TrainingSettings(tolerance=1.0)
    led, told = refit_splines(problem, flat, jax.random.key(1), wide)
    assert told["refused"] == []
    assert len(told["gains"]) == 2
    before, after = spread(problem, flat), spread(problem, led)
    assert abs(before - 1.0) < 0.02
    assert after > 1.15  # of the target: 1.41; beyond the knots there is nothing to lead


def test_what_costs_more_than_the_tolerance_is_not_kept(monkeypatch):
    problem, flat = at_start(heavy, 0.0)
    monkeypatch.setattr(marginals, "quantile_map", lambda *_: 0.1 * KNOTS[1:-1])
    kept, told = refit_splines(problem, flat, jax.random.key(1), TrainingSettings())
    assert told["gains"] == []
    assert len(told["refused"]) == 2  # all the way, and half of it
    assert max(told["refused"]) < -0.01
    np.testing.assert_array_equal(kept, flat)


def test_equal_weights_change_nothing():
    z = np.random.default_rng(0).normal(size=5_000)
    np.testing.assert_allclose(quantile_map(z, np.full(5_000, 1 / 5_000)), KNOTS[1:-1], atol=1e-9)


@pytest.mark.parametrize("far", [-30.0, 30.0])
def test_knots_stay_in_order_whatever_the_weights(far):
    z = np.random.default_rng(0).normal(size=5_000)
    weights = np.exp(far * z - np.max(far * z))
    to = quantile_map(z, weights / weights.sum())
    assert (np.diff(np.concatenate([KNOTS[:1], to, KNOTS[-1:]])) > 0.01).all()
    led = marginals.compose_spline(np.zeros(2 * len(KNOTS) - 3, np.float32), to)
    bent = spline_forward(jnp.linspace(-5, 5, 101), jnp.broadcast_to(led, (101, len(led))))[0]
    assert (np.diff(bent) > 0).all()


def test_a_spline_after_a_map_goes_where_both_take_it():
    old = 0.5 * np.random.default_rng(1).normal(size=2 * len(KNOTS) - 3).astype(np.float32)
    to = 0.8 * KNOTS[1:-1] + 0.1
    led = marginals.compose_spline(old, to)
    wide = jnp.broadcast_to(led, (len(to), len(led)))
    expected = spline_forward(jnp.asarray(to), jnp.broadcast_to(old, (len(to), len(old))))[0]
    np.testing.assert_allclose(
        spline_forward(jnp.asarray(KNOTS[1:-1]), wide)[0], expected, atol=1e-3
    )


def test_no_single_draw_has_a_say():
    log_ratios = np.zeros(10_000)
    log_ratios[17] = 30.0
    weights = marginals.cut_weights(log_ratios, TrainingSettings().quantile_refit.max_weight)
    assert weights.max() < 1e-2
    assert abs(weights.sum() - 1) < 1e-9


def test_models_without_exact_weights_are_left_alone():
    def mixed(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        k = numpyro.sample("k", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(a + k, 1.0), obs=y)

    def parts(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with numpyro.plate("point", 10, subsample_size=5) as i:
            numpyro.sample("y", dist.Normal(a, 1.0), obs=y[i])

    for model, data in ((mixed, 0.5), (parts, jnp.arange(10.0))):
        problem, flat = at_start(model, data)
        kept, told = refit_splines(problem, flat, jax.random.key(1), TrainingSettings())
        assert kept is flat
        assert told == {}


def test_a_fit_says_what_it_did():
    result = asvi.fit(
        heavy, 0.0, progress_bar=False, effort="thorough", training=asvi.Training(num_steps=2000)
    )
    assert len(result.run.marginals["gains"]) == 2


def test_a_round_has_no_more_draws_than_the_run_had(monkeypatch):
    drawn = []

    def counted(problem, rows, key, draws):
        drawn.append(len(rows) * draws)
        return evaluate_with_noise(problem, rows, key, draws=draws)

    monkeypatch.setattr(marginals, "evaluate_with_noise", counted)
    result = asvi.fit(
        heavy, 0.0, progress_bar=False, effort="thorough", training=asvi.Training(num_steps=1250)
    )
    rounds = len(result.run.marginals["gains"])
    assert rounds > 0
    assert 0.9 * 1250 * 16 < sum(drawn) / rounds <= 1250 * 16
    assert (
        asvi.fit(
            heavy, 0.0, progress_bar=False, effort="thorough", training=asvi.Training(num_steps=500)
        ).run.marginals
        == {}
    )


@pytest.mark.slow
def test_sites_in_branches_are_left_alone():
    def model(flag, y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = cond(
            flag > 0,
            lambda a: numpyro.sample("b", dist.Normal(a, 1.0)),
            lambda a: numpyro.sample("b", dist.Normal(-a, 2.0)),
            a,
        )
        numpyro.sample("y", dist.Normal(b, 0.5), obs=y)

    problem, flat = at_start(model, jnp.array(1.0), jnp.array(0.7))
    assert set(problem.splines) == {"a", "b"}
    led, told = refit_splines(problem, flat, jax.random.key(1), TrainingSettings(tolerance=9.0))
    assert len(told["gains"]) == 2
    before, after = problem.params(flat), problem.params(led)
    changed = {n for n in before if not np.array_equal(before[n], after[n])}
    assert changed == {problem.splines["a"]}


def test_an_interrupt_at_the_last_step_loses_nothing(monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "refit_splines", stopped)
    result = asvi.fit(
        heavy, 0.0, progress_bar=False, effort="thorough", training=asvi.Training(num_steps=500)
    )
    assert np.isfinite(result.elbo)
    assert "interrupted" in result.message
