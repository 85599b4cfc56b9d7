"""Takes a recorded program; gives how many numbers it works on: a measure of its time."""

from __future__ import annotations

from math import prod
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr

__all__ = ["work_of"]


#: Simple operations that make one random number. (A gamma's are those of all its proposals.)
_OF_RANDOM = {"random_bits": 100, "random_split": 100, "random_fold_in": 100, "random_gamma": 1000}
#: constant of the formula: rounds of a loop without a known end, as of samplers that reject.
_ROUNDS = 10


def work_of(jaxpr: Any, each: float = 0.0) -> float:
    """Numbers that the operations of a program make, those of loops in every step.

    :param each: what it takes to begin with an operation, in numbers.

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
        within = [work_of(x, each) for x in inner]
        if eqn.primitive.name == "scan":
            total += eqn.params["length"] * sum(within)
        elif eqn.primitive.name == "while":
            total += _ROUNDS * sum(within)
        elif inner:
            total += max(within)
        elif eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            shape = eqn.invars[0].aval.shape
            total += each + made * prod(shape[k] for k in contracted)
        elif eqn.primitive.name in ("cholesky", "triangular_solve"):
            total += each + made * max(eqn.invars[0].aval.shape)
        else:
            total += each + made * _OF_RANDOM.get(eqn.primitive.name, 1)
    return total


def _parts(params: dict[str, Any]) -> list[Any]:
    return [y for x in params.values() for y in (x if isinstance(x, tuple | list) else [x])]


def _program(x: Any) -> Any:
    if isinstance(x, ClosedJaxpr):
        return x.jaxpr
    return x if isinstance(x, Jaxpr) else None
