"""Takes a problem, data and a plan; gives an Outcome: parameters, losses, a final ELBO."""

from __future__ import annotations

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from asvi.errors import AsviError
from asvi.fitting.details import TrainingDetails
from asvi.fitting.outcome import Outcome
from asvi.fitting.problem import Problem
from asvi.fitting.training import checkpoint as checkpoints
from asvi.fitting.training.finite_start import finite_starts
from asvi.fitting.training.parallel_optimizer import draw_elbos
from asvi.fitting.training.progress import ProgressLine
from asvi.fitting.training.quantile_refit import refit_splines
from asvi.fitting.training.schedule import begin, candidates, finished, step_chunk
from asvi.fitting.training.settings import TrainingSettings, TrainingState

__all__ = ["check_plan", "conclude", "first_state", "optimise", "train"]

JUDGEMENTS = 10  # times the final ELBO is drawn, at most


def train(
    problem: Problem,
    key: jax.Array,
    plan: TrainingSettings,
    progress: bool,
    checkpoint: str | Path | None,
    started_at: float,
    must_exist: bool = False,
    state: TrainingState | None = None,
) -> Outcome:
    """The whole run, or the rest of it from a checkpoint, or from ``state``."""
    found = None
    if checkpoint is not None:
        checkpoints.check_writable(checkpoint)
        found = checkpoints.load(checkpoint, problem, key, plan)
        if found is None and must_exist:
            raise AsviError(f"{checkpoint} holds no state to go on from.")
    state = found or state or first_state(problem, key, plan)
    message = optimise(problem, key, plan, state, progress, checkpoint)
    return conclude(problem, key, plan, state, message, started_at)


def first_state(problem: Problem, key: jax.Array, plan: TrainingSettings) -> TrainingState:
    """Where the run of this key begins."""
    start_key = _keys(key)[0]
    state = begin(problem, start_key, plan)
    if state.phase == "explore":  # a start near the posterior was found finite already
        state.lanes = finite_starts(problem, state.lanes, start_key)
    return state


def optimise(
    problem: Problem,
    key: jax.Array,
    plan: TrainingSettings,
    state: TrainingState,
    progress: bool,
    checkpoint: str | Path | None = None,
) -> str:
    """Steps until the plan is done, in ``state``; gives a message where the user broke it off."""
    run_key = _keys(key)[1]
    with ProgressLine(plan, progress) as line:
        try:
            while not finished(state, plan):
                step_chunk(problem, run_key, plan, state)
                if checkpoint is not None:
                    checkpoints.save(checkpoint, problem, key, plan, state)
                line.tell(state)
        except KeyboardInterrupt:
            return "interrupted: this is the best fit so far"
    return ""


def _keys(key: jax.Array) -> jax.Array:
    """Keys of the start, the steps, and of the draws that choose and judge the result."""
    return jax.random.split(key, 4)


def conclude(
    problem: Problem,
    key: jax.Array,
    plan: TrainingSettings,
    state: TrainingState,
    message: str,
    started_at: float,
) -> Outcome:
    """The best of what was found, judged by draws that did not choose it."""
    _, _, judge_key, draw_key = _keys(key)
    judged = {}
    for name, flat in candidates(problem, judge_key, plan, state).items():
        rows = jnp.broadcast_to(flat, (plan.lanes, flat.size))
        draws = np.asarray(
            draw_elbos(problem, rows, judge_key, draws=plan.evaluation_draws), float
        ).ravel()
        judged[name] = (draws, flat)
    best = max(judged, key=lambda name: _mean(judged[name][0]))
    flat, marginals = judged[best][1], {}
    if not message:  # who interrupted wants it now
        try:
            had = state.chunks * plan.chunk * plan.lanes * plan.draws  # at least
            flat, marginals = refit_splines(
                problem, flat, jax.random.fold_in(judge_key, 1), plan, had
            )
        except KeyboardInterrupt:
            message = "interrupted at the last step: this is the best fit so far"
    # The winner is judged again with draws that did not choose it, as many as the error asks for.
    rows = jnp.broadcast_to(flat, (plan.lanes, problem.size))
    fresh = np.empty(0)
    for i in range(JUDGEMENTS):
        draws = draw_elbos(
            problem, rows, jax.random.fold_in(draw_key, i), draws=plan.evaluation_draws
        )
        fresh = np.concatenate([fresh, np.asarray(draws, float).ravel()])
        if not np.std(fresh) / np.sqrt(len(fresh)) > plan.tolerance:
            break
    converged = state.phase == "done"
    if not message:
        message = (
            "converged: another cycle would gain less than the tolerance or its error"
            if converged
            else f"stopped after {state.chunks * plan.chunk} steps, before the ELBO had settled"
        )
    return Outcome(
        elbo=_mean(fresh),
        elbo_se=float(fresh.std(ddof=1) / np.sqrt(len(fresh))),
        losses=np.array(state.losses),
        params=problem.found_params(flat),
        converged=converged,
        message=message,
        steps=state.chunks * plan.chunk,
        skipped_steps=int(np.sum(np.asarray(state.lanes.skipped))),
        seconds=time.monotonic() - started_at,
        details=TrainingDetails(
            learning_rate=state.first_rate,
            gradient="path" if state.score_shares[0] == 0 and problem.has_path else "plain",
            gradient_variance=dict(state.trial),
            kept=best,
            start=state.kinds[0],
            gains=list(state.gains),
            coupling_gain=state.coupling_gain,
            marginals=marginals,
            chunk=plan.chunk,
            lanes=plan.lanes,
            lanes_after_race=len(state.kinds),
            draws_per_step=state.more_draws * plan.draws * plan.lanes,
        ),
        problem=problem,
    )


def _mean(draws: np.ndarray) -> float:
    return float(draws.mean()) if np.isfinite(draws).all() else -np.inf


def check_plan(plan: TrainingSettings) -> None:
    for name, shown in (("draws", "draws"), ("max_steps", "steps"), ("lanes", "restarts")):
        value = getattr(plan, name)
        if not isinstance(value, int) or value < 1:
            raise AsviError(f"{shown} must be a whole number from 1 up, got {value!r}.")
    if not plan.tolerance > 0:
        raise AsviError(f"tolerance must be positive, got {plan.tolerance}.")
