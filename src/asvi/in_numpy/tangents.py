"""Takes an operation of a traced program; gives the function of its values' tangents.

Forward derivatives beside the values: at x moved along :math:`\\dot x`, an operation y = f(x) moves
along :math:`\\dot y = f'(x)\\,\\dot x`. A tangent has the axes of its value, of length 1 where all
along an axis is the same; None is a tangent of zeros. So values that do not depend on a direction
are computed once for all directions, and their tangents not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as special

from asvi.in_numpy.indexing import gather

__all__ = ["filled", "tangent_rule"]

_ROOT = np.sqrt(np.pi)

#: The derivative of an operation on single entries, from x and y = f(x).
_SLOPES: dict[str, Callable] = {
    "abs": lambda x, y: np.sign(x),
    "acos": lambda x, y: -1 / np.sqrt(1 - x * x),
    "asin": lambda x, y: 1 / np.sqrt(1 - x * x),
    "asinh": lambda x, y: 1 / np.sqrt(1 + x * x),
    "atan": lambda x, y: 1 / (1 + x * x),
    "atanh": lambda x, y: 1 / (1 - x * x),
    "cbrt": lambda x, y: y / (3 * x),
    "cos": lambda x, y: -np.sin(x),
    "cosh": lambda x, y: np.sinh(x),
    "digamma": lambda x, y: special.polygamma(1, x),
    "erf": lambda x, y: (2 / _ROOT) * np.exp(-x * x),
    "erf_inv": lambda x, y: (_ROOT / 2) * np.exp(y * y),
    "erfc": lambda x, y: (-2 / _ROOT) * np.exp(-x * x),
    "exp": lambda x, y: y,
    "exp2": lambda x, y: np.log(2.0) * y,
    "expm1": lambda x, y: 1 + y,
    "lgamma": lambda x, y: special.psi(x),
    "log": lambda x, y: 1 / x,
    "log1p": lambda x, y: 1 / (1 + x),
    "logistic": lambda x, y: y * (1 - y),
    "rsqrt": lambda x, y: -0.5 * y / x,
    "sin": lambda x, y: np.cos(x),
    "sinh": lambda x, y: np.cosh(x),
    "sqrt": lambda x, y: 0.5 / y,
    "square": lambda x, y: 2 * x,
    "tan": lambda x, y: 1 + y * y,
    "tanh": lambda x, y: 1 - y * y,
}

#: Operations that are linear in the inputs at these places; the others say where, or which.
_LINEAR: dict[str, Any] = {
    **dict.fromkeys(
        ("broadcast_in_dim", "convert_element_type", "copy", "copy_p", "cumsum", "dynamic_slice",
         "neg", "reduce_sum", "reshape", "rev", "slice", "split", "squeeze", "transpose",
         "unstack"), (0,)
    ),
    **dict.fromkeys(("dynamic_update_slice", "pad"), (0, 1)),
    **dict.fromkeys(("concatenate", "optimization_barrier", "stack"), ...),
    **dict.fromkeys(("scatter", "scatter-add"), (0, 2)),
}  # fmt: skip

#: Operations whose outputs do not move.
_STILL = {
    "and", "argmax", "argmin", "ceil", "eq", "floor", "ge", "gt", "iota", "is_finite", "le", "lt",
    "ne", "not", "or", "round", "sign", "stop_gradient", "xor",
}  # fmt: skip


def tangent_rule(eqn: Any, do: Callable) -> Callable | None:
    """``rule(values, tangents, found)``, the tangents of what ``do(*values)`` found.

    At least one of the tangents is no None. The rule is, where outputs never move.
    """
    name = eqn.primitive.name
    if name in _STILL or not np.issubdtype(eqn.outvars[0].aval.dtype, np.inexact):
        return None
    if name in _SLOPES:
        slope = _SLOPES[name]
        return lambda xs, ds, y: slope(xs[0], y) * ds[0]
    if name in _LINEAR:
        places = range(len(eqn.invars)) if _LINEAR[name] is ... else _LINEAR[name]
        return lambda xs, ds, y: do(
            *[filled(d, x) if k in places else x for k, (x, d) in enumerate(zip(xs, ds))]
        )
    if name in _RULES:
        return _RULES[name](eqn, do)
    raise NotImplementedError(f"NumPy does not differentiate {name!r}")


def filled(tangent: Any, x: Any) -> Any:
    """The tangent of x, zeros in place of None."""
    return np.zeros((1,) * np.ndim(x), np.result_type(x)) if tangent is None else tangent


def _sum(*parts: Any) -> Any:
    found = None
    for part in parts:
        if part is not None:
            found = part if found is None else found + part
    return found


def _difference(eqn: Any, do: Callable) -> Callable:
    return lambda xs, ds, y: _sum(ds[0], None if ds[1] is None else -ds[1])


def _bilinear(eqn: Any, do: Callable) -> Callable:
    def rule(xs, ds, y):
        return _sum(
            None if ds[0] is None else do(ds[0], xs[1]), None if ds[1] is None else do(xs[0], ds[1])
        )

    return rule


def _quotient(eqn: Any, do: Callable) -> Callable:
    def rule(xs, ds, y):
        if ds[1] is None:
            return ds[0] / xs[1]
        return (-y * ds[1] if ds[0] is None else ds[0] - y * ds[1]) / xs[1]

    return rule


def _power(eqn: Any, do: Callable) -> Callable:
    def rule(xs, ds, y):
        x, exponent = xs
        return _sum(
            None if ds[0] is None else exponent * np.power(x, exponent - 1) * ds[0],
            None if ds[1] is None else np.where(x == 0, 0.0, np.log(x)) * y * ds[1],
        )

    return rule


def _polynomial(eqn: Any, do: Callable) -> Callable:
    """The constant comes first."""

    def rule(xs, ds, y):
        x, *coefficients = xs
        steep = [k * c for k, c in enumerate(coefficients)][1:]
        return _sum(
            None if ds[0] is None or not steep else do(x, *steep) * ds[0],
            *[None if d is None else d * np.power(x, k) for k, d in enumerate(ds[1:])],
        )

    return rule


def _integer_power(eqn: Any, do: Callable) -> Callable:
    n = eqn.params["y"]
    if n == -1:
        return lambda xs, ds, y: -y * y * ds[0]
    if n == 2:
        return lambda xs, ds, y: 2 * xs[0] * ds[0]
    return lambda xs, ds, y: n * np.power(xs[0], float(n - 1)) * ds[0]


def _greater(eqn: Any, do: Callable) -> Callable:
    """Of two: that one's tangent; half of each where they are the same."""

    def rule(xs, ds, y):
        ours, theirs = (np.equal(x, y) for x in xs)
        both = 1.0 / (1.0 * ours + theirs)
        return _sum(
            *[None if d is None else is_it * both * d for is_it, d in zip((ours, theirs), ds)]
        )

    return rule


def _clamp(eqn: Any, do: Callable) -> Callable:
    def rule(xs, ds, y):
        low, x, high = xs
        where = (x < low, (x >= low) & (x <= high), x > high)
        return _sum(*[None if d is None else at * d for at, d in zip(where, ds)])

    return rule


def _select(eqn: Any, do: Callable) -> Callable:
    return lambda xs, ds, y: do(xs[0], *[filled(d, x) for x, d in zip(xs[1:], ds[1:])])


def _gathered(eqn: Any, do: Callable) -> Callable:
    moved = gather(eqn, blank=0.0)  # what is filled in does not move
    return lambda xs, ds, y: moved(ds[0], xs[1])


def _extreme(eqn: Any, do: Callable) -> Callable:
    axes = tuple(eqn.params["axes"])

    def rule(xs, ds, y):
        x = np.broadcast_to(xs[0], np.broadcast_shapes(xs[0].shape, ds[0].shape))
        chosen = 1.0 * (x == np.expand_dims(y, axes))
        return np.sum(chosen * ds[0], axes) / np.sum(chosen, axes)

    return rule


_RULES: dict[str, Callable] = {
    **dict.fromkeys(("add", "add_any"), lambda eqn, do: lambda xs, ds, y: _sum(*ds)),
    "clamp": _clamp, "div": _quotient, "dot_general": _bilinear, "gather": _gathered,
    "integer_pow": _integer_power, "max": _greater, "min": _greater, "mul": _bilinear,
    "polynomial": _polynomial, "pow": _power, "reduce_max": _extreme, "reduce_min": _extreme,
    "select_n": _select,
    "sub": _difference,
}  # fmt: skip
