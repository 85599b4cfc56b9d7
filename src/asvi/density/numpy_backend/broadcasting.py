"""Takes an array whose axes may be short; gives it at its full length.

An array may have length 1 along an axis where the program has more: all entries along it are the
same, and are computed once. Operations on single entries need no care, as NumPy broadcasts; the
others make such an axis as long as it should be where they look along it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Shape", "is_of_keys", "lengthened", "numpy_type", "one_or_all", "shape_in", "shape_out"]

Shape = tuple[int, ...]


def lengthened(x: Any, shape: Shape, axes: Any = None) -> np.ndarray:
    """``x`` at its full length, along these axes or all."""
    x = np.asarray(x)
    wanted = (
        shape
        if axes is None
        else [shape[a] if a in axes else length for a, length in enumerate(x.shape)]
    )
    return x if x.shape == tuple(wanted) else np.broadcast_to(x, wanted)


def one_or_all(found: Any) -> Any:
    """What an operation gives: an array by itself, or several."""
    return found[0] if len(found) == 1 else found


def shape_in(eqn: Any, k: int = 0) -> Shape:
    return eqn.invars[k].aval.shape


def shape_out(eqn: Any) -> Shape:
    return eqn.outvars[0].aval.shape


def is_of_keys(dtype: Any) -> bool:
    """Whether entries of this type are keys of random numbers."""
    return jnp.issubdtype(dtype, jax.dtypes.extended)


def numpy_type(aval: Any) -> np.dtype:
    """The type of NumPy's that holds such entries; a key is a whole number."""
    return np.dtype(np.uint64 if is_of_keys(aval.dtype) else aval.dtype)
