"""Takes data frames and series of pandas; gives them as JSON and arrays, and back.

Columns of numbers, times and categories are arrays; others are written value by value.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["from_json", "replaced", "to_json"]


class _Column(NamedTuple):
    """``array`` holds its numbers, if it has any; ``about`` what else makes it."""

    about: dict[str, Any]
    array: np.ndarray | None


def _split(x: Any) -> _Column:
    """A series or an index in its parts."""
    dtype = x.dtype
    if hasattr(dtype, "categories"):
        categorical = x.cat if hasattr(x, "cat") else x
        categories = [_plain(v) for v in dtype.categories]
        about = {"categories": categories, "ordered": bool(dtype.ordered)}
        return _Column(about, np.array(categorical.codes))
    if isinstance(dtype, np.dtype) and dtype.kind in "Mm":
        return _Column({"times": str(dtype)}, np.asarray(x).view(np.int64))
    if isinstance(dtype, np.dtype) and dtype.kind in "biufc":
        return _Column({}, np.asarray(x))
    return _Column({"values": [_plain(v) for v in x], "dtype": str(dtype)}, None)


def _plain(x: Any) -> Any:
    return x.item() if isinstance(x, np.generic) else x


def _pandas_column(column: _Column) -> Any:
    """What a data frame takes as a column, or as its index."""
    about, array = column
    pandas: Any = importlib.import_module("pandas")
    if array is None:
        return pandas.array(about["values"], dtype=about["dtype"])
    if "categories" in about:
        dtype = pandas.CategoricalDtype(about["categories"], about["ordered"])
        return pandas.Categorical.from_codes(array, dtype=dtype)
    return array.view(about["times"]) if "times" in about else array


def _columns(x: Any) -> list[_Column]:
    return [_split(x)] if x.ndim == 1 else [_split(x.iloc[:, k]) for k in range(x.shape[1])]


def _put_together(kind: str, names: list[Any], columns: list[_Column], index: Any) -> Any:
    pandas: Any = importlib.import_module("pandas")
    if kind == "Series":
        return pandas.Series(_pandas_column(columns[0]), index=index, name=names[0])
    found = pandas.DataFrame(dict(enumerate(map(_pandas_column, columns))), index=index)
    found.columns = names
    return found


def replaced(x: Any, array: Callable[[Any], Any]) -> Any:
    """A table with other numbers, of the same kinds."""
    columns = [c if c.array is None else _Column(c.about, array(c.array)) for c in _columns(x)]
    names = [x.name] if x.ndim == 1 else x.columns
    return _put_together("Series" if x.ndim == 1 else "DataFrame", names, columns, x.index)


def to_json(x: Any, walk: Callable[[Any], Any]) -> dict[str, Any]:
    """The table by what ``walk`` makes of its parts."""

    def pair(column: _Column) -> list[Any]:
        return [walk(column.about), None if column.array is None else walk(column.array)]

    kind, columns = ("Series", [x.name]) if x.ndim == 1 else ("DataFrame", list(x.columns))
    pairs = list(map(pair, _columns(x)))  # arrays are counted in this order
    index = _Column({"values": [_plain(v) for v in x.index], "dtype": "object"}, None)
    if isinstance(x.index.dtype, np.dtype) and x.index.dtype.kind in "Mm":
        about = {"ticks": x.index.asi8.tolist(), "times": str(x.index.dtype)}
        index = _Column(about, None)
    return {kind: pairs, "names": walk(columns), "index": pair(index)}


def from_json(stored: dict[str, Any], walk: Callable[[Any], Any]) -> Any:
    """The table again."""

    def column(pair: Any) -> _Column:
        return _Column(walk(pair[0]), None if pair[1] is None else walk(pair[1]))

    kind = "Series" if "Series" in stored else "DataFrame"
    columns, names = list(map(column, stored[kind])), walk(stored["names"])
    about = column(stored["index"]).about
    if "times" in about:
        index = np.array(about["ticks"], np.int64).view(about["times"])
    else:
        index = about["values"]
    return _put_together(kind, names, columns, index)
