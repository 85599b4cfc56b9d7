"""Takes a loop or a branch of a traced program; gives it as NumPy runs it, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asvi.density.numpy_backend.broadcasting import numpy_type, one_or_all
from asvi.density.numpy_backend.no_rule import NoNumpyRule
from asvi.density.settings import EvaluatorSettings

__all__ = ["OF_CHOICES", "Loop", "is_short_loop", "parts_of", "row_of"]


def parts_of(eqn: Any) -> tuple[int, int]:
    """Where, among the inputs of a ``scan``, its state begins, and the rows of its steps.

    Rows, of inputs and outputs, are what has an axis more outside of the body.
    """

    def rows(outside: Any, inside: Any) -> int:
        return sum(len(v.aval.shape) > len(w.aval.shape) for v, w in zip(outside, inside))

    body = eqn.params["jaxpr"].jaxpr
    carried = len(eqn.outvars) - rows(eqn.outvars, body.outvars)
    rest = len(eqn.invars) - rows(eqn.invars, body.invars)
    return rest - carried, rest


def is_short_loop(eqn: Any, max_steps: int) -> bool:
    """Whether this is a polynomial in Horner's form, or the like: steps over a few rows."""
    if eqn.primitive.name != "scan" or eqn.params["length"] > max_steps:
        return False
    begin, rest = parts_of(eqn)
    return rest < len(eqn.invars) and len(eqn.outvars) == rest - begin


class Loop:
    """A ``scan``: its body, which ``tape`` makes a list of steps, run over leading axes."""

    def __init__(self, eqn: Any, tape: Callable, settings: EvaluatorSettings):
        p = eqn.params
        self.body, self.length = tape(p["jaxpr"]), p["length"]
        self.begin, self.rest = parts_of(eqn)
        self.carried = self.rest - self.begin
        self.order = range(self.length)[:: -1 if p["reverse"] else 1]
        self.stacked = [v.aval for v in eqn.outvars[self.carried :]]

    def __call__(self, *inputs: Any) -> Any:
        begin, rest = self.begin, self.rest
        state = list(inputs[begin:rest])
        kept: list[list[Any]] = [[None] * self.length for _ in self.stacked]
        for k in self.order:
            rows = [row_of(x, k) for x in inputs[rest:]]
            found = self.body.run([*inputs[:begin], *state, *rows])
            state = found[: self.carried]
            for xs, x in zip(kept, found[self.carried :]):
                xs[k] = x
        return one_or_all([*state, *(_stacked(xs, v) for xs, v in zip(kept, self.stacked))])


class While:
    """A loop that ends when its state says so; of a batch, each row when its own does."""

    def __init__(self, eqn: Any, tape: Callable, settings: EvaluatorSettings):
        p = eqn.params
        self.goes_on, self.body = tape(p["cond_jaxpr"]), tape(p["body_jaxpr"])
        self.first = p["cond_nconsts"]
        self.second = self.first + p["body_nconsts"]
        self.ranks = [len(v.aval.shape) for v in eqn.outvars]
        self.max_rounds = settings.max_while_rounds

    def __call__(self, *inputs: Any) -> Any:
        known, mine = inputs[: self.first], inputs[self.first : self.second]
        state = list(inputs[self.second :])
        for _ in range(self.max_rounds):
            moves = np.asarray(self.goes_on.run([*known, *state])[0])
            if not moves.any():
                return one_or_all(state)
            found = self.body.run([*mine, *state])
            state = found if moves.all() else self._moved(moves, found, state)
        raise NoNumpyRule("NumPy does not run loops that are so long")

    def _moved(self, moves: np.ndarray, found: list[Any], state: list[Any]) -> list[Any]:
        """Rows that go on as they are found, the others as they were."""
        shapes = [moves.shape + (1,) * (rank - moves.ndim) for rank in self.ranks]
        return [
            np.where(moves.reshape(shape), x, y)
            for shape, x, y in zip(shapes, found, state, strict=True)
        ]


class Branch:
    """A ``cond``: one of its branches, which the first input tells."""

    def __init__(self, eqn: Any, tape: Callable, settings: EvaluatorSettings):
        self.branches = [tape(branch) for branch in eqn.params["branches"]]

    def __call__(self, which: Any, *inputs: Any) -> Any:
        chosen = np.clip(np.ravel(which)[0], 0, len(self.branches) - 1)
        return one_or_all(self.branches[int(chosen)].run(inputs))


#: What numbers decide while it runs.
OF_CHOICES: dict[str, Callable[[Any, Callable, EvaluatorSettings], Callable]] = {
    "while": While,
    "cond": Branch,
}


def row_of(x: Any, k: int) -> Any:
    return x[k] if len(x) > 1 else x[0]  # an axis of length 1 is the same row at every step


def _stacked(rows: list[Any], aval: Any) -> np.ndarray:
    if not rows:
        return np.zeros(aval.shape, numpy_type(aval))
    return np.stack(np.broadcast_arrays(*rows))
