"""Takes a model and its arguments; gives calls of the model with the user's own objects.

Arguments are never taken apart and put together again: dicts keep their order, named tuples and
data frames their type, NumPy arrays their precision until the model itself gives them to JAX.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.errors import AsviError, DataWarning, ModelError, warn_user
from asvi.program.argument_copies import Kept
from asvi.program.columns import as_array, columns_of, is_at_fault, is_column, is_table

__all__ = ["Arguments", "arrays_in", "check_arrays", "leaves_by_parameter", "with_arrays"]


class Arguments:
    """What a model is called with; ``args, kwargs = arguments`` gives it.

    >>> args, kwargs = Arguments((np.zeros(3), "linear"), {"scale": 2.0})
    >>> args[1], kwargs
    ('linear', {'scale': 2.0})
    """

    def __init__(self, args: tuple, kwargs: dict[str, Any], has_data: bool = True):
        self.args, self.kwargs, self.has_data = args, kwargs, has_data

    def __iter__(self) -> Iterator[Any]:
        return iter((self.args, self.kwargs))

    def require_data(self, what: str) -> None:
        """Raise where ``what`` was asked of a fit that was loaded from a file without its data."""
        if not self.has_data:
            raise AsviError(
                f"{what} needs the training data, and this fit was loaded from a file, which has "
                'none.\nWrite instead:\n    asvi.load("fit.asvi", model, *data)'
            )

    def calling(
        self, model: Callable, first_call: Callable[[Callable], Any]
    ) -> tuple[Callable, Any]:
        """The model to call from here on, and what a ``first_call`` of it gave.

        It is called with the user's own objects. Where it computes with a column of pandas, polars
        or xarray as with an array, which JAX does not, it gets arrays in place of columns, from
        here on, and a warning says so: rows are no longer matched by their labels, and ``x.std()``
        is NumPy's.
        """
        try:
            return self._unchanged(model, first_call)
        except Exception as failure:
            columns, table = self._misused(failure)
            if columns:
                try:
                    found = self._unchanged(_Prepared(model, with_arrays), first_call)
                    self._say_what_are_arrays()
                    return found
                except Exception as again:
                    if not isinstance(again.__cause__, AttributeError):  # it wants its columns
                        failure, table = again, self._misused(again)[1]
            if table is not None:
                raise _table_misused(*table) from failure
            raise failure

    def _say_what_are_arrays(self) -> None:
        columns = [name for name, leaf in _leaves_in(self.args, self.kwargs) if is_column(leaf)]
        warn_user(
            f"{', '.join(columns)}: JAX cannot compute with columns as this model does, so it gets "
            "their numbers as NumPy arrays (rows by position, not by label; std() with ddof=0).\n"
            'To say so yourself:\n    asvi.fit(model, df["x"].to_numpy(), ...)',
            DataWarning,
        )

    def _misused(self, failure: Exception) -> tuple[bool, tuple[str, Any] | None]:
        """Whether columns are at fault, and the table that is, with its name."""
        columns, tables = False, []
        for name, leaf in _leaves_in(self.args, self.kwargs):
            if (is_column(leaf) or is_table(leaf)) and is_at_fault(leaf, failure):
                columns |= is_column(leaf)
                tables += [(name, leaf)] if is_table(leaf) else []
        return columns, next(iter(tables), None)

    def _unchanged(
        self, model: Callable, first_call: Callable[[Callable], Any]
    ) -> tuple[Callable, Any]:
        """The same, for a model that may change its arguments in place.

        It would meet other data at its next call. Where the first call shows that it does, they
        are put back, and later calls get copies.
        """
        kept = Kept((self.args, self.kwargs))
        try:
            found = first_call(model)
        finally:
            has_changed = kept.put_back()
        if not has_changed:
            return model, found
        model = _Prepared(model, copy.deepcopy)
        return model, first_call(model)


class _Prepared:
    """A model that is called with what ``prepare`` makes of its arguments."""

    def __init__(self, model: Callable, prepare: Callable[[Any], Any]):
        self.model, self.prepare = model, prepare
        functools.update_wrapper(self, model, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self.prepare((args, kwargs))
        return self.model(*args, **kwargs)


def with_arrays(x: Any) -> Any:
    """Arguments with arrays in place of columns, however deep; all else is as it is."""
    if is_column(x):
        return as_array(x)
    if not any(is_column(leaf) for _, leaf in _within(x)):
        return x
    if isinstance(x, dict):
        found = copy.copy(x)
        found.update({name: with_arrays(part) for name, part in x.items()})
        return found
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*map(with_arrays, x))
    if isinstance(x, list | tuple):
        return type(x)(map(with_arrays, x))
    found = copy.copy(x)
    for field in dataclasses.fields(x):
        object.__setattr__(found, field.name, with_arrays(getattr(x, field.name)))
    return found


def _table_misused(name: str, table: Any) -> ModelError:
    column = next((column for column, _ in columns_of(table)), "x")
    return ModelError(
        f"{name} is a {type(table).__name__}, and the model computes with it, or with a column of "
        "it, as with an array, which JAX does not take.\nWrite instead:\n"
        f'    asvi.fit(model, df["{column}"], ...)   # a column at a time\n'
        f'    x = jnp.asarray(df["{column}"])   # or, in the model, what it takes out of the table'
    )


def arrays_in(args: tuple, kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Arrays among the arguments, however deep, and how a user would call each.

    >>> [name for name, _ in arrays_in((np.zeros(1),), {"data": {"x": [np.ones(2)]}})]
    ['argument 1', "argument `data['x'][0]`"]
    """
    for name, x in _leaves_in(args, kwargs):
        if isinstance(x, np.ndarray | jax.Array):
            yield name, x


def _leaves_in(args: tuple, kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """All that is no container of arguments, with its name."""
    for k, x in enumerate(args):
        for inner, leaf in _within(x):
            yield f"argument {k + 1}{inner}", leaf
    for name, x in kwargs.items():
        for inner, leaf in _within(x):
            yield f"argument `{name}{inner}`", leaf


def _within(x: Any) -> Iterator[tuple[str, Any]]:
    parts: Any = ()
    if isinstance(x, dict):
        parts = ((f"[{k!r}]", v) for k, v in x.items())
    elif isinstance(x, tuple) and hasattr(x, "_fields"):
        parts = ((f".{k}", v) for k, v in zip(x._fields, x, strict=True))
    elif isinstance(x, list | tuple):
        parts = ((f"[{k}]", v) for k, v in enumerate(x))
    elif dataclasses.is_dataclass(x) and not isinstance(x, type):
        parts = ((f".{f.name}", getattr(x, f.name)) for f in dataclasses.fields(x))
    else:
        yield "", x
    for name, part in parts:
        for inner, array in _within(part):
            yield name + inner, array


def leaves_by_parameter(
    args: tuple, kwargs: dict[str, Any], model: inspect.Signature | None = None
) -> Iterator[tuple[str, Any]]:
    """All that is no container of arguments, each with where it is, by the model's own names.

    >>> model = inspect.signature(lambda data, *rest: None)
    >>> dict(leaves_by_parameter(({"x": 1}, 2), {}, model))
    {"data['x']": 1, 'rest[0]': 2}
    """
    named: dict[str, Any] = {f"argument_{k + 1}": x for k, x in enumerate(args)} | kwargs
    if model is not None:
        with suppress(TypeError):  # a wrapper may say another signature than it has
            named = dict(model.bind(*args, **kwargs).arguments)
    for name, x in named.items():
        for inner, leaf in _within(x):
            yield name + inner, leaf


def check_arrays(args: tuple, kwargs: dict[str, Any]) -> None:
    """Raise where an array holds no numbers, or an argument can be read but once."""
    for name, x in _leaves_in(args, kwargs):
        if isinstance(x, Iterator):
            raise ModelError(
                f"{name} is a {type(x).__name__}, which the first call of the model uses up; a "
                "model is called more than once.\nWrite instead:\n"
                f"    {_short(name)} = list({_short(name)})"
            )
        if isinstance(x, np.ndarray) and x.dtype.kind not in "biufc" and not _is_extended(x):
            raise ModelError(
                f"{name} is an array of {x.dtype} (first entry {x.ravel()[:1].tolist()}), and a "
                "model computes with numbers.\nWrite instead:\n    "
                f"{_short(name)} = np.asarray(..., dtype=float)   # codes for "
                "names: pandas.factorize(column)[0]"
            )


def _short(name: str) -> str:
    """How an argument is called in a line of code."""
    return name.split(" ", 1)[-1].strip("`") if "`" in name else "data"


def _is_extended(x: np.ndarray) -> bool:
    """Whether these are numbers of a type that JAX adds to NumPy's, like bfloat16."""
    return bool(jnp.issubdtype(x.dtype, np.number))
