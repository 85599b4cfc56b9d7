"""Takes a function of arrays; gives one that NumPy computes: traced by JAX, nothing to compile.

The compiler takes longer over a small model than NumPy over all that is asked of it. What JAX
traced (derivatives and batches included) is run operation by operation:

>>> import jax, jax.numpy as jnp, numpy as np
>>> slope = InNumpy(jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2)), np.zeros(3))
>>> print(slope(np.array([0.0, 0.5, 1.0])).round(3))
[0.    0.841 0.909]

What is never used is left out, what depends on no input is computed once, and an operation that is
not known here raises :class:`NotImplementedError` before anything is run.

Numbers are JAX's to rounding, also at poles, ties and infinities and for indices that are outside,
but for two things that are not simple to have: numbers below the smallest normal one, which the
compiler takes for 0, and the sign of a 0 where several meet in a sum, a maximum or a minimum. (In
operations that it joins, the compiler may have a number where each alone has NaN.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import partial_eval

from asvi.in_numpy.entries import OF_ENTRIES
from asvi.in_numpy.places import OF_PLACES
from asvi.in_numpy.reductions import OF_AXES
from asvi.in_numpy.tangents import filled, tangent_rule

__all__ = ["InNumpy", "Tape"]

SHORT = 16  # steps of a loop that is written out

#: What makes the function of an operation.
MAKERS = {**OF_ENTRIES, **OF_PLACES, **OF_AXES}

#: Types of numbers. (The compiler may keep more of half a number than there is room for.)
_TYPES = {
    np.dtype(name)
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                 "float32", "float64")
}  # fmt: skip

#: Operations that are no more than the program inside them, and the name of that.
_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
}


class InNumpy:
    """``function`` for inputs of the shapes and types of these, trees of arrays.

    ``along`` has values and forward derivatives, where the first ``moving`` arrays move:

    >>> product = InNumpy(lambda x: x[0] * x[1], np.zeros(2), moving=1)
    >>> found, moved = product.along((np.array([3.0, 5.0]),), (np.array([1.0, 0.0]),))
    >>> float(found), float(moved)
    (15.0, 5.0)
    """

    def __init__(self, function: Callable, *inputs: Any, moving: int = 0):
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*inputs)
        self.tape, self._tree = Tape(closed, range(moving)), jax.tree.structure(shape)

    def __call__(self, *inputs: Any) -> Any:
        return jax.tree.unflatten(self._tree, self.tape(jax.tree.leaves(inputs)))

    def along(self, inputs: tuple, tangents: tuple) -> tuple[Any, Any]:
        """What is found at ``inputs``, and how it moves where the first of them move so."""
        found, moved = self.tape.along(jax.tree.leaves(inputs), jax.tree.leaves(tangents))
        return jax.tree.unflatten(self._tree, found), jax.tree.unflatten(self._tree, moved)


class Tape:
    """A traced program as a list of steps over numbered places.

    >>> import jax, numpy as np
    >>> Tape(jax.make_jaxpr(lambda x: (x + 1) * 2)(1.0))([np.float32(2)])
    [array(6., dtype=float32)]

    ``moving`` tells which of its inputs have tangents in :meth:`along`.
    """

    def __init__(self, closed: Any, moving: Iterable[int] = ()):
        self._places: list[Any] = []  # what is known before a run
        self._known: set[int] = set()
        self._steps: list[_Step] = []
        self._inputs = [self._new() for _ in closed.jaxpr.invars]
        self._moving = {self._inputs[k] for k in moving}
        self._moved_inputs = sorted(self._moving)
        used, _ = partial_eval.dce_jaxpr(
            closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True
        )
        with np.errstate(all="ignore"):
            consts = [self._new(x) for x in closed.consts]
            self._outputs = self._add(used, consts, self._inputs)
        self._shapes = [v.aval.shape for v in closed.jaxpr.outvars]
        self._types = [v.aval.dtype for v in closed.jaxpr.outvars]
        self._prune()

    @property
    def has_loops(self) -> bool:
        """Whether it has loops that are not written out."""
        return any(isinstance(step[0], _Loop) for step in self._steps)

    def __call__(self, inputs: list[Any]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return self._whole(self.run(inputs))

    def _whole(self, found: list[Any]) -> list[np.ndarray]:
        return [
            np.broadcast_to(np.asarray(x, dtype), shape)
            for x, dtype, shape in zip(found, self._types, self._shapes, strict=True)
        ]

    def _begin(self, inputs: Sequence[Any]) -> list[Any]:
        places = self._places.copy()
        for place, x in zip(self._inputs, inputs, strict=True):
            places[place] = x
        return places

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs, with axes of length 1 where all entries along them are the same."""
        places = self._begin(inputs)
        for do, sources, target, _, last in self._steps:
            _put(places, target, do(*[places[k] for k in sources]))
            for k in last:
                places[k] = None
        return [places[k] for k in self._outputs]

    def along(self, inputs: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
        """The outputs, and their tangents where the inputs that move do so along these."""
        places, moved = self._begin(inputs), [None] * len(self._places)
        for place, tangent in zip(self._moved_inputs, tangents, strict=True):
            moved[place] = tangent
        with np.errstate(all="ignore"):
            for do, sources, target, rule, last in self._steps:
                values = [places[k] for k in sources]
                found = do(*values)
                _put(places, target, found)
                if rule is not None:
                    _put(moved, target, rule(values, [moved[k] for k in sources], found))
                for k in last:
                    places[k] = moved[k] = None
        ends = [0.0 if moved[k] is None else moved[k] for k in self._outputs]
        return self._whole([places[k] for k in self._outputs]), self._whole(ends)

    def _new(self, *known: Any) -> int:
        self._places.append(None)
        place = len(self._places) - 1
        # Keys of random numbers are no numbers; what uses them is not known here.
        if known and not jnp.issubdtype(jax.typeof(known[0]).dtype, jax.dtypes.extended):
            self._places[place] = np.asarray(*known)
            self._known.add(place)
        return place

    def _add(self, jaxpr: Any, consts: list[int], inputs: list[int]) -> list[int]:
        """Append the steps of a program whose inputs have these places; gives its outputs'."""
        at: dict[Any, int] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs)))

        def place(v: Any) -> int:
            return self._new(np.asarray(v.val, v.aval.dtype)) if hasattr(v, "val") else at[v]

        for eqn in jaxpr.eqns:
            sources = [place(v) for v in eqn.invars]
            inner = _INLINED.get(eqn.primitive.name)
            if eqn.primitive.name == "custom_jvp_call" and not self._moving.isdisjoint(sources):
                found = self._own_rule(jaxpr, eqn, sources)
            elif inner is not None:
                found = self._inline(eqn.params[inner], sources)
            elif eqn.primitive.name == "platform_index":
                found = [self._new(_platform(eqn.params["platforms"]))]
            elif eqn.primitive.name == "cond" and sources[0] in self._known:
                branches = eqn.params["branches"]
                chosen = int(np.clip(self._places[sources[0]], 0, len(branches) - 1))
                found = self._inline(branches[chosen], sources[1:])
            elif _is_short_loop(eqn) and self._moving.isdisjoint(sources[_parts(eqn)[1] :]):
                found = self._unroll(eqn.params, _parts(eqn), sources)
            else:
                found = self._step(eqn, sources)
            at |= dict(zip(eqn.outvars, found))
        return [place(v) for v in jaxpr.outvars]

    def _inline(self, inner: Any, sources: list[int]) -> list[int]:
        if not hasattr(inner, "jaxpr"):
            return self._add(inner, [], sources)
        return self._add(inner.jaxpr, [self._new(x) for x in inner.consts], sources)

    def _own_rule(self, jaxpr: Any, eqn: Any, sources: list[int]) -> list[int]:
        """A function with a derivative of its own, which may be finite where others are not."""
        places = {v: place for v, place in zip(eqn.invars, sources) if not hasattr(v, "val")}
        alone = jaxpr.replace(constvars=[], invars=[*places], outvars=eqn.outvars, eqns=[eqn])
        function = jaxpr_as_fun(ClosedJaxpr(alone, []))
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in places]
        moves = [k for k, v in enumerate(places) if _is_inexact(v)]

        def derivative(xs: Any, ds: Any) -> Any:
            def of(*some: Any) -> Any:
                whole = dict(enumerate(xs)) | dict(zip(moves, some))
                found = zip(eqn.outvars, function(*whole.values()))
                return [y for v, y in found if _is_inexact(v)]

            return jax.jvp(of, [xs[k] for k in moves], ds)[1]

        moved = jax.make_jaxpr(derivative)(shapes, [shapes[k] for k in moves])
        values, tangents = Tape(ClosedJaxpr(alone, [])), Tape(moved)
        targets = [self._new() for _ in eqn.outvars]
        self._moving.update(targets)

        def rule(xs: list[Any], ds: list[Any], _found: Any) -> Any:
            found = iter(tangents.run([*xs, *(filled(ds[k], xs[k]) for k in moves)]))
            return _one_or_all([next(found) if _is_inexact(v) else None for v in eqn.outvars])

        self._steps.append(
            (lambda *xs: _one_or_all(values.run(xs)), (*places.values(),), (*targets,), rule, ())
        )
        return targets

    def _unroll(self, p: dict[str, Any], parts: tuple[int, int], sources: list[int]) -> list[int]:
        begin, rest = parts
        state = sources[begin:rest]
        for k in range(p["length"])[:: -1 if p["reverse"] else 1]:
            rows = [self._row_of(x, k) for x in sources[rest:]]
            state = self._inline(p["jaxpr"], [*sources[:begin], *state, *rows])
        return state

    def _row_of(self, x: int, k: int) -> int:
        """The place of one row of what is at a place."""
        if x in self._known:
            return self._new(_row(self._places[x], k))
        target = self._new()
        self._steps.append((lambda rows: _row(rows, k), (x,), (target,), None, ()))
        return target

    def _step(self, eqn: Any, sources: list[int]) -> list[int]:
        name = eqn.primitive.name
        if name not in MAKERS and name != "scan":
            raise NotImplementedError(f"NumPy does not run {name!r}")
        for v in (*eqn.invars, *eqn.outvars):
            if v.aval.dtype not in _TYPES:
                raise NotImplementedError(f"NumPy does not run {name!r} of {v.aval.dtype}")
        do = _Loop(eqn) if name == "scan" else MAKERS[name](eqn)
        if self._known.issuperset(sources):
            found = do(*[self._places[k] for k in sources])
            return [self._new(x) for x in ((found,) if len(eqn.outvars) == 1 else found)]
        targets = [self._new() for _ in eqn.outvars]
        rule = None if self._moving.isdisjoint(sources) else tangent_rule(eqn, do)
        if rule is not None:
            self._moving.update(targets)
        self._steps.append((do, tuple(sources), tuple(targets), rule, ()))
        return targets

    def _prune(self) -> None:
        """Leave out steps of inner programs whose outputs nobody asks for."""
        seen, kept = {*self._outputs}, []
        for do, sources, targets, rule, _ in reversed(self._steps):
            if seen.isdisjoint(targets):
                continue
            # What nobody looks at later need not be kept: memory of large arrays is used again.
            last = {*sources, *targets} - seen - self._known
            seen.update(sources)
            target = targets[0] if len(targets) == 1 else targets
            kept.append((do, sources, target, rule, tuple(last)))
        self._steps = kept[::-1]


#: What is done, the places of what it takes and gives, the rule of its tangents, and what places
#: are not looked at after it.
_Step = tuple[Callable, tuple[int, ...], Any, Any, tuple[int, ...]]


def _parts(eqn: Any) -> tuple[int, int]:
    """Where, among the inputs of a ``scan``, its state begins, and the rows of its steps.

    Rows, of inputs and outputs, are what has an axis more outside of the body.
    """

    def rows(outside: Any, inside: Any) -> int:
        return sum(len(v.aval.shape) > len(w.aval.shape) for v, w in zip(outside, inside))

    body = eqn.params["jaxpr"].jaxpr
    carried = len(eqn.outvars) - rows(eqn.outvars, body.outvars)
    rest = len(eqn.invars) - rows(eqn.invars, body.invars)
    return rest - carried, rest


def _is_short_loop(eqn: Any) -> bool:
    """Whether this is a polynomial in Horner's form, or the like: steps over a few rows."""
    if eqn.primitive.name != "scan" or eqn.params["length"] > SHORT:
        return False
    begin, rest = _parts(eqn)
    return rest < len(eqn.invars) and len(eqn.outvars) == rest - begin


def _is_inexact(v: Any) -> bool:
    return jnp.issubdtype(v.aval.dtype, jnp.inexact)


def _one_or_all(found: Any) -> Any:
    return found[0] if len(found) == 1 else found


def _platform(platforms: Any) -> np.int32:
    """Which of the ways to compute something is the processor's, as JAX would choose there."""
    mine = (k for k, names in enumerate(platforms) if names is None or "cpu" in names)
    place = next(mine, None)
    if place is None:
        raise NotImplementedError("NumPy does not run what the processor cannot")
    return np.int32(place)


def _put(places: list[Any], target: Any, found: Any) -> None:
    if type(target) is int:
        places[target] = found
    else:
        for place, x in zip(target, found, strict=True):
            places[place] = x


class _Loop:
    """A ``scan``: its body, run over leading axes."""

    def __init__(self, eqn: Any):
        p = eqn.params
        self.body, self.length = Tape(p["jaxpr"]), p["length"]
        self.begin, self.rest = _parts(eqn)
        self.carried = self.rest - self.begin
        self.order = range(self.length)[:: -1 if p["reverse"] else 1]
        self.stacked = [v.aval for v in eqn.outvars[self.carried :]]

    def __call__(self, *inputs: Any) -> Any:
        begin, rest = self.begin, self.rest
        state = list(inputs[begin:rest])
        kept: list[list[Any]] = [[None] * self.length for _ in self.stacked]
        for k in self.order:
            rows = [_row(x, k) for x in inputs[rest:]]
            found = self.body.run([*inputs[:begin], *state, *rows])
            state = found[: self.carried]
            for xs, x in zip(kept, found[self.carried :]):
                xs[k] = x
        return _one_or_all([*state, *(_stacked(xs, v) for xs, v in zip(kept, self.stacked))])


def _row(x: Any, k: int) -> Any:
    return x[k] if len(x) > 1 else x[0]  # an axis of length 1 is the same row at every step


def _stacked(rows: list[Any], aval: Any) -> np.ndarray:
    return np.stack(np.broadcast_arrays(*rows)) if rows else np.zeros(aval.shape, aval.dtype)
