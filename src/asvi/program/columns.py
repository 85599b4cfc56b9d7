"""Takes columns and tables of pandas, polars or xarray; gives arrays, labels, and errors in words.

Whatever has ``__array__`` is an array to asvi. None of these libraries is imported here.

>>> class Column:
...     def __array__(self, dtype=None, copy=None):
...         return np.array([1.0, 2.0], dtype)
>>> is_column(Column()), is_column(np.ones(2)), as_array(Column()).tolist()
(True, False, [1.0, 2.0])
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from traceback import walk_tb
from typing import Any, NamedTuple

import jax
import numpy as np

from asvi.errors import ModelError

__all__ = [
    "Labels",
    "as_array",
    "columns_of",
    "is_at_fault",
    "is_column",
    "is_table",
    "labels_of",
]


class Labels(NamedTuple):
    """What the entries along an axis are called, and what the axis is, where it has a name."""

    values: np.ndarray
    name: str | None


def is_table(x: Any) -> bool:
    """Whether it has columns by name: a data frame, or a data set of xarray."""
    return not isinstance(x, dict | type) and (
        (hasattr(x, "columns") and hasattr(x, "__getitem__")) or hasattr(x, "data_vars")
    )


def is_column(x: Any) -> bool:
    """Whether it is an array by ``__array__`` alone: a series, or a data array of xarray."""
    return (
        hasattr(x, "__array__")
        and not isinstance(x, np.ndarray | np.generic | jax.Array | type)
        and not hasattr(x, "__jax_array__")
        and not is_table(x)
    )


def is_at_fault(x: Any, failure: BaseException) -> bool:
    """Whether a failure came out of the library that ``x`` is of, or is about its class."""
    library = type(x).__module__.partition(".")[0]
    while failure.__cause__ is not None:
        failure = failure.__cause__
    modules = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(failure.__traceback__)]
    if any(name.partition(".")[0] == library for name in modules):
        return True
    text, shape = str(failure), str(tuple(getattr(x, "shape", ())))
    is_index = isinstance(failure, IndexError) and "valid indices" in text
    is_named = type(x).__name__ in text or f"'{library}." in text
    return is_index or is_named or (is_table(x) and len(shape) > 2 and shape in text)


def columns_of(table: Any) -> Iterator[tuple[str, Any]]:
    """The columns of a table, by name."""
    names = table.data_vars if hasattr(table, "data_vars") else table.columns
    for name in names:
        yield str(name), table[name]


def as_array(x: Any, name: str = "data") -> np.ndarray:
    """The numbers of a column: of categories their codes, of missing whole numbers NaN."""
    codes = _codes(x)
    if codes is not None:
        if (codes < 0).any():
            raise ModelError(
                f"{name} is a column of categories, and {int((codes < 0).sum())} of its entries "
                "have none.\nWrite instead:\n"
                "    df = df.dropna()   # before the columns are taken out of it"
            )
        return codes
    array = np.asarray(x)
    if array.dtype.kind == "O":
        with suppress(TypeError, ValueError):
            array = np.asarray(x, dtype=float)
    if array.dtype.kind not in "biufc":
        raise ModelError(
            f"{name} is a column of {array.dtype} (first entry {array.ravel()[:1].tolist()}), and "
            "a model computes with numbers.\nWrite instead:\n"
            '    codes, names = pandas.factorize(df["x"])   # codes for the model'
        )
    return array


def _codes(x: Any) -> np.ndarray | None:
    if not hasattr(getattr(x, "dtype", None), "categories") or not _is_pandas(x):
        return None
    return np.array((x.cat if hasattr(x, "cat") else x).codes, dtype=np.int32)


def _is_pandas(x: Any) -> bool:
    return type(x).__module__.partition(".")[0] == "pandas"


# ------------------------------------------------------------------------------------------ labels


def labels_of(x: Any) -> Iterator[Labels]:
    """Names of entries that a column or table brings along: an index, coordinates, categories.

    >>> import pandas
    >>> towns = pandas.Series([1.0, 2.0], index=pandas.Index(["Ulm", "Bonn"], name="town"))
    >>> [(labels.name, labels.values.tolist()) for labels in labels_of(towns)]
    [('town', ['Ulm', 'Bonn'])]
    """
    if hasattr(x, "coords") and hasattr(x, "dims"):
        for name in x.dims:
            if name in x.coords:
                yield from _usable(np.asarray(x.coords[name]), name)
        return
    if not _is_pandas(x):
        return
    index = getattr(x, "index", None)
    if index is not None and type(index).__name__ not in ("RangeIndex", "MultiIndex"):
        yield from _usable(np.asarray(index), index.name)
    columns = [x[name] for name in x.columns] if _has_one_of_each(x) else [x]
    for column in columns:
        categories = getattr(getattr(column, "dtype", None), "categories", None)
        if categories is not None:
            yield from _usable(np.asarray(categories), getattr(column, "name", None))


def _has_one_of_each(x: Any) -> bool:
    return is_table(x) and x.columns.is_unique


def _usable(values: np.ndarray, name: Any) -> Iterator[Labels]:
    """Labels, where no two are the same."""
    if values.dtype.kind == "O" or values.dtype.kind not in "biufUSMm":
        values = np.array([str(v) for v in values])
    if len(np.unique(values)) == len(values):
        yield Labels(values, None if name is None else str(name))
