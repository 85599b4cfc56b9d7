"""Takes a recorded program; gives what tells it from others: a key to compare, a digest to store.

A key has operations, shapes, types and small constants, and no names; on request also what the
derivatives of functions with rules of their own do. A digest has all numbers, too, and is the same
in every process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

__all__ = ["digest_of", "equation_alone", "key_of", "rule_of"]

#: Parameters that name things, or hold functions that only a derivative asks for.
_SILENT = ("name", "debug_info", "jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "inline")


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
