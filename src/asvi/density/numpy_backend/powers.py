"""Takes arrays; gives their powers, with JAX's numbers at 0, at infinities and of half a unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["integer_power", "power_of", "slope_of_power"]


def integer_power(y: int) -> Callable:
    if y == 2:
        return np.square
    if y == -1:
        return lambda x: np.divide(1, x, dtype=x.dtype)
    if y < 0:
        return lambda x: np.divide(1, np.power(x, -y), dtype=x.dtype)
    return lambda x: np.power(x, y)


def power_of(eqn: Any) -> Callable:
    dtype, (base, exponent) = eqn.outvars[0].aval.dtype, eqn.invars
    if np.issubdtype(exponent.aval.dtype, np.integer):
        return lambda x, y: np.power(x, y, dtype=dtype)
    never = hasattr(base, "val") or getattr(exponent, "val", 0.5) != 0.5
    return np.power if never else _power


def slope_of_power(eqn: Any) -> Callable:
    """Along the base."""
    dtype, exponent = eqn.outvars[0].aval.dtype, eqn.invars[1]
    if np.issubdtype(exponent.aval.dtype, np.integer):
        return lambda x, y: _slope(x, y.astype(dtype))
    if getattr(exponent, "val", 1.5) != 1.5:
        return lambda x, y: y * np.power(x, y - 1)
    return lambda x, y: y * _power(x, y - 1)


def _slope(x: Any, y: Any) -> Any:
    return np.where(y == 0, y, y * np.power(x, y - 1))


def _power(x: Any, y: Any) -> Any:
    """NumPy takes a power of 1/2 for the root, which is another number at -inf and at -0."""
    if not (y == 0.5).any():
        return np.power(x, y)
    root = np.sqrt(np.where(x == -np.inf, -x, x) + 0)
    return root if np.ndim(y) == 0 else np.where(y == 0.5, root, np.power(x, y))
