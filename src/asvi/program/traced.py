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

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jax.interpreters import partial_eval

from asvi.program.program_key import digest_of, key_of
from asvi.program.settings import RecordingSettings

__all__ = ["CALLS", "Traced", "evaluate", "record", "remake", "without_unused"]

#: Calls that are no more than the program inside them, and the name of that.
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}


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
