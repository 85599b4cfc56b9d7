"""Takes a file of data and ``name=value`` words; gives the model's arguments (command line)."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from asvi.errors import AsviError
from asvi.fitting.request import DEFAULTS
from asvi.program.options import parameters_of
from asvi.results.old_names import OPTIONS

__all__ = ["bind_arguments", "read_data", "read_words"]


def read_data(path: Path | None, model: Callable) -> dict[str, Any]:
    """Arrays by name, from ``.npz``, ``.npy``, ``.csv``, ``.parquet`` or ``.json``.

    Of a table only the columns that the model takes are given to it.
    """
    if path is None:
        return {}
    if not path.exists():
        raise AsviError(f"There is no file {path}.")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise AsviError(
            f"{path} is of no kind that is read here; these are: {', '.join(_READERS)}.\n"
            "Write it by: numpy.savez('data.npz', x=x, y=y)"
        )
    return reader(path, model)


def _read_npz(path: Path, model: Callable) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (ValueError, OSError, AttributeError) as error:
        raise AsviError(
            f"{path} is not an .npz of arrays ({error}).\n"
            "Write it by: numpy.savez('data.npz', x=x, y=y)"
        ) from error


def _read_npy(path: Path, model: Callable) -> dict[str, Any]:
    try:
        return {path.stem: np.load(path, allow_pickle=False)}
    except (ValueError, OSError) as error:
        raise AsviError(
            f"{path} is not an .npy of one array ({error}).\nWrite it by: numpy.save('y.npy', y)"
        ) from error


def _read_json(path: Path, model: Callable) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise AsviError(
            f'{path} is not JSON ({error}).\nWrite it as: {{"n": 3, "y": [1.0, 2.0]}}'
        ) from error
    if not isinstance(found, dict):
        raise AsviError(f'{path} has no names.\nWrite it as: {{"n": 3, "y": [1.0, 2.0]}}')
    return {name: _value(x) for name, x in found.items()}


def _read_table(read: Callable[[Path], Any]) -> Callable[[Path, Callable], dict[str, Any]]:
    def columns(path: Path, model: Callable) -> dict[str, Any]:
        try:
            table = read(path)
        except ImportError as error:
            raise AsviError(
                f"{path} is read by a package that is not installed.\n"
                "Write instead:\n    pip install pyarrow"
            ) from error
        except (ValueError, OSError) as error:
            raise AsviError(f"{path} is not a table ({error}).") from error
        wanted, takes_all = _wanted(model)
        found = {}
        for name in map(str, table.columns):
            if name not in wanted and not takes_all:
                continue
            array = np.asarray(table[name])
            if array.dtype.kind not in "biufM":
                raise AsviError(
                    f"column {name!r} of {path} is text, and the model takes it.\nWrite it as "
                    f"numbers: table[{name!r}] = table[{name!r}].astype('category').cat.codes"
                )
            found[name] = array
        missing = [name for name, needed in wanted.items() if needed and name not in found]
        if missing and len(missing) == len([n for n, needed in wanted.items() if needed]):
            raise AsviError(
                f"{path} has no column {', '.join(map(repr, missing))}, which the model takes; it "
                f"has {', '.join(map(str, table.columns))}."
            )
        return found

    return columns


def _read_csv(path: Path) -> Any:
    import pandas

    return pandas.read_csv(path)


def _read_parquet(path: Path) -> Any:
    import pandas

    return pandas.read_parquet(path)


_READERS: dict[str, Callable[[Path, Callable], dict[str, Any]]] = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".csv": _read_table(_read_csv),
    ".parquet": _read_table(_read_parquet),
    ".json": _read_json,
}


def _wanted(model: Callable) -> tuple[dict[str, bool], bool]:
    """Names of the model's arguments, whether each has to be given, and whether it takes any."""
    parameters = parameters_of(model)
    kinds = inspect.signature(model).parameters.values()
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in kinds)
    empty = inspect.Parameter.empty
    return {name: p.default is empty for name, p in parameters.items()}, takes_all


def read_words(words: Iterable[str]) -> dict[str, Any]:
    """Arguments written as ``name=value``: numbers, lists of them, true, false or text.

    >>> read_words(["n=3", "scale=0.5", "y=[1, 2.5]", "kind=wide"])
    {'n': 3, 'scale': 0.5, 'y': array([1. , 2.5]), 'kind': 'wide'}
    """
    found = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign or not name.isidentifier():
            raise AsviError(
                f"{word!r} is no argument of the model.\nWrite instead:\n"
                "    asvi fit my_model.py:model --data data.npz n=3"
            )
        try:
            found[name] = _value(json.loads(text))
        except ValueError:
            found[name] = text
    return found


def _value(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, list) else x


def bind_arguments(
    model: Callable, arguments: dict[str, Any]
) -> tuple[Callable, list[Any], dict[str, Any]]:
    """The model, and arguments by position and by name, so that none is taken for an option.

    >>> def model(x, effort, y=None): ...
    >>> _, args, kwargs = bind_arguments(model, {"y": 1, "x": 2, "effort": 3})
    >>> args, kwargs
    ([2, 3, 1], {})
    """
    left, args, options = dict(arguments), [], {*DEFAULTS, *OPTIONS}
    parameters = parameters_of(model)
    for name, parameter in parameters.items():
        if name not in left or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            break
        args.append(left.pop(name))
    taken = {name: left.pop(name) for name in list(left) if name in options}
    # What is not given keeps the model's own default: `--effort` is the option, beyond doubt.
    for name, parameter in list(parameters.items())[len(args) :]:
        if name in options and parameter.default is not inspect.Parameter.empty:
            taken.setdefault(name, parameter.default)
    return (functools.partial(model, **taken) if taken else model), args, left
