"""Takes arguments of a model; gives them back as they were, if a call has changed them in place.

>>> import numpy as np
>>> given = {"y": np.ones(2), "steps": [1, 2]}
>>> kept = Kept(given)
>>> given["y"] *= 2
>>> given["steps"].pop()
2
>>> kept.put_back(), given["y"].tolist(), given["steps"], kept.put_back()
(True, [1.0, 1.0], [1, 2], False)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Kept", "is_pandas"]


class Kept:
    """What containers and arrays held, however deep; other objects are left alone."""

    def __init__(self, x: Any):
        self._restore: list[Callable[[], bool]] = []
        self._seen: dict[int, Any] = {}
        self._keep(x)

    def put_back(self) -> bool:
        """Undo all changes; gives whether there were any."""
        changed = [restore() for restore in self._restore]
        return any(changed)

    def _keep(self, x: Any) -> None:
        if id(x) in self._seen:
            return
        self._seen[id(x)] = x  # kept alive: another object may not get its place
        parts: Any = ()
        if isinstance(x, np.ndarray):
            if x.flags.writeable:
                self._restore.append(_array(x))
        elif is_pandas(x):
            self._restore.append(_frame(x))
        elif _is_xarray(x):
            inner = x.data_vars.values() if hasattr(x, "data_vars") else [x]
            parts = [part.data for part in inner]
        elif isinstance(x, dict):
            self._restore.append(_dict(x))
            parts = x.values()
        elif isinstance(x, list):
            self._restore.append(_list(x))
            parts = x
        elif isinstance(x, tuple):
            parts = x
        elif dataclasses.is_dataclass(x) and not isinstance(x, type) and hasattr(x, "__dict__"):
            self._restore.append(_dict(vars(x)))
            parts = vars(x).values()
        for part in list(parts):
            self._keep(part)


def is_pandas(x: Any) -> bool:
    """Whether this is a series or a data frame; without importing pandas."""
    return (
        type(x).__module__.partition(".")[0] == "pandas"
        and hasattr(x, "ndim")
        and hasattr(x, "index")
    )


def _is_xarray(x: Any) -> bool:
    return type(x).__module__.partition(".")[0] == "xarray" and hasattr(x, "dims")


def _array(x: np.ndarray) -> Callable[[], bool]:
    before = x.copy()

    def restore() -> bool:
        if x.tobytes() == before.tobytes():
            return False
        x[...] = before
        return True

    return restore


def _dict(x: dict) -> Callable[[], bool]:
    before = dict(x)

    def restore() -> bool:
        if list(x) == list(before) and all(x[k] is v for k, v in before.items()):
            return False
        x.clear()
        x.update(before)
        return True

    return restore


def _list(x: list) -> Callable[[], bool]:
    before = list(x)

    def restore() -> bool:
        if len(x) == len(before) and all(a is b for a, b in zip(x, before, strict=True)):
            return False
        x[:] = before
        return True

    return restore


def _frame(x: Any) -> Callable[[], bool]:
    before = x.copy()

    def restore() -> bool:
        if x.equals(before) and (x.ndim == 1 or list(x.columns) == list(before.columns)):
            return False
        if x.ndim == 1:
            x[:] = before
            return True
        for name in [c for c in x.columns if c not in before.columns]:
            del x[name]
        for place, name in enumerate(before.columns):
            if name in x.columns:
                x[name] = before[name]
            else:
                x.insert(place, name, before[name])
        return True

    return restore
