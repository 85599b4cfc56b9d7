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
from asvi.fitting.training.settings import TrainingSettings
from asvi.fitting.training.state import Phase, TrainingState

__all__ = ["KIND", "Checkpoint", "key_and_settings"]

KIND = "an asvi checkpoint"
_INNER = "optimizer_"


class Checkpoint:
    """The file of one run: of this problem, with this key and plan."""

    def __init__(self, path: str | Path, problem: Problem, key: jax.Array, plan: TrainingSettings):
        check_writable(path)
        self.path, self.problem, self.plan = path, problem, plan
        self._key = np.asarray(jax.random.key_data(key)).tolist()
        self._written_at = -np.inf

    def save(self, state: TrainingState) -> None:
        """Write the state, at most every few seconds, and always when the run is done."""
        now = time.monotonic()
        is_early = now - self._written_at < self.plan.checkpoint_seconds
        if state.phase is not Phase.DONE and is_early:
            return
        self._written_at = now
        about = {
            "kind": KIND,
            "plan": self.plan.numbers(),
            "key": self._key,
            "problem": _fingerprint(self.problem, self.plan),
            "state": state.numbers(),
        }
        best = {} if state.best is None else {"best": state.best}
        arrays = state.parallel._asdict()
        leaves = jax.tree.leaves(arrays.pop("inner"))
        inner = {f"{_INNER}{i}": x for i, x in enumerate(leaves)}
        write_file(self.path, about, {**arrays, **inner, **best})

    def load(self) -> TrainingState | None:
        """The state in the file; None where there is none. Raises where it belongs elsewhere."""
        if not Path(self.path).exists():
            return None
        about, stored = read_file(self.path, KIND)
        self._refuse_another(about)
        structure = jax.tree.structure(self.plan.optimizer.init(jnp.zeros(1)))
        leaves = [jnp.asarray(stored[f"{_INNER}{i}"]) for i in range(structure.num_leaves)]
        inner = jax.tree.unflatten(structure, leaves)
        names = [name for name in ParallelState._fields if name != "inner"]
        parallel = ParallelState(**{n: jnp.asarray(stored[n]) for n in names}, inner=inner)
        best = jnp.asarray(stored["best"]) if "best" in stored else None
        return TrainingState.from_numbers(about["state"], parallel, best)

    def _refuse_another(self, about: dict[str, Any]) -> None:
        """Raise where the file is of another run."""
        wanted = _fingerprint(self.problem, self.plan)
        differs = [name for name, value in wanted.items() if about["problem"].get(name) != value]
        if self._key != about["key"]:
            differs.append("key")
        stored = about["plan"]
        for name, value in self.plan.numbers().items():
            if name in stored and stored[name] != value:
                differs.append(name)
        if differs:
            raise _of_another(self.path, differs)


def _of_another(path: str | Path, differs: list[str]) -> AsviError:
    return AsviError(
        f"The checkpoint {path} belongs to another run: {', '.join(differs)} differ. It was left "
        "untouched.\nGive the same model, data, key and settings, or another file."
    )


def key_and_settings(path: str | Path) -> tuple[jax.Array, TrainingSettings]:
    """The key and plan of the run that a checkpoint is of."""
    about, _ = read_file(path, KIND)
    if set(about["plan"]) != set(TrainingSettings().numbers()):
        raise _of_another(path, ["version of asvi"])
    key = jax.random.wrap_key_data(jnp.asarray(about["key"], jnp.uint32))
    return key, TrainingSettings.from_numbers(about["plan"])


def _fingerprint(problem: Problem, plan: TrainingSettings) -> dict[str, Any]:
    sites = [f"{s.address}:{type(s.distribution).__name__}{s.shape}" for s in problem.program.sites]
    return {
        "sites": sites,
        "parameters": int(problem.size),
        "model and data": problem.bound.digest,
        "optimizer": str(jax.tree.structure(plan.optimizer.init(jnp.zeros(1)))),
        # What a file must hold to be gone on from.
        "version of asvi": [
            *ParallelState._fields,
            *TrainingState.__dataclass_fields__,
            *TrainingSettings.__dataclass_fields__,
        ],
    }
