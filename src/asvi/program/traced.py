"""Takes a function; gives it as JAX records it: operations that tell two programs apart, and data.

A model is called in plain Python with the user's own objects, and what JAX records of that is the
program. The arrays that it met on the way are its *constants*: the data. Two recordings with the
same operations, shapes and types are the same program, whatever function they came from, and can be
served by one compiled program that takes the constants as inputs:

>>> import jax.numpy as jnp, numpy as np
>>> def scaled_by(data):
...     return Traced(lambda x: jnp.sum(x * data), 1.0)
>>> one, other = scaled_by(np.arange(3.0)), scaled_by(np.ones(3))
>>> one.key == other.key, scaled_by(np.ones(4)).key == one.key
(True, False)
>>> [c.tolist() for c in other.consts]
[[1.0, 1.0, 1.0]]

What a function *did* decides, and never which function it is: one that reads a global, or an
attribute of an instance, is another program as soon as these change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jax.interpreters import partial_eval

from asvi.program.settings import RecordingSettings

__all__ = [
    "Traced",
    "digest_of",
    "evaluate",
    "key_of",
    "record",
    "remake",
    "without_unused",
]

#: Calls that are no more than the program inside them, and the name of that.
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}

#: Parameters that name things, or hold functions that only a derivative asks for.
_SILENT = ("name", "debug_info", "jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "inline")


def record(function: Callable, *inputs: Any) -> tuple[Any, Any]:
    """What ``jax.make_jaxpr`` makes of it, and the shapes of its outputs.

    JAX sees leaves alone: it compares trees, and a distribution may have arrays among what tells
    its tree from others (the counts of a multinomial).
    """
    trees = []

    # A function of its own: JAX gives again what it recorded of one that it knows.
    def leaves(*xs: Any) -> list[Any]:
        found, tree = jax.tree.flatten(function(*xs))
        trees.append(tree)
        return found

    closed, shapes = jax.make_jaxpr(leaves, return_shape=True)(*inputs)
    return closed, jax.tree.unflatten(trees[-1], shapes)


class Traced:
    """``function`` recorded at inputs of these shapes and types, trees of arrays.

    ``jaxpr`` has no constants of its own: ``consts`` are its first inputs.

    :param rules: whether functions with derivatives of their own are told apart by these, too: for
        programs that are to be differentiated.
    """

    def __init__(
        self,
        function: Callable,
        *inputs: Any,
        rules: bool = False,
        settings: RecordingSettings = RecordingSettings(),
    ):
        closed, shape = record(function, *inputs)
        if _has_inner_constants(closed.jaxpr):
            flat = jax.tree.leaves(inputs)
            closed = jax.make_jaxpr(lambda *xs: _inlined(closed.jaxpr, closed.consts, xs))(*flat)
        whole = remake(
            closed.jaxpr,
            constvars=[],
            invars=[*closed.jaxpr.constvars, *closed.jaxpr.invars],
        )
        self.jaxpr, self.consts = without_unused(whole, list(closed.consts))
        self.consts = list(map(_owned, self.consts))
        self.shape = shape
        self.tree = jax.tree.structure(shape)
        self.rule_orders = settings.rule_orders if rules else 0

    @cached_property
    def key(self) -> Any:
        """What two recordings share that one compiled program serves."""
        return len(self.consts), key_of(self.jaxpr, self.rule_orders)

    @cached_property
    def digest(self) -> str:
        """Program and data in a line that is the same in every process."""
        return digest_of(self.jaxpr, self.consts)

    def computes_as(self, other: Traced) -> bool:
        """Whether the other recording computes the same, with the same data.

        Functions that are called from it, as by ``jax.pure_callback``, may be made anew each time.
        """
        return len(self.consts) == len(other.consts) and (
            all(map(_same, self.consts, other.consts))
            and digest_of(self.jaxpr, ()) == digest_of(other.jaxpr, ())
        )

    def gives_as(self, other: Traced, *inputs: Any) -> bool:
        """Whether both give the same numbers at these inputs, but for rounding.

        Two programs may: a distribution that lives outside of the model may have kept a number that
        it computed the time before.
        """
        if not self.has_tree_of(other):
            return False
        found = (jax.tree.leaves(run(*inputs)) for run in (self, other))
        return all(map(_near, *found))

    def has_tree_of(self, other: Traced) -> bool:
        """Whether the outputs are put together alike."""
        try:
            return self.tree == other.tree
        except ValueError:  # arrays in it, of which JAX cannot tell
            return str(self.tree) == str(other.tree)

    def only(self, wanted: Any) -> Traced:
        """The part of it that makes these of its outputs: a truth for each leaf."""
        part = copy(self)
        kept = [v for v, is_wanted in zip(self.jaxpr.outvars, wanted, strict=True) if is_wanted]
        part.jaxpr, part.consts = without_unused(remake(self.jaxpr, outvars=kept), self.consts)
        return part

    def __call__(self, *inputs: Any) -> Any:
        """The function, as recorded: for use in other programs."""
        found = evaluate(self.jaxpr, self.consts, jax.tree.leaves(inputs))
        return jax.tree.unflatten(self.tree, found)


def _near(x: Any, y: Any) -> bool:
    """Whether two outputs are the same but for rounding."""
    x, y = (z if hasattr(z, "dtype") else np.asarray(z) for z in (x, y))
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x, y = jax.random.key_data(x), jax.random.key_data(y)
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape:
        return False
    if not jnp.issubdtype(x.dtype, np.inexact):
        return bool(np.array_equal(x, y))
    return bool(np.allclose(x.astype(float), y.astype(float), 1e-5, 1e-12, equal_nan=True))


def _owned(x: Any) -> Any:
    """A constant that stays as it is, whatever becomes of the user's array that it was read from.

    JAX takes the memory of NumPy's arrays as it is where the type fits, and what it has once made
    of an array of another type it gives again for as long as that is kept.
    """
    if not isinstance(x, np.ndarray):
        return x
    mark = x.shape, str(x.dtype), x.ravel()[:: max(1, x.size // 16)].tobytes()
    kept = _OWNED.get(mark)
    if kept is None or not _same(kept, x):  # several programs of one problem share a copy
        kept = _OWNED[mark] = np.array(x)
    return kept


#: Copies of constants that are in use.
_OWNED: WeakValueDictionary[Any, np.ndarray] = WeakValueDictionary()


def _same(x: Any, y: Any) -> bool:
    """Whether two constants are the same numbers, NaN among them."""
    if x is y:
        return True
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if isinstance(x, jax.core.Tracer) or isinstance(y, jax.core.Tracer):
        return True  # as far as is known while something around is recorded
    x, y = (z if hasattr(z, "dtype") else np.asarray(z) for z in (x, y))
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x, y = jax.random.key_data(x), jax.random.key_data(y)
    x, y = np.asarray(x), np.asarray(y)
    return bool(np.array_equal(_bits(x), _bits(y)))


def _bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def evaluate(jaxpr: Any, consts: Any, inputs: Any) -> list[Any]:
    """The outputs of a recorded program."""
    return jaxpr_as_fun(ClosedJaxpr(jaxpr, []))(*consts, *inputs)


def without_unused(jaxpr: Any, consts: list[Any]) -> tuple[Any, list[Any]]:
    """What no output asks for is left out; the inputs stay as they are."""
    count, wanted = len(consts), [True] * len(jaxpr.outvars)
    keep = [False] * count + [True] * (len(jaxpr.invars) - count)
    left, used = partial_eval.dce_jaxpr(jaxpr, wanted, instantiate=keep)
    return left, [c for c, is_used in zip(consts, used[:count], strict=True) if is_used]


def remake(jaxpr: Any, **parts: Any) -> Any:
    """A program with other inputs, outputs or operations; what its inputs were called is lost."""
    return jaxpr.replace(debug_info=jaxpr.debug_info.with_unknown_names(), **parts)


def _has_inner_constants(jaxpr: Any) -> bool:
    """Whether a call inside has constants of its own: a function that the user compiled, say."""
    return any(
        bool(inner.consts) or _has_inner_constants(inner.jaxpr)
        for eqn in jaxpr.eqns
        if eqn.primitive.name in CALLS
        for inner in [eqn.params[CALLS[eqn.primitive.name]]]
        if isinstance(inner, ClosedJaxpr)
    )


def _inlined(jaxpr: Any, consts: Any, inputs: Any) -> list[Any]:
    """The outputs, calls with constants written out: these become the program's own."""
    at: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs)))
    read = lambda v: v.val if isinstance(v, Literal) else at[v]  # noqa: E731
    for eqn in jaxpr.eqns:
        xs = [read(v) for v in eqn.invars]
        inner = eqn.params.get(CALLS.get(eqn.primitive.name, ""))
        if isinstance(inner, ClosedJaxpr) and (inner.consts or _has_inner_constants(inner.jaxpr)):
            found = _inlined(inner.jaxpr, inner.consts, xs)
        else:
            found = eqn.primitive.bind(*xs, **eqn.primitive.get_bind_params(eqn.params))
            found = found if eqn.primitive.multiple_results else [found]
        at.update(zip(eqn.outvars, found))
    return [read(v) for v in jaxpr.outvars]


# ------------------------------------------------------------------------ what tells them apart


def key_of(jaxpr: Any, rules: int = 0) -> Any:
    """Operations, shapes, types and small constants, as a tree that can be compared."""
    at: dict[Any, int] = {v: k for k, v in enumerate((*jaxpr.constvars, *jaxpr.invars))}
    begin = tuple(_type(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars))

    def read(v: Any) -> Any:
        return _literal(v) if isinstance(v, Literal) else at[v]

    steps = []
    for eqn in jaxpr.eqns:
        own = _rule_key(eqn, rules) if rules and "custom" in eqn.primitive.name else None
        steps.append(
            (
                eqn.primitive.name,
                tuple(map(read, eqn.invars)),
                tuple(_type(v.aval) for v in eqn.outvars),
                _frozen_params(eqn.params, rules),
                own,
            )
        )
        for v in eqn.outvars:
            at[v] = len(at)
    return len(jaxpr.constvars), begin, tuple(steps), tuple(map(read, jaxpr.outvars))


def _type(aval: Any) -> Any:
    return getattr(aval, "shape", None), str(getattr(aval, "dtype", aval))


def _literal(v: Any) -> Any:
    x = np.asarray(v.val)
    return "literal", str(v.aval.dtype), x.astype(v.aval.dtype).tobytes()


def _frozen_params(params: dict[str, Any], rules: int) -> Any:
    return tuple((k, _frozen(params[k], rules)) for k in sorted(params) if k not in _SILENT)


def _frozen(x: Any, rules: int) -> Any:
    """A parameter of an operation as something to compare."""
    if isinstance(x, ClosedJaxpr):
        return key_of(x.jaxpr, rules), tuple(_frozen(c, rules) for c in x.consts)
    if isinstance(x, Jaxpr):
        return key_of(x, rules)
    if isinstance(x, tuple | list):
        return tuple(_frozen(y, rules) for y in x)
    if isinstance(x, dict):
        return tuple(sorted((str(k), _frozen(y, rules)) for k, y in x.items()))
    if isinstance(x, np.ndarray | jax.Array | np.generic):
        x = np.asarray(x)
        return x.shape, str(x.dtype), x.tobytes()
    try:
        hash(x)
    except TypeError:
        return _Same(x)
    return x


class _Same:
    """Something that is equal to itself alone."""

    def __init__(self, x: Any):
        self.x = x

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Same) and other.x is self.x

    def __hash__(self) -> int:
        return id(self.x)


def _rule_key(eqn: Any, rules: int) -> Any:
    """What the derivative of an operation with a rule of its own does."""
    moved = rule_of(eqn)
    if moved is None:  # by the rule itself, where it is no plain function of numbers
        kept = [eqn.params[name] for name in _SILENT if callable(eqn.params.get(name))]
        return tuple(map(_Same, kept))
    return key_of(moved.jaxpr, rules - 1), tuple(_frozen(c, 0) for c in moved.consts)


def rule_of(eqn: Any) -> Any:
    """The derivative of an operation with a rule of its own, recorded; None where there is none.

    There is none with respect to numbers that the function closes over.
    """
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    function = equation_alone(eqn)
    if not all(map(_moves, shapes)):
        return None
    try:
        if eqn.primitive.name == "custom_jvp_call":
            return jax.make_jaxpr(lambda xs, ds: jax.jvp(function, xs, ds)[1])(shapes, shapes)
        if eqn.primitive.name.startswith("custom_vjp_call"):
            outs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.outvars]
            return jax.make_jaxpr(lambda xs, ds: jax.vjp(function, *xs)[1](ds))(shapes, outs)
    except Exception as failure:
        if type(failure).__name__ != "CustomVJPException":  # JAX gives it no public name
            raise
    return None


def _moves(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, np.inexact)


def equation_alone(eqn: Any) -> Callable:
    """One operation of a recorded program as a function of its inputs, a list of outputs."""

    def function(*xs: Any) -> list[Any]:
        found = eqn.primitive.bind(*xs, **eqn.primitive.get_bind_params(eqn.params))
        return list(found) if eqn.primitive.multiple_results else [found]

    return function


def digest_of(jaxpr: Any, consts: Any) -> str:
    """Names of operations, types and all numbers, in short; the same in every process."""
    found = hashlib.sha256()

    def walk(jaxpr: Any, consts: Any) -> None:
        for c in consts:
            if jnp.issubdtype(c.dtype, jax.dtypes.prng_key):
                c = jax.random.key_data(c)
            x = np.asarray(c)
            found.update(f"{x.shape}{x.dtype}".encode() + x.tobytes())
        for eqn in jaxpr.eqns:
            found.update(eqn.primitive.name.encode())
            for v in eqn.invars:
                found.update(repr(_literal(v) if isinstance(v, Literal) else v.aval).encode())
            for name in sorted(eqn.params):
                inner = eqn.params[name]
                for x in inner if isinstance(inner, tuple | list) else [inner]:
                    if isinstance(x, ClosedJaxpr):
                        walk(x.jaxpr, x.consts)
                    elif isinstance(x, Jaxpr):
                        walk(x, ())
                    elif isinstance(x, int | float | str | bool) and name not in _SILENT:
                        found.update(f"{name}={x}".encode())
        for v in jaxpr.outvars:  # a number that is given as it is
            if isinstance(v, Literal):
                found.update(repr(_literal(v)).encode())

    walk(jaxpr, consts)
    return found.hexdigest()
