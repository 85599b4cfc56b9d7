"""Takes an operation that moves entries; gives the function of NumPy arrays that does the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from asvi.density.numpy_backend.broadcasting import (
    Shape,
    lengthened,
    one_or_all,
    shape_in,
    shape_out,
)
from asvi.density.numpy_backend.indexing import gather, scatter, scatter_add
from asvi.density.numpy_backend.no_rule import NoNumpyRule

__all__ = ["OF_PLACES", "as_it_is", "moved_twice"]


def as_it_is(x: Any, *_sizes: Any) -> Any:
    """The axes are where they are."""
    return x


@cache
def _moved_axes(before: int, rank: int, kept: tuple[int, ...], places: tuple[int, ...]) -> Callable:
    """Reshapes so that axes ``kept`` of ``before`` are at ``places`` of ``rank``, others short."""
    if before == rank and kept == places == (*range(rank),):
        return as_it_is
    shapes: dict[Shape, Shape] = {}  # few are met, and often

    def apply(x: Any, *_sizes: Any) -> Any:
        shape = shapes.get(x.shape)
        if shape is None:
            lengths = dict(zip(places, (x.shape[a] for a in kept), strict=True))
            shape = shapes[x.shape] = tuple(lengths.get(a, 1) for a in range(rank))
        return x.reshape(shape)

    apply.moves = before, rank, kept, places
    return apply


def moved_twice(first: Callable, then: Callable) -> Callable | None:
    """One function for two that move axes, the one after the other; None where they do more."""
    if not (hasattr(first, "moves") and hasattr(then, "moves")):
        return None
    (before, _, origins, middle), (_, rank, kept, places) = first.moves, then.moves
    origin = dict(zip(middle, origins, strict=True))
    pairs = [(origin[a], place) for a, place in zip(kept, places, strict=True) if a in origin]
    origins, places = tuple(zip(*pairs, strict=True)) or ((), ())
    return _moved_axes(before, rank, origins, places)


def _broadcast(eqn: Any) -> Callable:
    shape = eqn.params["shape"]
    if 0 in shape:  # no axis of length 1 stands for one of none
        return lambda x, *_sizes: np.zeros(shape, x.dtype)
    kept = tuple(range(len(shape_in(eqn))))
    return _moved_axes(len(kept), len(shape), kept, tuple(eqn.params["broadcast_dimensions"]))


def _reshape(eqn: Any) -> Callable:
    before, after = shape_in(eqn), shape_out(eqn)
    if 0 in before:
        return lambda x, *_sizes: np.zeros(after, x.dtype)
    order = eqn.params["dimensions"]
    if order is not None:  # transposed first
        return lambda x, *_sizes: np.transpose(lengthened(x, before), order).reshape(after)
    kept = tuple(a for a, length in enumerate(before) if length != 1)
    if [before[a] for a in kept] != [length for length in after if length != 1]:
        return lambda x, *_sizes: lengthened(x, before).reshape(after)
    places = tuple(a for a, length in enumerate(after) if length != 1)
    return _moved_axes(len(before), len(after), kept, places)  # axes of length 1 come and go


def _transpose(eqn: Any) -> Callable:
    return lambda x: np.transpose(x, eqn.params["permutation"])


def _slice(eqn: Any) -> Callable:
    p, full = eqn.params, shape_in(eqn)
    strides = p["strides"] or (1,) * len(full)
    ends = zip(p["start_indices"], p["limit_indices"], strides, strict=True)
    return _part(full, tuple(map(tuple, ends)))


@cache
def _part(full: Shape, ends: tuple[tuple[int, int, int], ...]) -> Callable:
    parts = [slice(*each) for each in ends]
    if any(part.start >= part.stop for part in parts):
        return lambda x: lengthened(x, full)[tuple(parts)]
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
    before, after, config = shape_in(eqn), shape_out(eqn), eqn.params["padding_config"]
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
        x = lengthened(x, before, padded)
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
    found = np.broadcast_to(found, shape) if 0 in shape else found
    return lambda *_sizes: found


def _reverse(eqn: Any) -> Callable:
    return lambda x: np.flip(x, eqn.params["dimensions"])


def _squeeze(eqn: Any) -> Callable:
    return lambda x: np.squeeze(x, tuple(eqn.params["dimensions"]))


def _stack(eqn: Any) -> Callable:
    return lambda *xs: np.stack(np.broadcast_arrays(*xs), eqn.params["axis"])


def _unstack(eqn: Any) -> Callable:
    axis, full = eqn.params["axis"], shape_in(eqn)
    return lambda x: one_or_all(tuple(np.moveaxis(lengthened(x, full, [axis]), axis, 0)))


def _split(eqn: Any) -> Callable:
    axis, full = eqn.params["axis"], shape_in(eqn)
    cuts = np.cumsum(eqn.params["sizes"])[:-1]
    return lambda x: one_or_all(np.split(lengthened(x, full, [axis]), cuts, axis))


def _dynamic_slice(eqn: Any) -> Callable:
    full, sizes = shape_in(eqn), eqn.params["slice_sizes"]
    within = _moved_inside(eqn.invars[1:], full, sizes)
    return lambda x, *starts: lengthened(x, full)[within(starts)]


def _dynamic_update_slice(eqn: Any) -> Callable:
    full = shape_in(eqn)
    within = _moved_inside(eqn.invars[2:], full, shape_in(eqn, 1))

    def apply(x: Any, new: Any, *starts: Any) -> Any:
        found = np.array(lengthened(x, full))
        found[within(starts)] = new
        return found

    return apply


def _moved_inside(starts: Any, full: Shape, sizes: Shape) -> Callable:
    """Where a window is that begins at these places, or at the nearest where it is inside.

    (The compiler takes some unsigned places for negative ones, and wraps narrow ones around.)
    """
    last = [n - k for n, k in zip(full, sizes)]
    for most, v in zip(last, starts):
        if v.aval.dtype.kind == "u" or most > np.iinfo(v.aval.dtype).max:
            raise NoNumpyRule(f"NumPy does not slice {max(full)} entries at {v.aval.dtype}")

    def apply(starts: Any) -> tuple[slice, ...]:
        begins = [min(max(int(s), 0), most) for s, most in zip(starts, last)]
        return tuple(slice(b, b + k) for b, k in zip(begins, sizes))

    return apply


OF_PLACES: dict[str, Callable[[Any], Callable]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": gather,
    "iota": _iota,
    "optimization_barrier": lambda eqn: lambda *xs: one_or_all(xs),
    "pad": _pad,
    "reshape": _reshape,
    "rev": _reverse,
    "scatter": scatter,
    "scatter-add": scatter_add,
    "slice": _slice,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "transpose": _transpose,
    "unstack": _unstack,
}
