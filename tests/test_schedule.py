"""The schedule's decisions: which gradient, how many draws, what a run may cost."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from asvi.families import ConvexUpdate
from asvi.fitting import schedule
from asvi.fitting.lanes import new_lanes
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
    assert asked == [2] * 3 + ([8] * 5 if noisy else [2] * 10)
    assert state.work == 13
    assert state.chunks == len(asked)
