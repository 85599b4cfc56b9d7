"""Takes a recorded program in single precision; gives the same program in double precision.

The model is recorded once, in the precision that the user runs in. A search for a Gaussian wants
more digits than that: the operations, their constants and their types of whole numbers stay as they
are, and floating-point numbers get more digits. So there is one density, and two roundings of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from asvi.density.known_derivatives import NoDerivative, known_derivatives
from asvi.density.refusal import Refusal
from asvi.program.program_key import equation_alone, rule_of
from asvi.program.traced import CALLS

__all__ = ["in_double", "wide_type"]

NARROW, WIDE = np.dtype(np.float32), np.dtype(np.float64)

#: Operations that look at the digits of a number themselves.
_OF_DIGITS = {"bitcast_convert_type", "reduce_precision", "nextafter", "random_bits"}
_OUTSIDE = {"pure_callback", "io_callback", "debug_callback"}
_REMAT = {"checkpoint", "remat", "remat2"}


class _OwnPrecision(Exception):
    """Types are written into the program, or it looks at digits."""


def in_double(jaxpr: Any) -> Any | Refusal:
    """A program without constants of its own, in double precision.

    It is refused where it has types of its own, or looks at digits.

    >>> closed = jax.make_jaxpr(lambda x: jnp.exp(x) + 1)(np.float32(0.1))
    >>> in_double(closed.jaxpr).outvars[0].aval.dtype
    dtype('float64')
    >>> closed = jax.make_jaxpr(lambda x: jnp.exp(x.astype(np.float16)))(np.float32(0.1))
    >>> in_double(closed.jaxpr).why
    'the model computes in float16 of its own accord'
    """
    try:
        for v in jaxpr.invars:
            _check(v.aval.dtype)
        with jax.enable_x64(True), known_derivatives():
            closed = jax.make_jaxpr(lambda *xs: _run(jaxpr, (), xs))(*map(_shape, jaxpr.invars))
    except (_OwnPrecision, NoDerivative) as failure:
        return Refusal(str(failure))
    if closed.consts:
        return Refusal("a derivative of the model's own has data of its own")
    return closed.jaxpr


def wide_type(x: Any) -> Any:
    """A constant of such a program."""
    if jnp.issubdtype(x.dtype, jax.dtypes.extended):
        return x
    _check(x.dtype)
    return np.asarray(x, WIDE if x.dtype == NARROW else x.dtype)


def _check(dtype: Any) -> None:
    if dtype != NARROW and jnp.issubdtype(dtype, np.inexact):
        raise _OwnPrecision(f"the model computes in {dtype} of its own accord")


def _shape(v: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(v.aval.shape, WIDE if v.aval.dtype == NARROW else v.aval.dtype)


def _run(jaxpr: Any, consts: Any, inputs: Any) -> list[Any]:
    at: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs)))

    def read(v: Any) -> Any:
        return _literal(v) if isinstance(v, Literal) else at[v]

    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        for v in eqn.outvars:
            _check(v.aval.dtype)
        if name in _OF_DIGITS or name in _OUTSIDE:
            raise _OwnPrecision(f"the model runs {name!r}, which has a precision of its own")
        found = _RULES.get(name, _as_it_is)(eqn, [read(v) for v in eqn.invars])
        at.update(zip(eqn.outvars, found, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _literal(v: Any) -> Any:
    x = np.asarray(v.val).astype(v.aval.dtype)  # rounded as it was recorded
    return x.astype(WIDE) if x.dtype == NARROW else x


def _as_it_is(eqn: Any, xs: list[Any]) -> list[Any]:
    params = {k: _param(x) for k, x in eqn.params.items()}
    found = eqn.primitive.bind(*xs, **params)
    return list(found) if eqn.primitive.multiple_results else [found]


def _param(x: Any) -> Any:
    if isinstance(x, ClosedJaxpr):
        return _closed(x)
    if isinstance(x, Jaxpr):
        return _closed(ClosedJaxpr(x, [])).jaxpr
    if isinstance(x, tuple) and any(isinstance(y, ClosedJaxpr | Jaxpr) for y in x):
        made = tuple(map(_param, x))
        return type(x)(*made) if hasattr(x, "_fields") else made  # of linear solves: by name
    try:
        return WIDE if np.dtype(x) == NARROW and not isinstance(x, str) else x
    except TypeError:
        return x


def _closed(inner: Any) -> Any:
    """A program inside of another, all of whose inputs may be wider."""
    shapes = [_shape(v) for v in inner.jaxpr.invars]
    given = [wide_type(c) for c in inner.consts]
    found = jax.make_jaxpr(lambda *xs: _run(inner.jaxpr, given, xs))(*shapes)
    # What a loop hands on must be of one type, known for sure.
    return found


def _call(eqn: Any, xs: list[Any]) -> list[Any]:
    inner = eqn.params[CALLS.get(eqn.primitive.name, "jaxpr")]
    if isinstance(inner, ClosedJaxpr):
        return _run(inner.jaxpr, [wide_type(c) for c in inner.consts], xs)
    return _run(inner, (), xs)


def _with_own_slopes(eqn: Any, xs: list[Any]) -> list[Any]:
    """A function with forward derivatives of its own, which stay its own."""
    inner, narrow = eqn.params["call_jaxpr"], [_recorded(v) for v in eqn.invars]

    @jax.custom_jvp
    def function(*xs: Any) -> list[Any]:
        return _run(inner.jaxpr, [wide_type(c) for c in inner.consts], xs)

    @function.defjvp
    def slopes(xs: Any, ds: Any) -> Any:
        moves = [k for k, v in enumerate(narrow) if jnp.issubdtype(v.dtype, np.inexact)]

        def moved(xs: Any, ds: Any) -> Any:
            def of_moving(*some: Any) -> list[Any]:
                whole = list(xs)
                for k, x in zip(moves, some, strict=True):
                    whole[k] = x
                return equation_alone(eqn)(*whole)

            return jax.jvp(of_moving, [xs[k] for k in moves], ds)

        with jax.enable_x64(False):
            closed = jax.make_jaxpr(moved)(narrow, [narrow[k] for k in moves])
        given = [wide_type(c) for c in closed.consts]
        found = _run(closed.jaxpr, given, [*xs, *(ds[k] for k in moves)])
        count = len(found) // 2
        return found[:count], _tangents(found[:count], found[count:])

    return function(*xs)


def _tangents(values: list[Any], tangents: list[Any]) -> list[Any]:
    return [
        d
        if jnp.issubdtype(jnp.result_type(x), jnp.inexact)
        else np.zeros(np.shape(x), jax.dtypes.float0)
        for x, d in zip(values, tangents, strict=True)
    ]


def _with_own_pullback(eqn: Any, xs: list[Any]) -> list[Any]:
    """A function with reverse derivatives of its own; its values are computed anew for them."""
    inner, narrow = eqn.params["call_jaxpr"], [_recorded(v) for v in eqn.invars]
    outs = [_recorded(v) for v in eqn.outvars]
    moves = [k for k, v in enumerate(narrow) if jnp.issubdtype(v.dtype, np.inexact)]
    if len(moves) == len(narrow) and rule_of(eqn) is None:
        raise _OwnPrecision("a function closes over numbers that it has no derivative for")

    @jax.custom_vjp
    def function(*xs: Any) -> list[Any]:
        return _run(inner.jaxpr, [wide_type(c) for c in inner.consts], xs)

    def forth(*xs: Any) -> Any:
        return function(*xs), xs

    def back(xs: Any, ds: Any) -> Any:
        def pulled(xs: Any, ds: Any) -> Any:
            def of_moving(*some: Any) -> list[Any]:
                whole = list(xs)
                for k, x in zip(moves, some, strict=True):
                    whole[k] = x
                return equation_alone(eqn)(*whole)

            return jax.vjp(of_moving, *[xs[k] for k in moves])[1](ds)

        with jax.enable_x64(False):
            closed = jax.make_jaxpr(pulled)(narrow, outs)
        found = iter(_run(closed.jaxpr, [wide_type(c) for c in closed.consts], [*xs, *ds]))
        return tuple(next(found) if k in moves else None for k in range(len(narrow)))

    function.defvjp(forth, back)
    return function(*xs)


def _recorded(v: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype)


_RULES: dict[str, Callable] = {
    **dict.fromkeys((*CALLS, *_REMAT), _call),
    "custom_jvp_call": _with_own_slopes,
    **dict.fromkeys(("custom_vjp_call", "custom_vjp_call_jaxpr"), _with_own_pullback),
}
