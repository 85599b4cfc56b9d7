"""Takes a gather or a scatter of a traced program; gives the function of NumPy arrays.

Both look at windows of an array, whose places the indices tell. Here each axis of the array has an
index of its own, of the shape of what is read or written: NumPy's way to say the same. Axes that
windows take whole may have length 1 where all entries along them are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["gather", "scatter", "scatter_add"]


def gather(eqn: Any, blank: Any = None) -> Callable:
    """Windows read from an array; ``blank`` is in place of those that are not inside."""
    p, (full, places) = eqn.params, [v.aval.shape for v in eqn.invars]
    numbers = p["dimension_numbers"]
    windows = _Windows(
        full,
        places,
        len(eqn.outvars[0].aval.shape),
        numbers.offset_dims,
        numbers.collapsed_slice_dims,
        dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims)),
        numbers.start_index_map,
        p["slice_sizes"],
    )
    filled, blank = _drops(p["mode"]), p["fill_value"] if blank is None else blank

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
        floating = np.issubdtype(x.dtype, np.inexact)
        empty = blank if blank is not None else np.nan if floating else np.iinfo(x.dtype).min
        return np.where(inside, found, np.asarray(empty, x.dtype))

    return apply


def scatter_add(eqn: Any) -> Callable:
    """Windows added to an array."""
    return _scatter(eqn, adding=True)


def scatter(eqn: Any) -> Callable:
    """Windows written over those of an array."""
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
    )
    dropped = _drops(p["mode"])

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
                sums = np.add.reduceat(new[..., order], begins, axis=-1)
                np.moveaxis(found, windows.axis, -1)[..., groups] += sums
            return found
        where, inside = windows(indices, shape)
        if dropped and not inside.all():
            new = np.where(inside, new, np.zeros((), new.dtype) if adding else found[where])
        if adding:
            np.add.at(found, where, new)
        else:
            found[where] = new
        return found

    return apply


def _drops(mode: Any) -> bool:
    """Whether windows that are not inside are filled, or dropped, rather than moved inside."""
    return "FILL_OR_DROP" in str(mode)


class _Windows:
    """Where windows lie: an index for each axis of the array, and whether all of one is inside.

    :param full: shape of the array; ``places`` that of the indices.
    :param rank: axes of what is read or written.
    :param window_axes: which of these run over a window.
    :param collapsed: axes of the array along which windows have length 1 and no axis of their own.
    :param batching: axes of the array that go along with an axis of the indices.
    :param moved: axis of the array that each number of an index moves a window along.
    :param sizes: lengths of a window along the array's axes.
    """

    def __init__(self, full, places, rank, window_axes, collapsed, batching, moved, sizes):
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
        return np.clip(begin, 0, last), (begin >= 0) & (begin <= last)

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
            where[axis] = where[axis] + np.clip(begin, 0, last)
        return tuple(where), inside
