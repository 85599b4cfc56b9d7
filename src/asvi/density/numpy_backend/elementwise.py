"""Takes an operation on single entries; gives the function of NumPy arrays that does the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as scipy_special

from asvi.density.numpy_backend import quantiles
from asvi.density.numpy_backend import special_functions as special
from asvi.density.numpy_backend.no_rule import NoNumpyRule
from asvi.density.numpy_backend.powers import integer_power, power_of

__all__ = ["OF_ENTRIES"]


def _divide(eqn: Any) -> Callable:
    if not np.issubdtype(eqn.invars[0].aval.dtype, np.integer):
        return np.divide
    return _unless_by_zero(eqn, lambda a, b: (a - np.fmod(a, b)) // b, lambda a: -1)  # towards zero


def _remainder(eqn: Any) -> Callable:
    if not np.issubdtype(eqn.invars[0].aval.dtype, np.integer):
        return np.fmod
    return _unless_by_zero(eqn, np.fmod, lambda a: a)


def _unless_by_zero(eqn: Any, usual: Callable, by_zero: Callable) -> Callable:
    """Whole numbers divided: there is no NaN to tell that it was by zero."""
    if getattr(eqn.invars[1], "val", 0) != 0:
        return usual

    def apply(a: Any, b: Any) -> Any:
        found = usual(a, b)
        if np.all(b):
            return found
        return np.where(b == 0, np.asarray(by_zero(a)).astype(found.dtype), found)

    return apply


def _select(eqn: Any) -> Callable:
    if eqn.invars[0].aval.dtype == bool:
        return lambda which, no, yes: np.where(which, yes, no)
    return lambda which, *cases: np.choose(which, cases, mode="clip")


def _convert(eqn: Any) -> Callable:
    dtype, before = np.dtype(eqn.params["new_dtype"]), eqn.invars[0].aval.dtype
    if np.issubdtype(before, np.inexact) and np.issubdtype(dtype, np.integer):
        return _to_whole(dtype, before)
    return lambda x: np.asarray(x).astype(dtype, copy=False)


def _to_whole(dtype: np.dtype, before: np.dtype) -> Callable:
    """Numbers that are too large or small become the last ones that there are, NaN becomes 0."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    bottom, top = before.type(least), before.type(2.0 ** int(most).bit_length())

    def apply(x: Any) -> Any:
        inside = (x > bottom) & (x < top)
        if inside.all():
            return np.asarray(x).astype(dtype)
        found = np.where(inside, x, 0).astype(dtype)
        found = np.where(x <= bottom, dtype.type(least), found)
        return np.where(x >= top, dtype.type(most), found)

    return apply


def _same_bits(eqn: Any) -> Callable:
    dtype, known = np.dtype(eqn.params["new_dtype"]), eqn.invars[0].aval.dtype
    if dtype.itemsize != known.itemsize:
        raise NoNumpyRule("NumPy does not run 'bitcast_convert_type' of another size")
    return lambda x: np.asarray(x, known).view(dtype)  # a program may be run with more digits


def _shift(eqn: Any, move: Callable) -> Callable:
    """Bits moved along, none of them for its sign; what leaves is lost."""
    dtype = eqn.invars[0].aval.dtype
    bits, unsigned = 8 * dtype.itemsize, np.dtype(f"uint{8 * dtype.itemsize}")

    def apply(x: Any, count: Any) -> Any:
        x, count = np.asarray(x).view(unsigned), np.asarray(count).view(unsigned)
        inside = count < bits
        return np.where(inside, move(x, np.where(inside, count, 0)), 0).astype(unsigned).view(dtype)

    return apply


def _polynomial(x: Any, *coefficients: Any) -> Any:
    """By Horner's rule; the constant comes first."""
    found = coefficients[-1]
    for c in coefficients[-2::-1]:
        found = found * x + c
    return found


def _round(eqn: Any) -> Callable:
    if int(eqn.params["rounding_method"]) == 1:  # to even
        return np.round
    # (With 1/2 itself, what is just below would be rounded up to it.)
    half = np.nextafter(eqn.invars[0].aval.dtype.type(0.5), 0, dtype=eqn.invars[0].aval.dtype)
    return lambda x: np.trunc(x + np.copysign(half, x))


#: Functions of entries, as they are.
_PLAIN: dict[str, Callable] = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "add": np.add, "add_any": np.add,
    "and": np.bitwise_and, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "copy": lambda x: x, "copy_p": lambda x: x, "cos": np.cos, "cosh": np.cosh,
    "digamma": special.digamma, "eq": np.equal, "erf": scipy_special.erf,
    "erf_inv": scipy_special.erfinv, "erfc": scipy_special.erfc, "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "floor": np.floor, "ge": np.greater_equal, "gt": np.greater,
    "igamma": special.igamma, "igammac": special.igammac, "is_finite": np.isfinite,
    "le": np.less_equal, "log": np.log, "log1p": np.log1p,
    "logistic": scipy_special.expit, "lt": np.less, "max": np.maximum, "min": np.minimum,
    "mul": np.multiply, "ne": np.not_equal, "neg": np.negative, "not": np.invert,
    "or": np.bitwise_or, "polynomial": _polynomial,
    "regularized_incomplete_beta": special.betainc,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sign": np.sign, "sin": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "square": np.square, "stop_gradient": lambda x: x,
    "sub": np.subtract, "tan": np.tan, "tanh": np.tanh, "xor": np.bitwise_xor,
}  # fmt: skip

OF_ENTRIES: dict[str, Callable[[Any], Callable]] = {
    "bitcast_convert_type": _same_bits,
    **{name: (lambda eqn, f=f: f) for name, f in _PLAIN.items()},
    "convert_element_type": _convert,
    "div": _divide,
    "noise_of": quantiles.noise_of,
    "quantile_at": quantiles.quantile_at,
    "integer_pow": lambda eqn: integer_power(eqn.params["y"]),
    "polygamma": special.polygamma,
    "lgamma": lambda eqn: special.lgamma(eqn.outvars[0].aval.dtype),
    "pow": power_of,
    "rem": _remainder,
    "round": _round,
    "select_n": _select,
    "shift_left": lambda eqn: _shift(eqn, np.left_shift),
    "shift_right_logical": lambda eqn: _shift(eqn, np.right_shift),
}
