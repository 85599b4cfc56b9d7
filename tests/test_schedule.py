"""The schedule's decisions: which gradient, how many draws, what a run may cost."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

from asvi.families import ConvexUpdate, Coupled
from asvi.fitting import gaussian_start, schedule
from asvi.fitting.lanes import ADAM, new_lanes
from asvi.fitting.plan import Plan, State
from asvi.fitting.problem import problem_for


def model(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


@pytest.mark.parametrize("better", ["plain", "path"])
def test_single_draws_far_out_do_not_choose_the_gradient(better):
    lanes = new_lanes(jnp.zeros((2, 3)))
    state = State(lanes, rates=[0.1] * 2, kinds=["gaussian"] * 2)
    state.pools, state.score_shares = [0, 1], [1.0, 0.0]
    square = np.ones((250, 2))
    worse = 1 if better == "plain" else 0
    square[:, worse] = 3.0
    square[130:140, 1 - worse] = 1e6  # a few draws of the better one
    square[:100, 1 - worse] = 100.0  # and its way from the start
    schedule._choose_gradient(Plan(lanes=2), state, square)
    assert state.trial == {better: 1.0, {"plain": "path", "path": "plain"}[better]: 3.0}
    assert state.score_shares == [1.0 if better == "plain" else 0.0] * 2
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
    plan = Plan(lanes=2, chunk=2, first_cycle=1, max_steps=26)
    problem, arrays = problem_for(model, ConvexUpdate(), (1.0,), {})
    state = schedule.begin(problem, arrays, jax.random.key(0), plan)
    while not schedule.finished(state, plan):
        state = schedule.step_chunk(problem, arrays, jax.random.key(1), plan, state)
    # Near the posterior from the start: no race. Cycles of 1 and 2 chunks; then those of more draws
    # count twice.
    # They have one lane in place of two: all draws are its own.
    assert asked == [2] * 3 + ([16] * 5 if noisy else [2] * 10)
    assert len(state.kinds) == (1 if noisy else 2)
    assert state.work == 13
    assert state.chunks == len(asked)


def test_large_models_near_the_posterior_compile_one_program(monkeypatch):
    monkeypatch.setattr(schedule, "LARGE", 0)
    monkeypatch.setattr(schedule, "is_enough", lambda *_: False)
    plan = Plan(lanes=4, chunk=10, first_cycle=1, max_steps=120)
    problem, arrays = problem_for(model, Coupled(), (1.0,), {})
    problem.compiled.clear()
    state = schedule.begin(problem, arrays, jax.random.key(0), plan)
    assert state.score_shares == [0.0]  # path gradients
    while not schedule.finished(state, plan):
        state = schedule.step_chunk(problem, arrays, jax.random.key(1), plan, state)
    programs = [name for name in problem.compiled if name[0] == "advance"]
    assert [(name[1], name[3]) for name in programs] == [(1, 32)]  # lanes, draws
    assert state.chunks == 6  # each counts twice
    assert state.cycle == 3  # of 1, 2, 2 chunks and what is left
    assert np.isfinite(state.noise)


def test_far_from_the_posterior_large_models_race_as_others_do(monkeypatch):
    monkeypatch.setattr(schedule, "LARGE", 0)
    monkeypatch.setattr(gaussian_start, "NEAR", -1.0)
    plan = Plan(lanes=4, chunk=10, explore_chunks=1, duel_chunks=1, max_steps=40)
    problem, arrays = problem_for(model, Coupled(), (1.0,), {})
    state = schedule.begin(problem, arrays, jax.random.key(0), plan)
    assert state.phase == "explore"
    assert len(state.kinds) == 4
    while not schedule.finished(state, plan):
        state = schedule.step_chunk(problem, arrays, jax.random.key(1), plan, state)
    assert len(state.kinds) == 2
    assert set(state.trial) == {"plain", "path"}


@pytest.mark.parametrize("noise", [0.1, 3.0])
def test_a_single_lane_tells_the_noise_of_its_gradients(noise):
    rng, size = np.random.default_rng(0), 1000
    lanes = new_lanes(jnp.zeros((1, size)))
    squares, inner = [], lanes.inner
    for _ in range(100):
        gradient = 1.0 + np.sqrt(noise) * rng.normal(size=(1, size))
        _, inner = jax.vmap(ADAM.update)(jnp.asarray(gradient, jnp.float32), inner)
        squares.append([np.sum(gradient**2)])
    found = schedule._noise_alone(lanes._replace(inner=inner), np.array(squares))
    assert abs(found / noise - 1) < 0.2
    other = optax.sgd(0.1)
    without = new_lanes(jnp.zeros((1, size)), optimizer=other)
    assert np.isnan(schedule._noise_alone(without, np.array(squares)))
