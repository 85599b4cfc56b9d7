"""Takes a run's state after a chunk; gives a file from which it goes on to the same result."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.errors import AsviError
from asvi.fitting.archive import check_writable, read_file, write_file
from asvi.fitting.problem import Problem
from asvi.fitting.training.parallel_optimizer import ParallelState
from asvi.fitting.training.settings import TrainingSettings, TrainingState

__all__ = ["check_writable", "header", "load", "save"]

KIND = "an asvi checkpoint"
SECONDS_BETWEEN = 2.0
_INNER = "optimizer_"
_last: dict[str, float] = {}


def save(
    path: str | Path, problem: Problem, key: jax.Array, plan: TrainingSettings, state: TrainingState
) -> None:
    """Write the state, at most every two seconds, and always when the run is done."""
    now = time.monotonic()
    if state.phase != "done" and now - _last.get(str(path), -np.inf) < SECONDS_BETWEEN:
        return
    _last[str(path)] = now
    about = {
        "kind": KIND,
        "plan": plan.numbers(),
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "problem": _fingerprint(problem, plan),
        "state": state.numbers(),
    }
    best = {} if state.best is None else {"best": state.best}
    lanes = state.lanes._asdict()
    inner = {f"{_INNER}{i}": x for i, x in enumerate(jax.tree.leaves(lanes.pop("inner")))}
    write_file(path, about, {**lanes, **inner, **best})


def header(path: str | Path) -> tuple[jax.Array, TrainingSettings]:
    """The key and plan of a checkpoint."""
    about, _ = read_file(path, KIND)
    plan = about["plan"]
    key = jax.random.wrap_key_data(jnp.asarray(about["key"], jnp.uint32))
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in plan.items()
    }
    return key, TrainingSettings(**settings)


def load(
    path: str | Path, problem: Problem, key: jax.Array, plan: TrainingSettings
) -> TrainingState | None:
    """The state in the file; None where there is no file. Raises where it belongs elsewhere."""
    if not Path(path).exists():
        return None
    about, stored = read_file(path, KIND)
    wanted = _fingerprint(problem, plan)
    differs = [name for name, value in wanted.items() if about["problem"].get(name) != value]
    if np.asarray(jax.random.key_data(key)).tolist() != about["key"]:
        differs.append("key")
    for name, value in plan.numbers().items():
        if about["plan"].get(name) != (list(value) if isinstance(value, tuple) else value):
            differs.append(name)
    if differs:
        raise AsviError(
            f"The checkpoint {path} belongs to another run: {', '.join(differs)} differ. It was "
            "left untouched.\nGive the same model, data, key and settings, or another file."
        )
    structure = jax.tree.structure(plan.optimizer.init(jnp.zeros(1)))
    inner = [jnp.asarray(stored[f"{_INNER}{i}"]) for i in range(structure.num_leaves)]
    rest = {name: jnp.asarray(stored[name]) for name in ParallelState._fields if name != "inner"}
    lanes = ParallelState(**rest, inner=jax.tree.unflatten(structure, inner))
    best = jnp.asarray(stored["best"]) if "best" in stored else None
    return TrainingState(lanes=lanes, best=best, **about["state"])


def _fingerprint(problem: Problem, plan: TrainingSettings) -> dict[str, Any]:
    sites = [f"{s.address}:{type(s.distribution).__name__}{s.shape}" for s in problem.program.sites]
    return {
        "sites": sites,
        "parameters": int(problem.size),
        "model and data": problem.bound.digest,
        "optimizer": str(jax.tree.structure(plan.optimizer.init(jnp.zeros(1)))),
        # What a file must hold to be gone on from.
        "version of asvi": [*ParallelState._fields, *TrainingState.__dataclass_fields__],
    }
