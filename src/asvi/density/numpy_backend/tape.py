"""Takes a function of arrays; gives one that NumPy computes: traced by JAX, nothing to compile.

The compiler takes longer over a small model than NumPy over all that is asked of it. What JAX
traced (derivatives and batches included) is run operation by operation:

>>> import jax, jax.numpy as jnp, numpy as np
>>> slope = NumpyFunction(jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2)), np.zeros(3))
>>> print(slope(np.array([0.0, 0.5, 1.0])).round(3))
[0.    0.841 0.909]

What is never used is left out, what depends on no input is computed once, and an operation that is
not known here raises :class:`NoNumpyRule` before anything is run.

Numbers are JAX's to rounding, also at poles, ties and infinities and for indices that are outside,
but for two things that are not simple to have: numbers below the smallest normal one, which the
compiler takes for 0, and the sign of a 0 where several meet in a sum, a maximum or a minimum. (In
operations that it joins, the compiler may have a number where each alone has NaN.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import partial_eval

from asvi.density.numpy_backend.broadcasting import is_of_keys, one_or_all
from asvi.density.numpy_backend.data_movement import OF_PLACES, as_it_is, moved_twice
from asvi.density.numpy_backend.elementwise import OF_ENTRIES
from asvi.density.numpy_backend.jvp_rules import filled, tangent_rule
from asvi.density.numpy_backend.loops import OF_CHOICES, Loop, is_short_loop, parts_of, row_of
from asvi.density.numpy_backend.no_rule import NoNumpyRule
from asvi.density.numpy_backend.random_keys import OF_KEYS, is_known_key, made_of, packed, unpacked
from asvi.density.numpy_backend.reductions import OF_AXES
from asvi.density.numpy_backend.slots import Slots, Step
from asvi.density.settings import EvaluatorSettings

__all__ = ["NumpyFunction", "Tape"]

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


class NumpyFunction:
    """``function`` for inputs of the shapes and types of these, trees of arrays.

    ``jvp`` has values and forward derivatives, where the first ``moving`` arrays move:

    >>> product = NumpyFunction(lambda x: x[0] * x[1], np.zeros(2), moving=1)
    >>> found, moved = product.jvp((np.array([3.0, 5.0]),), (np.array([1.0, 0.0]),))
    >>> float(found), float(moved)
    (15.0, 5.0)

    The first ``varying`` inputs vary where the others are :meth:`given`. A recorded program is a
    function, too: of arrays, it gives a list.
    """

    def __init__(
        self,
        function: Callable | ClosedJaxpr,
        *inputs: Any,
        moving: int = 0,
        varying: int | None = None,
        draws: bool = False,
        settings: EvaluatorSettings = EvaluatorSettings(),
    ):
        if isinstance(function, ClosedJaxpr):
            closed, shape, count = function, [0] * len(function.jaxpr.outvars), varying
        else:
            closed, shape = jax.make_jaxpr(function, return_shape=True)(*inputs)
            count = len(jax.tree.leaves(inputs[:varying]))
        self.tape = Tape(closed, range(moving), count, draws=draws, settings=settings)
        self._tree = jax.tree.structure(shape)

    def __call__(self, *inputs: Any) -> Any:
        return jax.tree.unflatten(self._tree, self.tape(jax.tree.leaves(inputs)))

    def given(self, *inputs: Any) -> NumpyFunction:
        """The function of those alone that vary, the others being these, which are to stay.

        >>> scaled = NumpyFunction(lambda x, s: x * jax.numpy.exp(s), np.zeros(2), 0.0, varying=1)
        >>> scaled.given(np.float32(0.0))(np.ones(2)).tolist()
        [1.0, 1.0]
        """
        found = copy(self)
        found.tape = self.tape.given(jax.tree.leaves(inputs))
        return found

    @property
    def has_loops(self) -> bool:
        """Whether it has loops that are not written out."""
        return self.tape.has_loops

    def jvp(self, inputs: tuple, tangents: tuple) -> tuple[Any, Any]:
        """What is found at ``inputs``, and how it moves where the first of them move so."""
        found, moved = self.tape.jvp(jax.tree.leaves(inputs), jax.tree.leaves(tangents))
        return jax.tree.unflatten(self._tree, found), jax.tree.unflatten(self._tree, moved)


class Tape:
    """A traced program as a list of steps over numbered places.

    >>> import jax, numpy as np
    >>> Tape(jax.make_jaxpr(lambda x: (x + 1) * 2)(1.0))([np.float32(2)])
    [array(6., dtype=float32)]

    ``moving`` tells which of its inputs have tangents in :meth:`jvp`. The first ``varying`` of
    its inputs vary where the others are :meth:`given`. With ``draws`` it also knows keys of random
    numbers, and loops and branches that these decide; how long such loops are shows when they run,
    and what is too long raises :class:`NoNumpyRule` then.
    """

    def __init__(
        self,
        closed: Any,
        moving: Iterable[int] = (),
        varying: int | None = None,
        *,
        draws: bool = False,
        settings: EvaluatorSettings = EvaluatorSettings(),
    ):
        self._draws, self._settings = draws, settings
        self._places: list[Any] = []  # what is known before a run
        self._known: set[int] = set()
        self._steps: list[Step] = []
        self._done: dict[Any, list[int]] = {}  # places of what steps give, of constants too
        self._last: dict[int, tuple[Callable, int]] = {}  # by place: what made it, of which
        inputs = [self._new() for _ in closed.jaxpr.invars]
        self._moves = sorted(moving)
        self._moving = {inputs[k] for k in self._moves}
        used, _ = partial_eval.dce_jaxpr(
            closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True
        )
        with np.errstate(all="ignore"):
            consts = [self._new(x) for x in closed.consts]
            outputs = self._add(used, consts, inputs)
        self._shapes = [v.aval.shape for v in closed.jaxpr.outvars]
        self._types = [v.aval.dtype for v in closed.jaxpr.outvars]
        self._steps = _asked_for(self._steps, outputs)
        known = sorted(self._known)
        self._slots = Slots(self._steps, self._places, known, inputs, outputs, varying)
        self._ready: list[Any] | None = None
        self._done.clear()
        self._last.clear()

    @property
    def has_loops(self) -> bool:
        """Whether it has loops that are not written out."""
        return any(isinstance(step.do, Loop) for step in self._steps)

    def given(self, inputs: Sequence[Any]) -> Tape:
        """The program of those inputs that vary, the others being these."""
        found = copy(self)
        with np.errstate(all="ignore"):
            found._ready = self._slots.prepared(inputs)
        return found

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs, with axes of length 1 where all entries along them are the same."""
        return self._slots.run(inputs, self._ready)

    def __call__(self, inputs: list[Any]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return self._whole(self.run(list(map(_plain, inputs))))

    def _whole(self, found: list[Any]) -> list[Any]:
        return [
            unpacked(np.broadcast_to(x, shape))
            if is_of_keys(dtype)
            else x
            if type(x) is np.ndarray and x.shape == shape and x.dtype == dtype
            else np.broadcast_to(np.asarray(x, dtype), shape)
            for x, dtype, shape in zip(found, self._types, self._shapes, strict=True)
        ]

    def jvp(self, inputs: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
        """The outputs, and their tangents where the inputs that move do so along these."""
        with np.errstate(all="ignore"):
            found, moved = self._slots.jvp(inputs, self._moves, tangents, self._ready)
            return self._whole(found), self._whole([0.0 if x is None else x for x in moved])

    def _new(self, *known: Any) -> int:
        self._places.append(None)
        place = len(self._places) - 1
        if known and self._knows(jax.typeof(known[0]).dtype):
            self._places[place] = np.asarray(_plain(*known))
            self._known.add(place)
        return place

    def _knows(self, dtype: Any) -> bool:
        """Whether entries of this type are numbers here. (What uses unknown ones is refused.)"""
        return is_known_key(dtype) and self._draws if is_of_keys(dtype) else True

    def _add(self, jaxpr: Any, consts: list[int], inputs: list[int]) -> list[int]:
        """Append the steps of a program whose inputs have these places; gives its outputs'."""
        at: dict[Any, int] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs)))

        def place(v: Any) -> int:
            return self._constant(np.asarray(v.val, v.aval.dtype)) if hasattr(v, "val") else at[v]

        for eqn in jaxpr.eqns:
            sources = [place(v) for v in eqn.invars]
            inner = _INLINED.get(eqn.primitive.name)
            if eqn.primitive.name == "custom_jvp_call" and not self._moving.isdisjoint(sources):
                found = self._own_rule(jaxpr, eqn, sources)
            elif inner is not None:
                found = self._inline(eqn.params[inner], sources)
            elif eqn.primitive.name == "random_gamma" and self._draws:
                found = self._inline(made_of(eqn), sources)
            elif eqn.primitive.name == "platform_index":
                found = [self._new(_platform(eqn.params["platforms"]))]
            elif eqn.primitive.name == "cond" and sources[0] in self._known:
                branches = eqn.params["branches"]
                chosen = int(np.clip(self._places[sources[0]], 0, len(branches) - 1))
                found = self._inline(branches[chosen], sources[1:])
            elif self._is_unrolled(eqn, sources):
                found = self._unroll(eqn.params, parts_of(eqn), sources)
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
        settings = self._settings
        values = Tape(ClosedJaxpr(alone, []), settings=settings)
        tangents = Tape(moved, settings=settings)
        targets = [self._new() for _ in eqn.outvars]
        self._moving.update(targets)

        def rule(xs: list[Any], ds: list[Any], _found: Any) -> Any:
            found = iter(tangents.run([*xs, *(filled(ds[k], xs[k]) for k in moves)]))
            return one_or_all([next(found) if _is_inexact(v) else None for v in eqn.outvars])

        do = lambda *xs: one_or_all(values.run(xs))  # noqa: E731
        self._steps.append(Step(do, (*places.values(),), (*targets,), rule))
        return targets

    def _is_unrolled(self, eqn: Any, sources: list[int]) -> bool:
        """Whether this is a loop that is written out: a short one, over rows that do not move."""
        if not is_short_loop(eqn, self._settings.max_unrolled_steps):
            return False
        return self._moving.isdisjoint(sources[parts_of(eqn)[1] :])

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
            return self._new(row_of(self._places[x], k))
        target = self._new()
        self._steps.append(Step(lambda rows: row_of(rows, k), (x,), (target,), None))
        return target

    def _step(self, eqn: Any, sources: list[int]) -> list[int]:
        name = eqn.primitive.name
        for v in (*eqn.invars, *eqn.outvars):
            if v.aval.dtype not in _TYPES and not (self._draws and is_known_key(v.aval.dtype)):
                raise NoNumpyRule(f"NumPy does not run {name!r} of {v.aval.dtype}")
        do = self._made(name, eqn)
        if self._known.issuperset(sources):
            found = do(*[self._places[k] for k in sources])
            return [self._new(x) for x in ((found,) if len(eqn.outvars) == 1 else found)]
        do, sources = self._at_once(do, sources)
        if do is as_it_is:
            return sources[:1]
        key = name, do, tuple(sources)
        if key in self._done:
            return self._done[key]
        targets = self._done[key] = [self._new() for _ in eqn.outvars]
        rule = None if self._moving.isdisjoint(sources) else tangent_rule(eqn, do)
        if rule is not None:
            self._moving.update(targets)
        self._last[targets[0]] = do, sources[0] if sources else -1
        self._steps.append(Step(do, tuple(sources), tuple(targets), rule))
        return targets

    def _made(self, name: str, eqn: Any) -> Callable:
        """What an operation does to NumPy's arrays."""
        inner = Loop if name == "scan" else OF_CHOICES.get(name) if self._draws else None
        if inner is not None:
            tape = partial(Tape, draws=self._draws, settings=self._settings)
            return inner(eqn, tape, self._settings)
        maker = MAKERS.get(name) or (OF_KEYS.get(name) if self._draws else None)
        if maker is None:
            raise NoNumpyRule(f"NumPy does not run {name!r}")
        return maker(eqn)

    def _at_once(self, do: Callable, sources: list[int]) -> tuple[Callable, list[int]]:
        """What moves axes that were moved before, as one step from where they were."""
        first, source = self._last.get(sources[0], (None, -1)) if sources else (None, -1)
        once = None if first is None else moved_twice(first, do)
        return (do, sources) if once is None else (once, [source, *sources[1:]])

    def _constant(self, x: np.ndarray) -> int:
        """The place of a constant of the program, the same for all that are the same."""
        key = x.dtype.str, x.shape, x.tobytes()
        if key not in self._done:
            self._done[key] = [self._new(x)]
        return self._done[key][0]


def _asked_for(steps: list[Step], outputs: list[int]) -> list[Step]:
    """Without steps of inner programs whose outputs nobody asks for."""
    seen, kept = {*outputs}, []
    for step in reversed(steps):
        if not seen.isdisjoint(step.targets):
            seen.update(step.sources)
            kept.append(step)
    return kept[::-1]


def _plain(x: Any) -> Any:
    """Numbers as they are; keys as whole numbers."""
    return packed(x) if isinstance(x, jax.Array) and is_of_keys(x.dtype) else x


def _is_inexact(v: Any) -> bool:
    return jnp.issubdtype(v.aval.dtype, jnp.inexact)


def _platform(platforms: Any) -> np.int32:
    """Which of the ways to compute something is the processor's, as JAX would choose there."""
    mine = (k for k, names in enumerate(platforms) if names is None or "cpu" in names)
    place = next(mine, None)
    if place is None:
        raise NoNumpyRule("NumPy does not run what the processor cannot")
    return np.int32(place)
