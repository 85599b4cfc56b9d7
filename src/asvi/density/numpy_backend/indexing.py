"""Takes a gather or a scatter of a traced program; gives the function of NumPy arrays.

Both look at windows of an array, whose places the indices tell. Here each axis of the array has an
index of its own, of the shape of what is read or written: NumPy's way to say the same. Axes that
windows take whole may have length 1 where all entries along them are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from asvi.density.numpy_backend.broadcasting import numpy_type
from asvi.density.numpy_backend.no_rule import NoNumpyRule

__all__ = ["gather", "mode_of", "scatter", "scatter_add"]


def gather(eqn: Any, blank: Any = None) -> Callable:
    """Windows read from an array; ``blank`` is in place of those that are not inside."""
    p, (full, places) = eqn.params, [v.aval.shape for v in eqn.invars]
    numbers, dtype = p["dimension_numbers"], numpy_type(eqn.outvars[0].aval)
    windows = _Windows(
        full,
        places,
        len(eqn.outvars[0].aval.shape),
        numbers.offset_dims,
        numbers.collapsed_slice_dims,
        dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims)),
        numbers.start_index_map,
        p["slice_sizes"],
        eqn.invars[1].aval.dtype,
    )
    filled = mode_of(eqn) == "FILL_OR_DROP"
    blank = p["fill_value"] if blank is None else blank
    empty = np.asarray(_blank(dtype) if blank is None else blank).astype(dtype)

    def apply(x: Any, indices: Any) -> Any:
        x, indices = windows.lengthened(x), np.broadcast_to(indices, places)
        if windows.is_list:
            where, inside = windows.listed(indices)
            found = np.moveaxis(np.take(x, where, windows.axis), windows.axis, windows.at)
            inside = windows.along(inside, windows.at)
        else:
            where, inside = windows(indices, x.shape)
            found = x[where]
        if not filled or inside.all():
            return found
        return np.where(inside, found, empty)

    return apply


def scatter_add(eqn: Any) -> Callable:
    """Windows added to an array."""
    return _scatter(eqn, adding=True)


def scatter(eqn: Any) -> Callable:
    """Windows written over those of an array."""
    update = eqn.params["update_jaxpr"]
    if update is not None and (update.eqns or update.outvars[0] is not update.invars[1]):
        raise NoNumpyRule("NumPy does not run 'scatter' of a function")
    return _scatter(eqn, adding=False)


def _scatter(eqn: Any, adding: bool) -> Callable:
    p, (full, places, updates) = eqn.params, [v.aval.shape for v in eqn.invars]
    numbers = p["dimension_numbers"]
    hidden = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    lengths = iter([updates[a] for a in sorted(numbers.update_window_dims)])
    windows = _Windows(
        full,
        places,
        len(updates),
        numbers.update_window_dims,
        numbers.inserted_window_dims,
        dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims)),
        numbers.scatter_dims_to_operand_dims,
        [1 if a in hidden else next(lengths) for a in range(len(full))],
        eqn.invars[1].aval.dtype,
    )
    dropped = mode_of(eqn) != "CLIP"

    def apply(x: Any, indices: Any, new: Any) -> Any:
        x, new, indices = np.asarray(x), np.asarray(new), np.broadcast_to(indices, places)
        # An axis that is taken whole is as long as the longer of the two.
        shape, wide = list(full), list(updates)
        for axis, at in windows.whole.items():
            shape[axis] = wide[at] = max(x.shape[axis], new.shape[at])
        found, new = np.array(np.broadcast_to(x, shape)), np.broadcast_to(new, wide)
        if windows.is_list:
            where, inside = windows.listed(indices)
            new = np.moveaxis(new, windows.at, -1)
            if dropped and not inside.all():
                where, new = where[inside], new[..., inside]
            if not adding:
                np.moveaxis(found, windows.axis, -1)[..., where] = new
            elif len(where):
                order = np.argsort(where, kind="stable")
                groups, begins = np.unique(where[order], return_index=True)
                sums = np.add.reduceat(new[..., order], begins, axis=-1, dtype=new.dtype)
                np.moveaxis(found, windows.axis, -1)[..., groups] += sums
            return found
        where, inside = windows(indices, shape)
        if dropped and not inside.all():
            kept = np.broadcast_to(inside, wide)
            where, new = tuple(np.broadcast_to(at, wide)[kept] for at in where), new[kept]
        if adding:
            np.add.at(found, where, new)
        else:
            found[where] = new
        return found

    return apply


def mode_of(eqn: Any) -> str:
    """What becomes of windows that are not inside.

    Those read are moved inside, or blank (FILL_OR_DROP); those written are moved inside (CLIP), or
    dropped, though it was promised that there are none.
    """
    mode = GatherScatterMode.from_any(eqn.params["mode"]).name
    if mode not in ("CLIP", "FILL_OR_DROP", "PROMISE_IN_BOUNDS"):
        raise NoNumpyRule(f"NumPy does not run {eqn.primitive.name!r} of mode {mode}")
    return mode


def _blank(dtype: Any) -> Any:
    """What JAX reads where there is nothing."""
    if np.issubdtype(dtype, np.inexact):
        return np.nan
    if np.issubdtype(dtype, np.bool_):
        return True
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.signedinteger) else np.iinfo(dtype).max


class _Windows:
    """Where windows lie: an index for each axis of the array, and whether all of one is inside.

    :param full: shape of the array; ``places`` that of the indices.
    :param rank: axes of what is read or written.
    :param window_axes: which of these run over a window.
    :param collapsed: axes of the array along which windows have length 1 and no axis of their own.
    :param batching: axes of the array that go along with an axis of the indices.
    :param moved: axis of the array that each number of an index moves a window along.
    :param sizes: lengths of a window along the array's axes.
    :param dtype: of the indices. (What the compiler makes of an axis longer than these can count
        is no number to be had again.)
    """

    def __init__(self, full, places, rank, window_axes, collapsed, batching, moved, sizes, dtype):
        if any(full[a] - 1 > np.iinfo(dtype).max for a in moved):
            raise NoNumpyRule(f"NumPy does not index so many entries by {dtype}")
        self.full, self.sizes, self.moved, self.rank = full, sizes, moved, rank
        self.batching, self.batch = batching, [a for a in range(rank) if a not in window_axes]
        shown = [a for a in range(len(full)) if a not in collapsed and a not in batching]
        self.window = dict(zip(shown, sorted(window_axes), strict=True))
        #: Axes of the array that every window takes whole, and where they are shown.
        self.whole = {a: at for a, at in self.window.items() if a not in moved}
        self.shape = [places[self.batch.index(a)] if a in self.batch else 1 for a in range(rank)]
        #: Entries along one axis, at a list of places: the usual case, x[index].
        self.is_list = len(places) == 2 and tuple(collapsed) == tuple(moved) and len(moved) == 1
        self.is_list = self.is_list and not batching
        if self.is_list:
            self.axis, self.at = moved[0], self.batch[0]

    def lengthened(self, x: Any) -> np.ndarray:
        """The array, at its full length along all axes but those that windows take whole."""
        x = np.asarray(x)
        return np.broadcast_to(
            x, [x.shape[a] if a in self.whole else length for a, length in enumerate(self.full)]
        )

    def along(self, x: np.ndarray, axis: int) -> np.ndarray:
        return x.reshape([-1 if a == axis else 1 for a in range(self.rank)])

    def listed(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places along the one axis, (places,), and which are inside."""
        begin, last = indices[:, 0], self.full[self.axis] - 1
        return _within(begin, last), (begin >= 0) & (begin <= last)

    def __call__(self, indices: np.ndarray, shape: Any) -> tuple[tuple[Any, ...], np.ndarray]:
        where: list[Any] = [0] * len(self.full)
        for axis, at in self.window.items():
            length = shape[axis] if axis in self.whole else self.sizes[axis]
            where[axis] = self.along(np.arange(length), at)
        for axis, of in self.batching.items():
            where[axis] = self.along(np.arange(self.full[axis]), self.batch[of])
        inside = np.ones((1,) * self.rank, bool)
        for k, axis in enumerate(self.moved):
            begin, last = indices[..., k].reshape(self.shape), self.full[axis] - self.sizes[axis]
            inside = inside & (begin >= 0) & (begin <= last)
            where[axis] = where[axis] + _within(begin, last)
        return tuple(where), inside


def _within(begin: np.ndarray, last: int) -> np.ndarray:
    return np.minimum(np.maximum(begin, 0), last).astype(np.intp, copy=False)
