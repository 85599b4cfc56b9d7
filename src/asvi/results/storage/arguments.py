"""Takes a model's arguments; gives them as JSON and arrays, as few as draws need, and back.

An array stays out of the file where the guide's draws are the same without it: the program of a
draw is recorded with zeros in its place, and compared.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.errors import AsviError
from asvi.program.argument_copies import is_pandas
from asvi.program.columns import as_array, is_column
from asvi.program.traced import Traced
from asvi.results.posterior import Posterior
from asvi.results.storage import tables

__all__ = ["arguments_from_json", "arguments_that_draws_need", "recorded_draw"]


def recorded_draw(problem: Any, params: dict[str, Any]) -> str:
    """A digest of the program and data that make one draw."""
    posterior = Posterior(problem, params)
    blank = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), jnp.result_type(x)), params)
    traced = Traced(posterior.draw_one, jax.random.key(0), blank)
    return traced.digest


def arguments_that_draws_need(posterior: Posterior) -> tuple[Any, dict[int, Any], str]:
    """The arguments as JSON, the arrays of them that draws need, and the digest of a draw."""
    problem, arrays = posterior.problem, []
    whole = tuple(problem.arguments)
    stored = to_json(whole, arrays.append)
    digest = recorded_draw(problem, posterior.params)

    def same_without(left_out: set[int]) -> bool:
        numbers = iter(range(len(arrays)))

        def blank(x: Any) -> Any:
            if next(numbers) not in left_out:
                return x
            return jnp.zeros_like(x) if isinstance(x, jax.Array) else np.zeros_like(x)

        other = problem.at(*_replaced(whole, blank), complete=False)
        try:
            return recorded_draw(other, posterior.params) == digest
        except Exception:  # a model that looks at its data's values may raise whatever it likes
            return False

    everything = set(range(len(arrays)))
    left_out: set[int] = everything if arrays and same_without(everything) else set()
    if not left_out:
        for k in range(len(arrays)):
            if same_without(left_out | {k}):
                left_out.add(k)
    kept = {k: x for k, x in enumerate(arrays) if k not in left_out}
    return stored, kept, digest


def _replaced(x: Any, array: Callable) -> Any:
    """A copy of the arguments with other arrays; what is no container stays as it is."""
    if isinstance(x, np.ma.MaskedArray):
        return np.ma.MaskedArray(array(x.data), array(np.ma.getmaskarray(x)))
    if isinstance(x, np.ndarray | jax.Array):
        return array(x)
    if isinstance(x, dict):
        return _like(x, {k: _replaced(v, array) for k, v in x.items()})
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_replaced(v, array) for v in x))
    if isinstance(x, list | tuple):
        return type(x)(_replaced(v, array) for v in x)
    if _is_dataclass(x):
        fields = {f.name: _replaced(getattr(x, f.name), array) for f in dataclasses.fields(x)}
        return dataclasses.replace(
            x, **{f.name: fields[f.name] for f in dataclasses.fields(x) if f.init}
        )
    if is_pandas(x):
        return tables.replaced(x, array)
    return array(as_array(x)) if is_column(x) else x


def _like(x: dict, found: dict) -> dict:
    return found if type(x) is dict else type(x)(found)


def _is_dataclass(x: Any) -> bool:
    return dataclasses.is_dataclass(x) and not isinstance(x, type)


# ------------------------------------------------------------------------------------------- JSON


def to_json(x: Any, add_array: Callable[[Any], None], count: list[int] | None = None) -> Any:
    """``x`` in words; its arrays are handed to ``add_array`` in the order of their numbers."""
    count = [0] if count is None else count

    def walk(x: Any) -> Any:
        return to_json(x, add_array, count)

    if isinstance(x, np.ma.MaskedArray):
        return {"masked": walk(x.data), "mask": walk(np.ma.getmaskarray(x))}
    if isinstance(x, np.ndarray | jax.Array):
        add_array(x)
        count[0] += 1
        about = {"shape": list(x.shape), "dtype": str(x.dtype)}
        return {"array": count[0] - 1, "jax": isinstance(x, jax.Array), **about}
    if x is None or type(x) in (bool, int, float, str):
        return {"value": x}
    if isinstance(x, np.generic):
        return {"scalar": x.item(), "dtype": str(x.dtype)}
    if type(x) is dict:
        return {"dict": [[walk(k), walk(v)] for k, v in x.items()]}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return {"named": _class_name(x), "fields": list(x._fields), "values": list(map(walk, x))}
    if type(x) in (list, tuple):
        return {type(x).__name__: list(map(walk, x))}
    if _is_dataclass(x):
        record: Any = x
        fields = [f.name for f in dataclasses.fields(record) if f.init]
        values = [walk(getattr(x, name)) for name in fields]
        return {"dataclass": _class_name(x), "fields": fields, "values": values}
    if is_pandas(x):
        return tables.to_json(x, walk)
    if is_column(x):  # comes back as an array
        return walk(as_array(x))
    raise AsviError(
        f"an argument of the model is a {type(x).__name__}, which cannot be stored.\n"
        "Write instead, so that the model brings it along:\n"
        "    asvi.fit(functools.partial(model, network=network), data)"
    )


def _class_name(x: Any) -> str:
    return f"{type(x).__module__}:{type(x).__qualname__}"


def arguments_from_json(stored: Any, arrays: Mapping[str, Any], path: Any) -> Any:
    """The arguments; zeros are in place of arrays that the file does not have."""

    def walk(x: Any) -> Any:
        return arguments_from_json(x, arrays, path)

    if "array" in stored:
        dtype = stored["dtype"]
        found = arrays.get(f"arguments/{stored['array']}")
        if stored["jax"]:
            return jnp.zeros(stored["shape"], dtype) if found is None else jnp.asarray(found)
        return np.zeros(stored["shape"], np.dtype(dtype)) if found is None else np.asarray(found)
    if "masked" in stored:
        return np.ma.MaskedArray(walk(stored["masked"]), walk(stored["mask"]))
    if "value" in stored:
        return stored["value"]
    if "scalar" in stored:
        return np.dtype(stored["dtype"]).type(stored["scalar"])
    if "dict" in stored:
        return {walk(k): walk(v) for k, v in stored["dict"]}
    if "list" in stored:
        return list(map(walk, stored["list"]))
    if "tuple" in stored:
        return tuple(map(walk, stored["tuple"]))
    if "named" in stored:
        values = list(map(walk, stored["values"]))
        found = _class_called(stored["named"])
        if found is None:
            found = namedtuple(stored["named"].split(".")[-1].split(":")[-1], stored["fields"])
        return found(*values)
    if "dataclass" in stored:
        found = _class_called(stored["dataclass"])
        if found is None:
            raise AsviError(
                f"{path} has an argument of the class {stored['dataclass']}, which is not here.\n"
                "Write instead:\n    asvi.load(path, model, *data)   # as given to asvi.fit"
            )
        return found(**dict(zip(stored["fields"], map(walk, stored["values"]), strict=True)))
    return tables.from_json(stored, walk)


def _class_called(name: str) -> Any:
    """A class of a module that is imported already: a file makes nothing be imported."""
    module, qualified = name.split(":")
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return found
