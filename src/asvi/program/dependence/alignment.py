"""Takes a function of named arrays; gives, for each output, which entries depend on which.

The function is traced to a jaxpr, and each value in it is followed along chosen axes of the inputs.
An axis *stays* at an output's axis if entry i along the one depends on entry i along the other
alone; where a sum, a shift, a partner's index or an operation that is not known lies between, it is
*lost*: every entry may depend on every other. Nothing is computed, so this holds for all values.

>>> import jax.numpy as jnp
>>> found = alignment(lambda v: {"own": v["z"][:, None] * jnp.ones(2), "next": jnp.roll(v["z"], 1),
...                              "none": jnp.ones(3)}, {"z": jnp.zeros(3)}, {"z": (0,)})
>>> found["own"].places[("z", 0)], found["next"].places[("z", 0)] == LOST, found["none"].places
(0, True, {})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from asvi.program.dependence.alignment_rules import RULES
from asvi.program.dependence.provenance import inner_jaxpr, scan_parts
from asvi.program.settings import AlignmentSettings
from asvi.program.traced import record

__all__ = ["LOST", "Aligned", "Output", "alignment"]

#: constant of the formula: in place of an axis, where entries may depend on all others
LOST = -1
#: In place of an axis of an input: the value depends on it, however.
EXISTS = None

#: Where each axis of each input is in a value; of inputs on which it does not depend, nothing.
Aligned = Mapping[tuple[str, int | None], int]


class Output(NamedTuple):
    """Where an output has the axes of the inputs, and its shape."""

    places: Aligned
    shape: tuple[int, ...]


def alignment(
    function: Callable[[dict[str, Any]], dict[Any, jax.Array]],
    inputs: Mapping[str, Any],
    axes: Mapping[str, Sequence[int]],
    settings: AlignmentSettings = AlignmentSettings(),
) -> dict[Any, Output]:
    """For each output, where it has each of the ``axes`` of each input on which it depends.

    With each input comes the key ``(name, None)``, which is there if the output depends on it.
    """
    closed, shapes = record(function, dict(inputs))
    shapes, tree = jax.tree.flatten(shapes)
    incoming = [
        {(name, EXISTS): LOST, **{(name, a): a for a in axes.get(name, ())}}
        for name in sorted(inputs)
    ]
    outgoing, _ = _through(closed.jaxpr, incoming, [None] * len(incoming), settings)
    found = [Output(state, x.shape) for state, x in zip(outgoing, shapes, strict=True)]
    return jax.tree.unflatten(tree, found)


def _joined(states: Sequence[Aligned]) -> Aligned:
    """What depends on all of these. An axis that is in two places at once is lost."""
    found: dict[tuple[str, int | None], int] = {}
    for state in states:
        for key, axis in state.items():
            found[key] = axis if found.get(key, axis) == axis else LOST
    return found


def _placed(state: Aligned, places: Mapping[int, int]) -> Aligned:
    return {key: places.get(axis, LOST) for key, axis in state.items()}


def _through(
    jaxpr: Jaxpr, incoming: Sequence[Aligned], counts: Sequence[Any], settings: AlignmentSettings
) -> tuple[list[Aligned], list[Any]]:
    """States of the outputs, and those of them that are known to count along an axis."""
    states: dict[Any, Aligned] = dict(zip(jaxpr.invars, incoming, strict=True))
    known: dict[Any, Any] = dict(zip(jaxpr.invars, counts, strict=True))

    def state_of(var) -> Aligned:
        return {} if isinstance(var, Literal) else states.get(var, {})

    def known_of(var) -> Any:
        return np.asarray(var.val) if isinstance(var, Literal) else known.get(var)

    for eqn in jaxpr.eqns:
        ins, numbers = [state_of(v) for v in eqn.invars], [known_of(v) for v in eqn.invars]
        rule = _CONTROL_FLOW.get(eqn.primitive.name)
        inner = inner_jaxpr(eqn) if eqn.primitive.name in _CALLS else None
        if inner is not None:
            outs, found = _through(inner, ins, numbers, settings)
        else:
            outs = _moved(eqn, ins, numbers) if rule is None else rule(eqn, ins, settings)
            found = [_counted(eqn, numbers, settings.max_index_numbers)] * len(outs)
        states.update(zip(eqn.outvars, outs, strict=True))
        known.update(zip(eqn.outvars, found, strict=True))
    return [state_of(v) for v in jaxpr.outvars], [known_of(v) for v in jaxpr.outvars]


_CALLS = (
    *("jit", "pjit", "call", "core_call", "closed_call", "remat", "remat2", "checkpoint"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
)


def _moved(eqn, states: list[Aligned], numbers: list[Any]) -> list[Aligned]:
    if not any(states):
        return [{}] * len(eqn.outvars)
    name = eqn.primitive.name
    if name == "optimization_barrier":
        return states
    rule = RULES.get(name)
    if rule is None:
        return [dict.fromkeys(_joined(states), LOST)] * len(eqn.outvars)
    shapes = [tuple(v.aval.shape) for v in eqn.invars]
    found = []
    for out in eqn.outvars:
        places = rule(shapes, tuple(out.aval.shape), eqn.params)
        if name == "gather" and numbers[1] is not None:
            places[0] = places[0] | _rows_in_order(eqn, numbers[1])
        found.append(_joined([_placed(s, p) for s, p in zip(states, places, strict=True)]))
    return found


# ------------------------------------------------------------------------------- known indices

#: Operations by which Python's indices become JAX's. Few, and of whole numbers alone.
_COUNTING: dict[str, Callable[..., Any]] = {
    "lt": np.less,
    "ge": np.greater_equal,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "select_n": lambda which, *cases: np.choose(which.astype(int), cases),
    "convert_element_type": lambda x: x,
    "copy": lambda x: x,
}


def _counted(eqn, numbers: list[Any], longest: int) -> Any:
    """The value of an operation on indices that count 0, 1, ... along an axis, None of others.

    ``x[jnp.arange(n)]`` keeps the axis, and so do the indices that an unsubsampled plate gives. The
    data are never looked at: another call has others.
    """
    name, out = eqn.primitive.name, eqn.outvars[0].aval
    if name == "iota" and out.size <= longest and out.dtype.kind in "iu":
        along = [1] * out.ndim
        along[eqn.params["dimension"]] = -1
        return np.broadcast_to(
            np.arange(out.shape[eqn.params["dimension"]]).reshape(along), out.shape
        )
    if not numbers or any(x is None for x in numbers) or getattr(out, "size", longest) > longest:
        return None
    if name == "broadcast_in_dim":
        shape = [1] * out.ndim
        for a, place in enumerate(eqn.params["broadcast_dimensions"]):
            shape[place] = numbers[0].shape[a]
        return np.broadcast_to(numbers[0].reshape(shape), out.shape)
    if name in ("reshape", "squeeze"):
        return numbers[0].reshape(out.shape)
    if name in _COUNTING and all(x.dtype.kind in "iub" for x in numbers):
        return np.broadcast_to(_COUNTING[name](*numbers), out.shape)
    return None


def _rows_in_order(eqn, indices: np.ndarray) -> dict[int, int]:
    """Axes of an array from which row i is taken at place i, whatever else is taken."""
    dims, out = eqn.params["dimension_numbers"], eqn.outvars[0].aval
    operand = eqn.invars[0].aval.shape
    rows = [a for a in range(out.ndim) if a not in dims.offset_dims]
    found = {}
    for column, axis in enumerate(dims.start_index_map):
        if eqn.params["slice_sizes"][axis] != 1:
            continue
        for i, place in enumerate(rows):
            along = [1] * len(rows)
            along[i] = -1
            count = np.arange(operand[axis]).reshape(along)
            if indices.shape[i] == operand[axis] and np.all(indices[..., column] == count):
                found[axis] = place
    return found


# -------------------------------------------------------------------------------- control flow


def _open(jaxpr: Any) -> Jaxpr:
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


def _run(jaxpr: Any, states: Sequence[Aligned], settings: AlignmentSettings) -> list[Aligned]:
    return _through(_open(jaxpr), states, [None] * len(states), settings)[0]


def _shifted(state: Aligned, by: int) -> Aligned:
    """A state with the axis of the steps, which is the first, added or taken away."""
    lost = (LOST, 0) if by < 0 else (LOST,)
    return {key: LOST if axis in lost else axis + by for key, axis in state.items()}


def _scan(eqn, states: list[Aligned], settings: AlignmentSettings) -> list[Aligned]:
    body, (consts, carry) = _open(eqn.params["jaxpr"]), scan_parts(eqn)
    whole = consts + carry
    state, scanned = states[consts:whole], [_shifted(s, -1) for s in states[whole:]]
    while True:
        out = _run(body, [*states[:consts], *state, *scanned], settings)
        grown = [_joined(pair) for pair in zip(state, out[:carry], strict=True)]
        if grown == state:
            return [*grown, *(_shifted(s, 1) for s in out[carry:])]
        state = grown


def _while(eqn, states: list[Aligned], settings: AlignmentSettings) -> list[Aligned]:
    n_test, n_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    test_consts, body_consts = states[:n_test], states[n_test : n_test + n_body]
    state = states[n_test + n_body :]
    while True:
        (stop,) = _run(eqn.params["cond_jaxpr"], [*test_consts, *state], settings)
        out = _run(eqn.params["body_jaxpr"], [*body_consts, *state], settings)
        grown = [_joined([old, new, stop]) for old, new in zip(state, out, strict=True)]
        if grown == state:
            return grown
        state = grown


def _cond(eqn, states: list[Aligned], settings: AlignmentSettings) -> list[Aligned]:
    branches = [_run(branch, states[1:], settings) for branch in eqn.params["branches"]]
    return [_joined([states[0], *outs]) for outs in zip(*branches, strict=True)]


_CONTROL_FLOW: dict[str, Callable] = {"scan": _scan, "while": _while, "cond": _cond}
