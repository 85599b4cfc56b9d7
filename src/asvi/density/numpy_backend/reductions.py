"""Takes a sum, a product of matrices or the like; gives the function of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np
from scipy.linalg import blas

from asvi.density.numpy_backend.broadcasting import Shape, lengthened, shape_in
from asvi.density.numpy_backend.no_rule import NoNumpyRule

__all__ = ["OF_AXES"]

#: constant of the formula: numbers that NumPy adds one by one; more it adds in pairs.
_ADDED_IN_ORDER = 128
_ONES = np.ones(_ADDED_IN_ORDER)


def _reduce(ufunc: Any, eqn: Any) -> Callable:
    return _over_axes(ufunc, shape_in(eqn), tuple(eqn.params["axes"]), eqn.invars[0].aval.dtype)


@cache
def _over_axes(ufunc: Any, full: Shape, axes: tuple[int, ...], dtype: Any) -> Callable:
    if 0 in full:
        nothing = _nothing(ufunc, dtype)
        return lambda x: ufunc.reduce(lengthened(x, full), axis=axes, dtype=dtype, initial=nothing)
    if ufunc not in (np.add, np.multiply):  # one is as good as many
        return lambda x: ufunc.reduce(x, axis=axes, dtype=x.dtype)
    if not np.issubdtype(dtype, np.inexact):  # these may wrap around
        return lambda x: ufunc.reduce(lengthened(x, full, axes), axis=axes, dtype=x.dtype)

    counts: dict[Shape, tuple[int, int]] = {}
    kept = len(full) - len(axes)
    are_last = ufunc is np.add and axes == (*range(kept, len(full)),)

    def apply(x: Any) -> Any:
        known = counts.get(x.shape)
        if known is None:
            times = prod(full[a] for a in axes if x.shape[a] == 1)
            known = counts[x.shape] = times, prod(x.shape[a] for a in axes)
        times, length = known
        if (
            are_last
            and length <= _ADDED_IN_ORDER
            and x.flags.c_contiguous
            and x.dtype == np.float64
        ):
            rest = x.shape[:kept]
            # As a product with ones: NumPy's own sums of a few numbers are slow to begin.
            found = x.reshape(-1, length).dot(_ONES[:length]) if length > 1 else x
            found = found.reshape(rest) if rest else found.reshape(())[()]
        else:
            found = ufunc.reduce(x, axis=axes, dtype=x.dtype)
        if times == 1:
            return found
        return found * x.dtype.type(times) if ufunc is np.add else found**times

    return apply


def _nothing(ufunc: Any, dtype: Any) -> Any:
    """What is found where there is nothing."""
    if ufunc not in (np.maximum, np.minimum):
        return ufunc.identity
    if np.issubdtype(dtype, np.inexact):
        return -np.inf if ufunc is np.maximum else np.inf
    if np.issubdtype(dtype, np.bool_):
        return ufunc is np.minimum
    return np.iinfo(dtype).min if ufunc is np.maximum else np.iinfo(dtype).max


def _cumulate(ufunc: Any, eqn: Any) -> Callable:
    full, axis, reverse = shape_in(eqn), eqn.params["axis"], eqn.params["reverse"]

    def apply(x: Any) -> Any:
        x = lengthened(x, full, [axis])
        if reverse:
            return np.flip(ufunc.accumulate(np.flip(x, axis), axis=axis, dtype=x.dtype), axis)
        return ufunc.accumulate(x, axis=axis, dtype=x.dtype)

    return apply


def _argument(find: Callable, eqn: Any) -> Callable:
    full, (axis,), dtype = shape_in(eqn), eqn.params["axes"], eqn.params["index_dtype"]
    return lambda x: find(lengthened(x, full), axis).astype(dtype)


def _dot(eqn: Any) -> Callable:
    (lc, rc), (lb, rb) = eqn.params["dimension_numbers"]
    left, right = shape_in(eqn), shape_in(eqn, 1)
    types = {v.aval.dtype for v in (*eqn.invars, *eqn.outvars)}
    if len(types) > 1:
        raise NoNumpyRule("NumPy does not run 'dot_general' of several types")
    lf = [a for a in range(len(left)) if a not in (*lc, *lb)]
    rf = [a for a in range(len(right)) if a not in (*rc, *rb)]
    inner = prod(left[a] for a in lc)

    def apply(x: Any, y: Any) -> Any:
        x, y = lengthened(x, left, lc), lengthened(y, right, rc)
        free, others = [x.shape[a] for a in lf], [y.shape[a] for a in rf]
        x = np.transpose(x, (*lb, *lf, *lc))
        y = np.transpose(y, (*rb, *rc, *rf))
        x = x.reshape(*x.shape[: len(lb)], prod(free), inner)
        y = y.reshape(*y.shape[: len(rb)], inner, prod(others))
        found = np.matmul(x, y)
        return found.reshape((*found.shape[: len(lb)], *free, *others))

    return apply


def _cholesky(eqn: Any) -> Callable:
    full = shape_in(eqn)

    def one(a: np.ndarray) -> np.ndarray:
        try:
            return np.linalg.cholesky(a)
        except np.linalg.LinAlgError:
            return np.full_like(a, np.nan)

    def apply(x: Any) -> Any:
        x = lengthened(x, full)
        if eqn.params.get("symmetrize_input", False):
            x = (x + np.swapaxes(x, -1, -2)) / 2
        try:
            return np.linalg.cholesky(x)
        except np.linalg.LinAlgError:  # one of many is not positive definite
            return np.stack([one(a) for a in x.reshape(-1, *x.shape[-2:])]).reshape(x.shape)

    return apply


def _triangular_solve(eqn: Any) -> Callable:
    """By the function that JAX calls, too: what a 0 or NaN does depends on the order of steps."""
    p, full, other = eqn.params, shape_in(eqn), shape_in(eqn, 1)
    solve = blas.dtrsm if eqn.outvars[0].aval.dtype == np.float64 else blas.strsm
    about = {
        "side": int(not p["left_side"]),
        "lower": int(p["lower"]),
        "trans_a": int(p["transpose_a"]),
        "diag": int(p["unit_diagonal"]),
    }

    def apply(a: Any, b: Any) -> Any:
        a, b = lengthened(a, full), lengthened(b, other)
        found = np.empty(other, b.dtype)
        if found.size:
            for k in np.ndindex(other[:-2]):
                found[k] = solve(1.0, a[k], b[k], **about)
        return found

    return apply


OF_AXES: dict[str, Callable[[Any], Callable]] = {
    "argmax": partial(_argument, np.argmax),
    "argmin": partial(_argument, np.argmin),
    "cholesky": _cholesky,
    "cumlogsumexp": partial(_cumulate, np.logaddexp),
    "cummax": partial(_cumulate, np.maximum),
    "cummin": partial(_cumulate, np.minimum),
    "cumprod": partial(_cumulate, np.multiply),
    "cumsum": partial(_cumulate, np.add),
    "dot_general": _dot,
    "reduce_and": partial(_reduce, np.bitwise_and),
    "reduce_max": partial(_reduce, np.maximum),
    "reduce_min": partial(_reduce, np.minimum),
    "reduce_or": partial(_reduce, np.bitwise_or),
    "reduce_prod": partial(_reduce, np.multiply),
    "reduce_sum": partial(_reduce, np.add),
    "triangular_solve": _triangular_solve,
}
