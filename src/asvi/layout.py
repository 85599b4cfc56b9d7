"""Takes a model's arguments; gives their arrays, and a layout that puts them back in place.

Arrays are inputs of the compiled program, so that new data of the same shape need no new one;
everything else (sizes, flags, functions, None) is part of the program.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.util import not_jax_tracer

from asvi.errors import ModelError

__all__ = ["NEEDS_VALUES", "Layout", "known_numbers", "split"]

#: What JAX raises where a model's Python looks at the values of its data: then these cannot be
#: inputs of a compiled program, and become part of it.
NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def known_numbers() -> AbstractContextManager:
    """Within it, what is computed from known numbers is known, while a program is traced, too.

    Nothing is done where none is traced: JAX would then run every operation on constants by itself,
    inside of what it compiles as well, each a program of its own.
    """
    return nullcontext() if not_jax_tracer(jnp.zeros(())) else jax.ensure_compile_time_eval()


class _Array:
    """Stands in a layout where an array goes."""

    def __repr__(self) -> str:
        return "array"


ARRAY = _Array()


@dataclass(frozen=True)
class Layout:
    """The arguments without their arrays."""

    tree: Any
    leaves: tuple[Any, ...]
    shapes: tuple[tuple[tuple[int, ...], str], ...]

    def join(self, arrays: list[Any]) -> tuple[tuple, dict[str, Any]]:
        """``args`` and ``kwargs`` with these arrays."""
        rest = iter(arrays)
        leaves = [next(rest) if leaf is ARRAY else leaf for leaf in self.leaves]
        return jax.tree.unflatten(self.tree, leaves)

    def key(self) -> Any:
        """What two layouts must share to be served by one compiled program; None if unknown."""
        try:
            key = (self.tree, self.leaves, self.shapes)
            hash(key)
        except TypeError:
            return None
        return key


def split(args: tuple, kwargs: dict[str, Any]) -> tuple[list[Any], Layout]:
    """Arrays and layout of ``model(*args, **kwargs)``.

    >>> arrays, layout = split((np.zeros(3), "linear"), {"scale": 2.0})
    >>> [a.shape for a in arrays], layout.leaves
    ([(3,)], (array, 'linear', 2.0))
    >>> layout.join(arrays)[1]
    {'scale': 2.0}
    """
    found, tree = jax.tree.flatten_with_path((args, kwargs))
    arrays, leaves = [], []
    for path, leaf in found:
        if isinstance(leaf, jax.Array | np.ndarray):
            arrays.append(_checked(leaf, _name(path)))
            leaves.append(ARRAY)
        else:
            leaves.append(leaf)
    shapes = tuple((a.shape, str(a.dtype)) for a in arrays)
    return arrays, Layout(tree, tuple(leaves), shapes)


def _checked(x: Any, name: str) -> Any:
    if isinstance(x, np.ndarray) and x.dtype.kind not in "biufc":
        raise ModelError(
            f"{name} is an array of {x.dtype} (first entry {x.ravel()[:1].tolist()}), and a model "
            "computes with numbers.\nWrite instead:\n    "
            f"{name.split(' ')[-1].strip('`')} = np.asarray(..., dtype=float)   # codes for names: "
            "pandas.factorize(column)[0]"
        )
    return x


def _name(path: Any) -> str:
    """How a user would call this argument."""
    which, rest = path[0].idx, path[1:]
    inner = jax.tree_util.keystr(rest[1:])
    return (
        f"argument {rest[0].idx + 1}{inner}" if which == 0 else f"argument `{rest[0].key}{inner}`"
    )
