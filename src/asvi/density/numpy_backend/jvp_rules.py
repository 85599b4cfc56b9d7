"""Takes an operation of a traced program; gives the function of its values' tangents.

Forward derivatives beside the values: at x moved along :math:`\\dot x`, an operation y = f(x) moves
along :math:`\\dot y = f'(x)\\,\\dot x`. A tangent has the axes of its value, of length 1 where all
along an axis is the same; None is a tangent of zeros. So values that do not depend on a direction
are computed once for all directions, and their tangents not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np

from asvi.density.numpy_backend import quantiles
from asvi.density.numpy_backend import special_functions as special
from asvi.density.numpy_backend.indexing import gather, mode_of
from asvi.density.numpy_backend.no_rule import NoNumpyRule
from asvi.density.numpy_backend.powers import integer_power, slope_of_power

__all__ = ["filled", "tangent_rule"]

#: constant of the formula: the root of pi, and the logarithm of 2.
_ROOT, _LOG_2 = float(np.sqrt(np.pi)), float(np.log(2.0))

#: The tangent of an operation on single entries, from d, x and y = f(x): by JAX's own formulas, as
#: others of the same function are infinite, NaN or inexact elsewhere. What can be had without d is
#: had without it: there are as many d as directions.
_SLOPES: dict[str, Callable] = {
    "acos": lambda d, x, y: d * (-1 / np.sqrt(1 - x * x)),
    "acosh": lambda d, x, y: d * (1 / np.sqrt(x * x - 1)),
    "asin": lambda d, x, y: d * (1 / np.sqrt(1 - x * x)),
    "asinh": lambda d, x, y: d * (1 / np.sqrt(x * x + 1)),
    "atan": lambda d, x, y: d / (1 + x * x),
    "atanh": lambda d, x, y: 1 / (1 + x) * (d / (1 - x)),
    "cbrt": lambda d, x, y: d * (1 / 3 * (1 / (y * y))),
    "cos": lambda d, x, y: d * -np.sin(x),
    "cosh": lambda d, x, y: d * np.sinh(x),
    "digamma": lambda d, x, y: d * special.trigamma(x),
    "erf": lambda d, x, y: (2 / _ROOT) * (d * np.exp(-x * x)),
    "erf_inv": lambda d, x, y: (_ROOT / 2) * (d * np.exp(y * y)),
    "erfc": lambda d, x, y: (-2 / _ROOT) * (d * np.exp(-x * x)),
    "exp": lambda d, x, y: d * y,
    "exp2": lambda d, x, y: _LOG_2 * (d * y),
    "expm1": lambda d, x, y: d * (y + 1),
    "lgamma": lambda d, x, y: d * special.digamma(x),
    "log": lambda d, x, y: d / x,
    "log1p": lambda d, x, y: d / (x + 1),
    "logistic": lambda d, x, y: d * (y * (1 - y)),
    "rsqrt": lambda d, x, y: d * (-0.5 * (y / x)),
    "sin": lambda d, x, y: d * np.cos(x),
    "sinh": lambda d, x, y: d * np.cosh(x),
    "sqrt": lambda d, x, y: d * (0.5 / y),
    "square": lambda d, x, y: d * (2 * x),
    "tan": lambda d, x, y: d * (1 + y * y),
    "tanh": lambda d, x, y: (d + d * y) * (1 - y),
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
    "scatter-add": (0, 2),
}  # fmt: skip

#: Operations whose outputs do not move; nor do those that are no fractions.
_STILL = {"ceil", "floor", "round", "sign", "stop_gradient"}


def tangent_rule(eqn: Any, do: Callable) -> Callable | None:
    """``rule(values, tangents, found)``, the tangents of what ``do(*values)`` found.

    At least one of the tangents is no None. The rule is, where outputs never move.
    """
    name = eqn.primitive.name
    if name in _STILL or not any(np.issubdtype(v.aval.dtype, np.inexact) for v in eqn.outvars):
        return None
    if name in _SLOPES:
        slope = _SLOPES[name]
        return lambda xs, ds, y: slope(ds[0], xs[0], y)
    if name in _LINEAR:
        places = range(len(eqn.invars)) if _LINEAR[name] is ... else _LINEAR[name]
        return lambda xs, ds, y: do(
            *[filled(d, x) if k in places else x for k, (x, d) in enumerate(zip(xs, ds))]
        )
    if name in _RULES:
        return _RULES[name](eqn, do)
    raise NoNumpyRule(f"NumPy does not differentiate {name!r}")


def filled(tangent: Any, x: Any) -> Any:
    """The tangent of x, zeros in place of None."""
    if tangent is not None:
        return tangent
    return np.zeros([min(n, 1) for n in np.shape(x)], np.result_type(x))


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
        above = None if ds[0] is None else ds[0] / xs[1]
        if ds[1] is None:
            return above
        below = ds[1] * xs[0] / np.square(xs[1])  # (-y / x would be other numbers near 0)
        return -below if above is None else above - below

    return rule


def _power(eqn: Any, do: Callable) -> Callable:
    def rule(xs, ds, y):
        x, exponent = xs
        return _sum(
            None if ds[0] is None else ds[0] * steep(x, exponent),
            None if ds[1] is None else ds[1] * (np.where(x == 0, 0, np.log(x)) * y),
        )

    steep = slope_of_power(eqn)
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
    if n == 0:
        return lambda xs, ds, y: np.zeros_like(ds[0])
    if n == 1:
        return lambda xs, ds, y: ds[0]
    below = integer_power(n - 1)
    return lambda xs, ds, y: ds[0] * (n * below(xs[0]))


def _absolute(eqn: Any, do: Callable) -> Callable:
    if _abs_stands_at_zero():
        return lambda xs, ds, y: ds[0] * np.sign(xs[0])
    return lambda xs, ds, y: np.where(xs[0] >= 0, ds[0], -ds[0])


@cache
def _abs_stands_at_zero() -> bool:
    """Whether JAX has 0 for the slope at 0, as it had once, rather than 1."""
    jaxpr = jax.make_jaxpr(lambda x: jax.jvp(jax.lax.abs, (x,), (x,))[1])(0.0)
    return any(eqn.primitive.name == "sign" for eqn in jaxpr.eqns)


def _greater(eqn: Any, do: Callable) -> Callable:
    """Of two: that one's tangent; half of each where they are the same."""
    one = eqn.outvars[0].aval.dtype.type(1)

    def rule(xs, ds, y):
        ours, theirs = (np.equal(x, y) for x in xs)
        return _sum(
            None if ds[0] is None else ds[0] * (ours / (one + theirs)),
            None if ds[1] is None else ds[1] * (theirs / (one + ours)),
        )

    return rule


def _clamp(eqn: Any, do: Callable) -> Callable:
    def rule(xs, ds, y):
        low, x, high = xs
        where = ((low > x) & (low < high), (x > low) & (x < high), high < x)
        return _sum(*[None if d is None else np.where(at, d, 0) for at, d in zip(where, ds)])

    return rule


def _select(eqn: Any, do: Callable) -> Callable:
    return lambda xs, ds, y: do(xs[0], *[filled(d, x) for x, d in zip(xs[1:], ds[1:])])


def _gathered(eqn: Any, do: Callable) -> Callable:
    moved = gather(eqn, blank=0.0)  # what is filled in does not move
    return lambda xs, ds, y: moved(ds[0], xs[1])


def _scattered(eqn: Any, do: Callable) -> Callable:
    """As the values are; JAX itself then finds others where windows are moved inside."""
    if mode_of(eqn) == "CLIP" and not eqn.params["unique_indices"]:
        raise NoNumpyRule("NumPy does not differentiate 'scatter' of mode CLIP")
    return lambda xs, ds, y: do(filled(ds[0], xs[0]), xs[1], filled(ds[2], xs[2]))


def _extreme(eqn: Any, do: Callable) -> Callable:
    axes, one = tuple(eqn.params["axes"]), eqn.outvars[0].aval.dtype.type(1)

    def rule(xs, ds, y):
        x = np.broadcast_to(xs[0], np.broadcast_shapes(xs[0].shape, ds[0].shape))
        chosen = one * (x == np.expand_dims(y, axes))
        return np.sum(chosen * ds[0], axes) / np.sum(chosen, axes)

    return rule


_RULES: dict[str, Callable] = {
    **dict.fromkeys(("add", "add_any"), lambda eqn, do: lambda xs, ds, y: _sum(*ds)),
    "abs": _absolute, "clamp": _clamp, "div": _quotient, "dot_general": _bilinear,
    "gather": _gathered, "integer_pow": _integer_power, "max": _greater, "min": _greater,
    "mul": _bilinear, "noise_of": quantiles.slope_of_noise,
    "quantile_at": quantiles.slope_of_quantile,
    "polynomial": _polynomial, "pow": _power, "reduce_max": _extreme, "reduce_min": _extreme,
    "scatter": _scattered, "select_n": _select,
    "sub": _difference,
}  # fmt: skip
