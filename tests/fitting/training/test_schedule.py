"""The schedule's decisions: which gradient, how many draws, what a run may cost."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

from asvi.families import ConvexUpdate, Coupled, MeanField
from asvi.fitting.problem import Problem
from asvi.fitting.training import descent, race, schedule
from asvi.fitting.training.parallel_optimizer import new_state
from asvi.fitting.training.run import first_state
from asvi.fitting.training.settings import ADAM, TrainingSettings
from asvi.fitting.training.state import GradientKind, Phase, Start, TrainingState


def model(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


@pytest.mark.parametrize("better", ["plain", "path"])
def test_after_the_race_the_gradient_of_smaller_variance_stays(better):
    """A chunk of path gradients, in one lane, beside the plain ones of the duel."""
    rng, size, plan = np.random.default_rng(0), 1000, TrainingSettings(restarts=8)
    plain = 4.0 if better == "path" else 0.1  # variance of a number, of all draws together
    parallel = new_state(jnp.zeros((1, size)))
    state = TrainingState(
        parallel, starts=[Start.PRIOR], score_shares=[0.0], phase=Phase.TRY_GRADIENTS
    )
    # In the duel four restarts pool gradients of an eighth of the draws: their spread is too small
    # by 3/4. A few draws are far out.
    spreads = np.full((250, 8), size * plain * 8 * 3 / 4)
    spreads[130:140] = 1e9
    spreads[:100] = 1e9
    state.variances[GradientKind.PLAIN] = float(race.pooled_variances(plan, spreads)[0])
    assert state.variances["plain"] == pytest.approx(size * plain)
    squares, inner = [], parallel.inner
    for _ in range(100):
        gradient = 0.1 + rng.normal(size=(1, size))
        _, inner = jax.vmap(ADAM.update)(jnp.asarray(gradient, jnp.float32), inner)
        squares.append([np.sum(gradient**2)])
    squares[70:75] = [[1e9]] * 5
    variance, _ = descent.gradient_moments(parallel._replace(inner=inner), np.array(squares))
    descent.choose_gradient(state, variance)
    assert state.variances["path"] == pytest.approx(size, rel=0.1)
    assert state.score_shares == [1.0 if better == "plain" else 0.0]
    assert state.phase is Phase.DESCEND


@pytest.mark.parametrize("noisy", [True, False])
def test_where_gradients_are_noise_later_cycles_have_more_draws(noisy, monkeypatch):
    monkeypatch.setattr(descent, "is_enough", lambda *_: False)
    asked = []
    advance = schedule.advance

    def watched(*args, draws, **settings):
        asked.append(draws)
        return advance(*args, draws=draws, **settings)

    monkeypatch.setattr(schedule, "advance", watched)
    ratio = -1.0 if noisy else np.inf
    plan = TrainingSettings(restarts=2, chunk=2, first_cycle=1, max_steps=26, max_noise_ratio=ratio)
    problem = Problem(model, ConvexUpdate(), (1.0,), {})
    state = race.begin(problem, jax.random.key(0), plan)
    while not schedule.finished(state, plan):
        state = schedule.step_chunk(problem, jax.random.key(1), plan, state)
    # Near the posterior from the start: no race. Cycles of 1 and 2 chunks; then those of more draws
    # count twice. One restart has all draws.
    assert asked == [4] * 3 + ([16] * 5 if noisy else [4] * 10)
    assert len(state.starts) == 1
    assert state.work == 13
    assert state.chunks == len(asked)


def test_large_models_near_the_posterior_compile_one_program(monkeypatch):
    monkeypatch.setattr(descent, "is_enough", lambda *_: False)
    plan = TrainingSettings(
        restarts=4, chunk=10, first_cycle=1, max_steps=120, min_params_one_program=0
    )
    problem = Problem(model, Coupled(), (1.0,), {})
    problem.bound._programs.clear()
    state = race.begin(problem, jax.random.key(0), plan)
    assert state.score_shares == [0.0]  # path gradients
    while not schedule.finished(state, plan):
        state = schedule.step_chunk(problem, jax.random.key(1), plan, state)
    programs = [name for name in problem.bound._programs if name[0] == "advance"]
    assert [(name[1], name[3]) for name in programs] == [(1, 32)]  # restarts, draws
    assert state.chunks == 6  # each counts twice
    assert state.cycle == 3  # of 1, 2, 2 chunks and what is left
    assert np.isfinite(state.noise)


def test_far_from_the_posterior_large_models_race_as_others_do():
    short = {"chunk": 10, "explore_chunks": 1, "duel_chunks": 1, "max_steps": 40}
    plan = TrainingSettings(restarts=4, min_params_one_program=0, near_nat=-1.0, **short)
    problem = Problem(model, Coupled(), (1.0,), {})
    state = race.begin(problem, jax.random.key(0), plan)
    assert state.phase is Phase.EXPLORE
    assert len(state.starts) == 4
    while not schedule.finished(state, plan):
        state = schedule.step_chunk(problem, jax.random.key(1), plan, state)
    assert len(state.starts) == 1
    assert state.score_shares == [0.0]


@pytest.mark.parametrize("noise", [0.1, 3.0])
def test_a_single_lane_tells_the_noise_of_its_gradients(noise):
    rng, size = np.random.default_rng(0), 1000
    parallel = new_state(jnp.zeros((1, size)))
    squares, inner = [], parallel.inner
    for _ in range(100):
        gradient = 1.0 + np.sqrt(noise) * rng.normal(size=(1, size))
        _, inner = jax.vmap(ADAM.update)(jnp.asarray(gradient, jnp.float32), inner)
        squares.append([np.sum(gradient**2)])
    variance, square = descent.gradient_moments(parallel._replace(inner=inner), np.array(squares))
    assert abs(variance / square / noise - 1) < 0.2
    other = optax.sgd(0.1)
    without = new_state(jnp.zeros((1, size)), optimizer=other)
    assert np.isnan(descent.gradient_moments(without, np.array(squares))).all()


def test_a_race_without_a_gaussian_knows_plain_gradients_only():
    """And after it path gradients are compared with them."""
    plan = TrainingSettings(restarts=4, chunk=10, explore_chunks=1, duel_chunks=1, max_steps=60)
    problem = Problem(model, MeanField(), (1.0,), {})
    problem.bound._programs.clear()
    state = race.begin(problem, jax.random.key(0), plan)
    while not schedule.finished(state, plan):
        state = schedule.step_chunk(problem, jax.random.key(1), plan, state)
    programs = {(name[1], name[-1]) for name in problem.bound._programs if name[0] == "advance"}
    assert programs <= {(4, 1.0), (1, 0.0), (1, 1.0)}  # restarts, share of the score: no mixed ones
    assert (4, 1.0) in programs
    assert set(state.variances) == {"plain", "path"}
    better = min(state.variances, key=state.variances.get)
    assert state.score_shares == [1.0 if better == "plain" else 0.0]


def test_where_many_steps_are_lost_draws_are_shared_among_lanes(monkeypatch):
    """One draw in twenty is not finite: of steps of sixteen draws more than half would be lost."""

    def holed(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        hole = numpyro.sample("hole", dist.Normal(0.0, 1.0))
        numpyro.factor("edge", jnp.where(hole > 1.645, jnp.nan, 0.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    monkeypatch.setattr(race, "gaussian_start", lambda *_: None)
    monkeypatch.setattr(descent, "is_enough", lambda *_: False)
    plan = TrainingSettings(chunk=20, explore_chunks=1, duel_chunks=1, max_steps=160)
    problem = Problem(holed, ConvexUpdate(), (1.0,), {})
    state = race.begin(problem, jax.random.key(0), plan)
    seen = []
    while not schedule.finished(state, plan):
        before = float(jnp.mean(state.parallel.skipped))
        restarts = len(state.starts)
        state = schedule.step_chunk(problem, jax.random.key(1), plan, state)
        seen.append((restarts, len(state.starts), float(jnp.mean(state.parallel.skipped)) - before))
    alone = [i for i, (restarts, _, _) in enumerate(seen) if restarts == 1]
    assert len(alone) == 1  # for one chunk
    assert seen[alone[0] + 1][0] == plan.restarts
    assert state.pools == [0] * plan.restarts


def test_after_a_cycle_that_lost_the_next_one_is_slower(monkeypatch):
    problem = Problem(model, Coupled(), (1.0,), {})
    plan = TrainingSettings(restarts=2)
    state = first_state(problem, jax.random.key(0), plan)
    descent.begin_descent(plan, state, 0, 0.03)
    start = state.best
    for gain, rate in ((-0.05, 0.03), (-5.0, 0.006)):
        state.parallel = state.parallel._replace(free=state.parallel.free + 1.0)
        monkeypatch.setattr(descent, "gain_over", lambda *_, gain=gain: (gain, 0.001))
        descent.end_cycle(problem, jax.random.key(1), plan, state)
        assert state.first_rate == pytest.approx(rate)
        assert (state.best == start).all()  # and it begins where the best was
        assert (state.parallel.free[0] == start).all()
