"""Takes a problem, data and a plan; gives an Outcome: parameters, losses, a final ELBO."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.errors import AsviError
from asvi.fitting.details import TrainingDetails
from asvi.fitting.outcome import Outcome
from asvi.fitting.problem import Problem
from asvi.fitting.training.checkpoint import Checkpoint
from asvi.fitting.training.finite_start import finite_starts
from asvi.fitting.training.parallel_optimizer import draw_elbos
from asvi.fitting.training.progress import ProgressLine
from asvi.fitting.training.quantile_refit import refit_splines
from asvi.fitting.training.race import begin
from asvi.fitting.training.schedule import candidates, finished, step_chunk
from asvi.fitting.training.settings import TrainingSettings
from asvi.fitting.training.state import GradientKind, Phase, TrainingState

__all__ = ["conclude", "first_state", "optimise", "train"]


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
    file = None if checkpoint is None else Checkpoint(checkpoint, problem, key, plan)
    found = None if file is None else file.load()
    if file is not None and found is None and must_exist:
        raise AsviError(f"{checkpoint} holds no state to go on from.")
    state = found or state or first_state(problem, key, plan)
    message = optimise(problem, key, plan, state, progress, file)
    return conclude(problem, key, plan, state, message, started_at)


def first_state(problem: Problem, key: jax.Array, plan: TrainingSettings) -> TrainingState:
    """Where the run of this key begins."""
    start_key = _keys(key)[0]
    state = begin(problem, start_key, plan)
    if state.phase is Phase.EXPLORE:  # a start near the posterior was found finite already
        state.parallel = finite_starts(problem, state.parallel, start_key, plan)
    return state


def optimise(
    problem: Problem,
    key: jax.Array,
    plan: TrainingSettings,
    state: TrainingState,
    progress: bool,
    checkpoint: Checkpoint | None = None,
) -> str:
    """Steps until the plan is done, in ``state``; gives a message where the user broke it off."""
    run_key = _keys(key)[1]
    with ProgressLine(plan, progress) as line:
        try:
            while not finished(state, plan):
                step_chunk(problem, run_key, plan, state)
                if checkpoint is not None:
                    checkpoint.save(state)
                line.show(state)
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
    _, _, choose_key, draw_key = _keys(key)
    kept, flat = _choose(problem, choose_key, plan, state)
    refit = {}
    if not message:  # who interrupted wants it now
        had = state.chunks * plan.chunk * plan.restarts * plan.draws  # at least
        try:
            flat, refit = refit_splines(problem, flat, jax.random.fold_in(choose_key, 1), plan, had)
        except KeyboardInterrupt:
            message = "interrupted at the last step: this is the best fit so far"
    elbos = _evaluate(problem, flat, draw_key, plan)
    return Outcome(
        elbo=_mean(elbos),
        elbo_se=float(elbos.std(ddof=1) / np.sqrt(len(elbos))),
        losses=np.array(state.losses),
        params=problem.found_params(flat),
        converged=state.phase is Phase.DONE,
        message=message or _why_it_ended(plan, state),
        num_steps=state.chunks * plan.chunk,
        seconds=time.monotonic() - started_at,
        run=_details(problem, plan, state, kept, refit),
        problem=problem,
    )


def _choose(
    problem: Problem, key: jax.Array, plan: TrainingSettings, state: TrainingState
) -> tuple[str, jax.Array]:
    """The candidate of the best ELBO, and what it is called."""
    found = candidates(problem, key, plan, state)
    elbos = {}
    for name, flat in found.items():
        rows = jnp.broadcast_to(flat, (plan.restarts, flat.size))
        draws = draw_elbos(problem, rows, key, draws=plan.evaluation_draws)
        elbos[name] = _mean(np.asarray(draws, float).ravel())
    best = max(elbos, key=lambda name: elbos[name])
    return best, found[best]


def _evaluate(
    problem: Problem, flat: jax.Array, key: jax.Array, plan: TrainingSettings
) -> np.ndarray:
    """ELBO draws that chose nothing, as many as their error asks for."""
    rows = jnp.broadcast_to(flat, (plan.restarts, problem.size))
    found = np.empty(0)
    for i in range(plan.max_final_measurements):
        fresh = jax.random.fold_in(key, i)
        draws = draw_elbos(problem, rows, fresh, draws=plan.evaluation_draws)
        found = np.concatenate([found, np.asarray(draws, float).ravel()])
        if not np.std(found) / np.sqrt(len(found)) > plan.tolerance:
            break
    return found


def _mean(draws: np.ndarray) -> float:
    return float(draws.mean()) if np.isfinite(draws).all() else -np.inf


def _why_it_ended(plan: TrainingSettings, state: TrainingState) -> str:
    if state.phase is Phase.DONE:
        return "converged: another cycle would gain less than the tolerance or its error"
    return f"stopped after {state.chunks * plan.chunk} steps, before the ELBO had settled"


def _details(
    problem: Problem,
    plan: TrainingSettings,
    state: TrainingState,
    kept: str,
    refit: dict[str, Any],
) -> TrainingDetails:
    is_path = state.score_shares[0] == 0 and problem.has_path
    return TrainingDetails(
        learning_rate=state.first_rate,
        gradient=(GradientKind.PATH if is_path else GradientKind.PLAIN).value,
        gradient_variance={kind.value: x for kind, x in state.variances.items()},
        kept=kept,
        start=state.starts[0].value,
        gains=list(state.gains),
        coupling_gain=state.coupling_gain,
        marginals=refit,
        chunk=plan.chunk,
        lanes=plan.restarts,
        lanes_after_race=len(state.starts),
        draws_per_step=state.more_draws * plan.draws * plan.restarts,
        skipped_steps=int(np.sum(np.asarray(state.parallel.skipped))),
    )
