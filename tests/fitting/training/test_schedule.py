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
from asvi.fitting.training import gaussian_start, schedule
from asvi.fitting.training.parallel_optimizer import ADAM, new_state
from asvi.fitting.training.run import first_state
from asvi.fitting.training.settings import TrainingSettings, TrainingState


def model(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


@pytest.mark.parametrize("better", ["plain", "path"])
def test_after_the_race_the_gradient_of_smaller_variance_stays(better):
    """A chunk of path gradients, in one lane, beside the plain ones of the duel."""
    rng, size, plan = np.random.default_rng(0), 1000, TrainingSettings(lanes=8)
    plain = 4.0 if better == "path" else 0.1  # variance of a number, of all draws together
    lanes = new_state(jnp.zeros((1, size)))
    state = TrainingState(lanes, kinds=["prior"], score_shares=[0.0], phase="try gradients")
    # In the duel four lanes pool gradients of an eighth of the draws: their spread is too small
    # by 3/4. A few draws are far out.
    spreads = np.full((250, 8), size * plain * 8 * 3 / 4)
    spreads[130:140] = 1e9
    spreads[:100] = 1e9
    state.trial["plain"] = float(schedule._variances(plan, spreads)[0])
    assert state.trial["plain"] == pytest.approx(size * plain)
    squares, inner = [], lanes.inner
    for _ in range(100):
        gradient = 0.1 + rng.normal(size=(1, size))
        _, inner = jax.vmap(ADAM.update)(jnp.asarray(gradient, jnp.float32), inner)
        squares.append([np.sum(gradient**2)])
    squares[70:75] = [[1e9]] * 5
    variance, _ = schedule._parts(lanes._replace(inner=inner), np.array(squares))
    schedule._choose_gradient(plan, state, variance)
    assert state.trial["path"] == pytest.approx(size, rel=0.1)
    assert state.score_shares == [1.0 if better == "plain" else 0.0]
    assert state.phase == "descend"


@pytest.mark.parametrize("noisy", [True, False])
def test_where_gradients_are_noise_later_cycles_have_more_draws(noisy, monkeypatch):
    monkeypatch.setattr(schedule, "is_enough", lambda *_: False)
    monkeypatch.setattr(schedule, "NOISY", -1.0 if noisy else np.inf)
    asked = []
    advance = schedule.advance

    def watched(*args, draws, **settings):
        asked.append(draws)
        return advance(*args, draws=draws, **settings)

    monkeypatch.setattr(schedule, "advance", watched)
    plan = TrainingSettings(lanes=2, chunk=2, first_cycle=1, max_steps=26)
    problem = Problem(model, ConvexUpdate(), (1.0,), {})
    state = schedule.begin(problem, jax.random.key(0), plan)
    while not schedule.finished(state, plan):
        state = schedule.step_chunk(problem, jax.random.key(1), plan, state)
    # Near the posterior from the start: no race. Cycles of 1 and 2 chunks; then those of more draws
    # count twice. One lane has all draws.
    assert asked == [4] * 3 + ([16] * 5 if noisy else [4] * 10)
    assert len(state.kinds) == 1
    assert state.work == 13
    assert state.chunks == len(asked)


def test_large_models_near_the_posterior_compile_one_program(monkeypatch):
    monkeypatch.setattr(schedule, "LARGE", 0)
    monkeypatch.setattr(schedule, "is_enough", lambda *_: False)
    plan = TrainingSettings(lanes=4, chunk=10, first_cycle=1, max_steps=120)
    problem = Problem(model, Coupled(), (1.0,), {})
    problem.bound._programs.clear()
    state = schedule.begin(problem, jax.random.key(0), plan)
    assert state.score_shares == [0.0]  # path gradients
    while not schedule.finished(state, plan):
        state = schedule.step_chunk(problem, jax.random.key(1), plan, state)
    programs = [name for name in problem.bound._programs if name[0] == "advance"]
    assert [(name[1], name[3]) for name in programs] == [(1, 32)]  # lanes, draws
    assert state.chunks == 6  # each counts twice
    assert state.cycle == 3  # of 1, 2, 2 chunks and what is left
    assert np.isfinite(state.noise)


@pytest.mark.slow
def test_far_from_the_posterior_large_models_race_as_others_do(monkeypatch):
    monkeypatch.setattr(schedule, "LARGE", 0)
    monkeypatch.setattr(gaussian_start, "NEAR", -1.0)
    plan = TrainingSettings(lanes=4, chunk=10, explore_chunks=1, duel_chunks=1, max_steps=40)
    problem = Problem(model, Coupled(), (1.0,), {})
    state = schedule.begin(problem, jax.random.key(0), plan)
    assert state.phase == "explore"
    assert len(state.kinds) == 4
    while not schedule.finished(state, plan):
        state = schedule.step_chunk(problem, jax.random.key(1), plan, state)
    assert len(state.kinds) == 1
    assert state.score_shares == [0.0]


@pytest.mark.parametrize("noise", [0.1, 3.0])
def test_a_single_lane_tells_the_noise_of_its_gradients(noise):
    rng, size = np.random.default_rng(0), 1000
    lanes = new_state(jnp.zeros((1, size)))
    squares, inner = [], lanes.inner
    for _ in range(100):
        gradient = 1.0 + np.sqrt(noise) * rng.normal(size=(1, size))
        _, inner = jax.vmap(ADAM.update)(jnp.asarray(gradient, jnp.float32), inner)
        squares.append([np.sum(gradient**2)])
    variance, square = schedule._parts(lanes._replace(inner=inner), np.array(squares))
    assert abs(variance / square / noise - 1) < 0.2
    other = optax.sgd(0.1)
    without = new_state(jnp.zeros((1, size)), optimizer=other)
    assert np.isnan(schedule._parts(without, np.array(squares))).all()


def test_a_race_without_a_gaussian_knows_plain_gradients_only():
    """And after it path gradients are compared with them."""
    plan = TrainingSettings(lanes=4, chunk=10, explore_chunks=1, duel_chunks=1, max_steps=60)
    problem = Problem(model, MeanField(), (1.0,), {})
    problem.bound._programs.clear()
    state = schedule.begin(problem, jax.random.key(0), plan)
    while not schedule.finished(state, plan):
        state = schedule.step_chunk(problem, jax.random.key(1), plan, state)
    programs = {(name[1], name[-1]) for name in problem.bound._programs if name[0] == "advance"}
    assert programs <= {(4, 1.0), (1, 0.0), (1, 1.0)}  # lanes, share of the score: no mixed ones
    assert (4, 1.0) in programs
    assert set(state.trial) == {"plain", "path"}
    better = min(state.trial, key=state.trial.get)
    assert state.score_shares == [1.0 if better == "plain" else 0.0]


@pytest.mark.slow
def test_where_many_steps_are_lost_draws_are_shared_among_lanes(monkeypatch):
    """One draw in twenty is not finite: of steps of sixteen draws more than half would be lost."""

    def holed(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        hole = numpyro.sample("hole", dist.Normal(0.0, 1.0))
        numpyro.factor("edge", jnp.where(hole > 1.645, jnp.nan, 0.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    monkeypatch.setattr(schedule, "gaussian_start", lambda *_: None)
    monkeypatch.setattr(schedule, "is_enough", lambda *_: False)
    plan = TrainingSettings(chunk=20, explore_chunks=1, duel_chunks=1, max_steps=160)
    problem = Problem(holed, ConvexUpdate(), (1.0,), {})
    state = schedule.begin(problem, jax.random.key(0), plan)
    seen = []
    while not schedule.finished(state, plan):
        before = float(jnp.mean(state.lanes.skipped))
        lanes = len(state.kinds)
        state = schedule.step_chunk(problem, jax.random.key(1), plan, state)
        seen.append((lanes, len(state.kinds), float(jnp.mean(state.lanes.skipped)) - before))
    alone = [i for i, (lanes, _, _) in enumerate(seen) if lanes == 1]
    assert len(alone) == 1  # for one chunk
    assert seen[alone[0] + 1][0] == plan.lanes
    assert state.pools == [0] * plan.lanes


def test_after_a_cycle_that_lost_the_next_one_is_slower(monkeypatch):
    problem = Problem(model, Coupled(), (1.0,), {})
    plan = TrainingSettings(lanes=2)
    state = first_state(problem, jax.random.key(0), plan)
    schedule._descend(plan, state, 0, 0.03)
    start = state.best
    for gain, rate in ((-0.05, 0.03), (-5.0, 0.006)):
        state.lanes = state.lanes._replace(free=state.lanes.free + 1.0)
        monkeypatch.setattr(schedule, "gain_over", lambda *_, gain=gain: (gain, 0.001))
        schedule._end_cycle(problem, jax.random.key(1), plan, state)
        assert state.first_rate == pytest.approx(rate)
        assert (state.best == start).all()  # and it begins where the best was
        assert (state.lanes.free[0] == start).all()
