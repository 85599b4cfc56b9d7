"""Takes an operation on single entries; gives the function of NumPy arrays that does the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as special

__all__ = ["OF_ENTRIES"]


def _divide(eqn: Any) -> Callable:
    if np.issubdtype(eqn.invars[0].aval.dtype, np.integer):
        return lambda a, b: (a - np.fmod(a, b)) // b  # towards zero
    return np.divide


def _powers(eqn: Any) -> Callable:
    y = eqn.params["y"]
    if y == 2:
        return np.square
    if y == -1:
        return lambda x: np.divide(1, x, dtype=x.dtype)
    if y < 0:
        return lambda x: np.divide(1, np.power(x, -y), dtype=x.dtype)
    return lambda x: np.power(x, y)


def _select(eqn: Any) -> Callable:
    if eqn.invars[0].aval.dtype == bool:
        return lambda which, no, yes: np.where(which, yes, no)
    return lambda which, *cases: np.choose(which, cases)


def _convert(eqn: Any) -> Callable:
    dtype = np.dtype(eqn.params["new_dtype"])
    return lambda x: np.asarray(x).astype(dtype, copy=False)


def _same_bits(eqn: Any) -> Callable:
    dtype = np.dtype(eqn.params["new_dtype"])
    if dtype.itemsize != eqn.invars[0].aval.dtype.itemsize:
        raise NotImplementedError("NumPy does not run 'bitcast_convert_type' of another size")
    return lambda x: np.asarray(x).view(dtype)


def _polynomial(x: Any, *coefficients: Any) -> Any:
    """By Horner's rule; the constant comes first."""
    found = coefficients[-1]
    for c in coefficients[-2::-1]:
        found = found * x + c
    return found


def _round(eqn: Any) -> Callable:
    if int(eqn.params["rounding_method"]) == 1:  # to even
        return np.round
    return lambda x: np.trunc(x + np.copysign(0.5, x))


#: Functions of entries, as they are.
_PLAIN: dict[str, Callable] = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "add": np.add, "add_any": np.add,
    "and": np.bitwise_and, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "copy": lambda x: x, "copy_p": lambda x: x, "cos": np.cos, "cosh": np.cosh,
    "digamma": special.psi, "eq": np.equal, "erf": special.erf,
    "erf_inv": special.erfinv, "erfc": special.erfc, "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "floor": np.floor, "ge": np.greater_equal, "gt": np.greater,
    "igamma": special.gammainc, "igammac": special.gammaincc, "is_finite": np.isfinite,
    "le": np.less_equal, "lgamma": special.gammaln, "log": np.log, "log1p": np.log1p,
    "logistic": special.expit, "lt": np.less, "max": np.maximum, "min": np.minimum,
    "mul": np.multiply, "ne": np.not_equal, "neg": np.negative, "not": np.invert,
    "or": np.bitwise_or, "polygamma": special.polygamma, "polynomial": _polynomial, "pow": np.power,
    "regularized_incomplete_beta": special.betainc, "rem": np.fmod,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sign": np.sign, "sin": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "square": np.square, "stop_gradient": lambda x: x,
    "sub": np.subtract, "tan": np.tan, "tanh": np.tanh, "xor": np.bitwise_xor,
}  # fmt: skip

OF_ENTRIES: dict[str, Callable[[Any], Callable]] = {
    "bitcast_convert_type": _same_bits,
    **{name: (lambda eqn, f=f: f) for name, f in _PLAIN.items()},
    "convert_element_type": _convert,
    "div": _divide,
    "integer_pow": _powers,
    "round": _round,
    "select_n": _select,
}
