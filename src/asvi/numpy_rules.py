"""Takes an operation of a traced program; gives the function of NumPy arrays that does the same.

An array may have length 1 along an axis where the program has more: all entries along it are the
same, and are computed once. Operations on single entries need no care, as NumPy broadcasts; the
others make such an axis as long as it should be where they look along it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np
import scipy.special as special

from asvi.numpy_indexing import gather, scatter_add

__all__ = ["MAKERS"]

Shape = tuple[int, ...]


def _long(x: Any, shape: Shape, axes: Any = None) -> np.ndarray:
    """``x`` at its full length, along these axes or all."""
    x = np.asarray(x)
    wanted = (
        shape
        if axes is None
        else [shape[a] if a in axes else length for a, length in enumerate(x.shape)]
    )
    return x if x.shape == tuple(wanted) else np.broadcast_to(x, wanted)


def _in(eqn: Any, k: int = 0) -> Shape:
    return eqn.invars[k].aval.shape


def _out(eqn: Any) -> Shape:
    return eqn.outvars[0].aval.shape


# ------------------------------------------------------------------------------- single entries


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


def _round(eqn: Any) -> Callable:
    if int(eqn.params["rounding_method"]) == 1:  # to even
        return np.round
    return lambda x: np.trunc(x + np.copysign(0.5, x))


_OF_ENTRIES: dict[str, Callable] = {
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
    "or": np.bitwise_or, "polygamma": special.polygamma, "pow": np.power,
    "regularized_incomplete_beta": special.betainc, "rem": np.fmod,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sign": np.sign, "sin": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "square": np.square, "sub": np.subtract, "tan": np.tan,
    "tanh": np.tanh, "xor": np.bitwise_xor,
}  # fmt: skip

# ---------------------------------------------------------------------------- places of entries


def _moved_axes(rank: int, kept: Any, places: Any) -> Callable:
    """Reshapes so that axes ``kept`` are at ``places`` among ``rank``, the others of length 1."""
    shapes: dict[Shape, Shape] = {}  # few are met, and often

    def apply(x: Any, *_sizes: Any) -> Any:
        x = np.asarray(x)
        shape = shapes.get(x.shape)
        if shape is None:
            lengths = dict(zip(places, (x.shape[a] for a in kept), strict=True))
            shape = shapes[x.shape] = tuple(lengths.get(a, 1) for a in range(rank))
        return x.reshape(shape)

    return apply


def _broadcast(eqn: Any) -> Callable:
    kept = range(len(_in(eqn)))
    return _moved_axes(len(eqn.params["shape"]), kept, eqn.params["broadcast_dimensions"])


def _reshape(eqn: Any) -> Callable:
    before, after = _in(eqn), _out(eqn)
    kept = [a for a, length in enumerate(before) if length != 1]
    if [before[a] for a in kept] != [length for length in after if length != 1]:
        return lambda x, *_sizes: _long(x, before).reshape(after)
    places = [a for a, length in enumerate(after) if length != 1]
    return _moved_axes(len(after), kept, places)  # axes of length 1 come and go


def _transpose(eqn: Any) -> Callable:
    return lambda x: np.transpose(x, eqn.params["permutation"])


def _slice(eqn: Any) -> Callable:
    p, full = eqn.params, _in(eqn)
    strides = p["strides"] or [1] * len(full)
    parts = list(map(slice, p["start_indices"], p["limit_indices"], strides))
    if any(part.start >= part.stop for part in parts):
        return lambda x: _long(x, full)[tuple(parts)]
    whole = slice(None)

    cuts: dict[Shape, Any] = {}

    def apply(x: np.ndarray) -> np.ndarray:
        cut = cuts.get(x.shape)
        if cut is None:
            cut = tuple(whole if n == 1 else part for n, part in zip(x.shape, parts, strict=True))
            cuts[x.shape] = cut
        return x[cut]

    return apply


def _pad(eqn: Any) -> Callable:
    before, after, config = _in(eqn), _out(eqn), eqn.params["padding_config"]
    padded = [a for a, c in enumerate(config) if tuple(c) != (0, 0, 0)]
    into, taken = [slice(None)] * len(before), [slice(None)] * len(before)
    for a in padded:
        low, _high, inner = config[a]
        at = low + (inner + 1) * np.arange(before[a])
        inside = np.flatnonzero((at >= 0) & (at < after[a]))
        first, last = (inside[0], inside[-1]) if len(inside) else (0, -1)
        taken[a] = slice(first, last + 1)
        begin = max(0, low + (inner + 1) * first)
        into[a] = slice(begin, begin + (inner + 1) * (last - first) + 1, inner + 1)

    into, taken = tuple(into), tuple(taken)

    def apply(x: Any, filling: Any) -> Any:
        x = _long(x, before, padded)
        shape = [after[a] if a in padded else n for a, n in enumerate(x.shape)]
        found = np.empty(shape, x.dtype)
        found[...] = filling
        found[into] = x[taken]
        return found

    return apply


def _concatenate(eqn: Any) -> Callable:
    axis, lengths = (
        eqn.params["dimension"],
        [v.aval.shape[eqn.params["dimension"]] for v in eqn.invars],
    )
    ends = np.cumsum(lengths)
    whole = (slice(None),) * axis
    parts = [(*whole, slice(e - n, e)) for e, n in zip(ends, lengths)]

    def apply(*xs: Any) -> Any:
        shape = [max(sizes) for sizes in zip(*[x.shape for x in xs])]
        shape[axis] = ends[-1]
        found = np.empty(shape, xs[0].dtype)
        for part, x in zip(parts, xs):
            found[part] = x
        return found

    return apply


def _iota(eqn: Any) -> Callable:
    shape, axis = eqn.params["shape"], eqn.params["dimension"]
    found = np.arange(shape[axis], dtype=eqn.params["dtype"])
    found = found.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return lambda *_sizes: found


def _reverse(eqn: Any) -> Callable:
    return lambda x: np.flip(x, eqn.params["dimensions"])


def _squeeze(eqn: Any) -> Callable:
    return lambda x: np.squeeze(x, tuple(eqn.params["dimensions"]))


def _stack(eqn: Any) -> Callable:
    return lambda *xs: np.stack(np.broadcast_arrays(*xs), eqn.params["axis"])


def _unstack(eqn: Any) -> Callable:
    axis, full = eqn.params["axis"], _in(eqn)
    return lambda x: tuple(np.moveaxis(_long(x, full, [axis]), axis, 0))


def _split(eqn: Any) -> Callable:
    axis, full = eqn.params["axis"], _in(eqn)
    cuts = np.cumsum(eqn.params["sizes"])[:-1]
    return lambda x: tuple(np.split(_long(x, full, [axis]), cuts, axis))


def _dynamic_slice(eqn: Any) -> Callable:
    full, sizes = _in(eqn), eqn.params["slice_sizes"]

    def apply(x: Any, *starts: Any) -> Any:
        begins = [int(np.clip(s, 0, n - k)) for s, n, k in zip(starts, full, sizes)]
        return _long(x, full)[tuple(slice(b, b + k) for b, k in zip(begins, sizes))]

    return apply


def _dynamic_update_slice(eqn: Any) -> Callable:
    full, sizes = _in(eqn), _in(eqn, 1)

    def apply(x: Any, new: Any, *starts: Any) -> Any:
        begins = [int(np.clip(s, 0, n - k)) for s, n, k in zip(starts, full, sizes)]
        found = np.array(_long(x, full))
        found[tuple(slice(b, b + k) for b, k in zip(begins, sizes))] = new
        return found

    return apply


# ------------------------------------------------------------------------------- along an axis


def _reduce(ufunc: Any, eqn: Any) -> Callable:
    full, axes = _in(eqn), tuple(eqn.params["axes"])

    counts: dict[Shape, int] = {}

    def apply(x: Any) -> Any:
        times = counts.get(x.shape)
        if times is None:
            times = counts[x.shape] = prod(full[a] for a in axes if x.shape[a] == 1)
        found = ufunc.reduce(x, axis=axes, dtype=x.dtype)
        if times == 1 or ufunc not in (np.add, np.multiply):
            return found
        return found * x.dtype.type(times) if ufunc is np.add else found**times

    return apply


def _cumulate(ufunc: Any, eqn: Any) -> Callable:
    full, axis, reverse = _in(eqn), eqn.params["axis"], eqn.params["reverse"]

    def apply(x: Any) -> Any:
        x = _long(x, full, [axis])
        if reverse:
            return np.flip(ufunc.accumulate(np.flip(x, axis), axis=axis), axis)
        return ufunc.accumulate(x, axis=axis)

    return apply


def _argument(find: Callable, eqn: Any) -> Callable:
    full, (axis,), dtype = _in(eqn), eqn.params["axes"], eqn.params["index_dtype"]
    return lambda x: find(_long(x, full), axis).astype(dtype)


def _dot(eqn: Any) -> Callable:
    (lc, rc), (lb, rb) = eqn.params["dimension_numbers"]
    left, right = _in(eqn), _in(eqn, 1)
    lf = [a for a in range(len(left)) if a not in (*lc, *lb)]
    rf = [a for a in range(len(right)) if a not in (*rc, *rb)]
    inner = prod(left[a] for a in lc)

    def apply(x: Any, y: Any) -> Any:
        x, y = _long(x, left, lc), _long(y, right, rc)
        free, others = [x.shape[a] for a in lf], [y.shape[a] for a in rf]
        x = np.transpose(x, (*lb, *lf, *lc))
        y = np.transpose(y, (*rb, *rc, *rf))
        x = x.reshape(*x.shape[: len(lb)], prod(free), inner)
        y = y.reshape(*y.shape[: len(rb)], inner, prod(others))
        found = np.matmul(x, y)
        return found.reshape(*found.shape[: len(lb)], *free, *others)

    return apply


def _cholesky(eqn: Any) -> Callable:
    full = _in(eqn)

    def one(a: np.ndarray) -> np.ndarray:
        try:
            return np.linalg.cholesky(a)
        except np.linalg.LinAlgError:
            return np.full_like(a, np.nan)

    def apply(x: Any) -> Any:
        x = _long(x, full)
        if eqn.params.get("symmetrize_input", False):
            x = (x + np.swapaxes(x, -1, -2)) / 2
        try:
            return np.linalg.cholesky(x)
        except np.linalg.LinAlgError:  # one of many is not positive definite
            return np.stack([one(a) for a in x.reshape(-1, *x.shape[-2:])]).reshape(x.shape)

    return apply


def _triangular_solve(eqn: Any) -> Callable:
    p, full, other = eqn.params, _in(eqn), _in(eqn, 1)

    def apply(a: Any, b: Any) -> Any:
        a, b = _long(a, full), _long(b, other)
        a = np.tril(a) if p["lower"] else np.triu(a)
        if p["unit_diagonal"]:
            a = a + np.eye(a.shape[-1], dtype=a.dtype) * (1 - a)
        if p["transpose_a"]:
            a = np.swapaxes(a, -1, -2)
        swap = (lambda x: x) if p["left_side"] else (lambda x: np.swapaxes(x, -1, -2))
        try:
            return swap(np.linalg.solve(swap(a), swap(b)))
        except np.linalg.LinAlgError:
            return np.full_like(b, np.nan)

    return apply


MAKERS: dict[str, Callable[[Any], Callable]] = {
    **{name: (lambda eqn, f=f: f) for name, f in _OF_ENTRIES.items()},
    "argmax": partial(_argument, np.argmax), "argmin": partial(_argument, np.argmin),
    "broadcast_in_dim": _broadcast, "cholesky": _cholesky, "concatenate": _concatenate,
    "convert_element_type": _convert, "cumlogsumexp": partial(_cumulate, np.logaddexp),
    "cummax": partial(_cumulate, np.maximum), "cummin": partial(_cumulate, np.minimum),
    "cumprod": partial(_cumulate, np.multiply), "cumsum": partial(_cumulate, np.add),
    "div": _divide, "dot_general": _dot, "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice, "gather": gather, "integer_pow": _powers,
    "iota": _iota, "optimization_barrier": lambda eqn: lambda *xs: xs, "pad": _pad,
    "reduce_and": partial(_reduce, np.logical_and), "reduce_max": partial(_reduce, np.maximum),
    "reduce_min": partial(_reduce, np.minimum), "reduce_or": partial(_reduce, np.logical_or),
    "reduce_prod": partial(_reduce, np.multiply), "reduce_sum": partial(_reduce, np.add),
    "reshape": _reshape, "rev": _reverse, "round": _round, "scatter-add": scatter_add,
    "select_n": _select,
    "slice": _slice, "split": _split, "squeeze": _squeeze, "stack": _stack,
    "transpose": _transpose, "triangular_solve": _triangular_solve, "unstack": _unstack,
}  # fmt: skip
