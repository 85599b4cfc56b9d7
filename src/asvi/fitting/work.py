"""Takes a recorded program; gives how many numbers it works on: a measure of its time."""

from __future__ import annotations

from math import prod
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr

__all__ = ["work_of"]


def work_of(jaxpr: Any) -> float:
    """Numbers that the operations of a program make, those of loops in every step.

    A product of matrices makes one for each term of its sums, a factorisation those of its inner
    loops, too.

    >>> import jax, jax.numpy as jnp
    >>> work_of(jax.make_jaxpr(lambda x: jnp.sin(x) @ x)(jnp.ones(10)).jaxpr)
    20.0
    """
    total = 0.0
    for eqn in jaxpr.eqns:
        inner = [_program(x) for x in _parts(eqn.params)]
        inner = [x for x in inner if x is not None]
        made = sum(float(prod(v.aval.shape)) for v in eqn.outvars)
        if eqn.primitive.name == "scan":
            total += eqn.params["length"] * sum(map(work_of, inner))
        elif inner:
            total += max(map(work_of, inner))
        elif eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            shape = eqn.invars[0].aval.shape
            total += made * prod(shape[k] for k in contracted)
        elif eqn.primitive.name in ("cholesky", "triangular_solve"):
            total += made * max(eqn.invars[0].aval.shape)
        else:
            total += made
    return total


def _parts(params: dict[str, Any]) -> list[Any]:
    return [y for x in params.values() for y in (x if isinstance(x, tuple | list) else [x])]


def _program(x: Any) -> Any:
    if isinstance(x, ClosedJaxpr):
        return x.jaxpr
    return x if isinstance(x, Jaxpr) else None
