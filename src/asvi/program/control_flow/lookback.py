"""Takes what the steps of a scan made; gives what each step sees of those before it.

A *register* (W, k) holds the k numbers that each of the last W steps gave, newest first. What a
step takes of it is a product with weights of its own, :func:`look_back`. Where all steps are known,
the products of all of them are one with a single matrix, in which the weights of each step stand
one column further to the right (:func:`look_back_everywhere`): that is much cheaper than to write
every step's window down.

>>> import jax, jax.numpy as jnp
>>> made = jnp.array([[1.0], [2.0], [3.0]])  # by three steps
>>> weights = jnp.array([[[1.0, 10.0]]] * 3)  # a step, and ten times the one before
>>> look_back_everywhere(weights, jnp.zeros((2, 1)), made)[:, 0].tolist()
[0.0, 1.0, 12.0]
>>> stack_lookback(jnp.zeros((2, 1)), made)[:, :, 0].tolist()
[[0.0, 0.0], [1.0, 0.0], [2.0, 1.0]]
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.program.settings import HoistingSettings

__all__ = [
    "is_dense_cheaper",
    "is_look_back",
    "look_back",
    "look_back_everywhere",
    "stack_lookback",
]


@jax.jit
def look_back(weights: jax.Array, register: jax.Array) -> jax.Array:
    """Weights (..., w*k) on the last w steps of a register (W, k); a function of its own in traces.

    So :mod:`asvi.program.control_flow.hoisting` finds it and can do it for all steps at once.
    """
    seen = weights.shape[-1] // register.shape[-1]
    return weights @ jnp.ravel(register[:seen])


def is_look_back(eqn: Any) -> bool:
    """Whether an equation of a trace is :func:`look_back`."""
    return eqn.params.get("name") == "look_back" and len(eqn.invars) == 2


def is_dense_cheaper(
    seen: int, length: int, settings: HoistingSettings = HoistingSettings()
) -> bool:
    """Whether one matrix for all of ``length`` steps is cheaper than windows of ``seen``."""
    return length <= settings.max_dense_ratio * seen


def look_back_everywhere(weights: jax.Array, first: Any, made: jax.Array) -> jax.Array:
    """:func:`look_back` of all T steps, (T, ...), by one matrix.

    :param weights: (T, ..., w*k), of each step.
    :param first: (W, k), the register before the first step.
    :param made: (T, k), what each step adds to it.
    """
    (length, numbers), shape = made.shape, weights.shape[1:-1]
    seen = weights.shape[-1] // numbers
    empty = isinstance(first, np.ndarray) and not first.any()
    flat = jnp.reshape(weights, (length, prod(shape), seen, numbers))
    # The oldest first, as in `made`; what lies before an empty register is never seen.
    kept = max(1, min(seen, length - 1)) if empty else seen
    flat = jnp.moveaxis(jnp.flip(flat[:, :, :kept], 2), 2, 1)  # (T, w, products, k)
    width = kept + length
    # Rows one longer than they are read: each begins one further to the right.
    rows = jnp.pad(flat, ((0, 0), (0, length + 1), (0, 0), (0, 0)))
    rows = jnp.reshape(rows, (length * (width + 1), *flat.shape[2:]))[: length * width]
    rows = jnp.reshape(rows, (length, width, *flat.shape[2:]))
    if empty:
        rows, past = rows[:, kept:], made
    else:
        past = jnp.concatenate([jnp.flip(jnp.asarray(first)[:seen], 0), made])
    matrix = jnp.reshape(jnp.moveaxis(rows, 2, 1), (length * prod(shape), past.size))
    return jnp.reshape(matrix @ jnp.ravel(past), (length, *shape))


def stack_lookback(first: jax.Array, made: jax.Array) -> jax.Array:
    """(T, W, ...): the W values before each of T steps, newest first; ``first`` before the first.

    Each row is the one before, shifted by one: the whole is the sequence written over and over
    into rows that are one shorter than it is. No index is looked up, which has a slow gradient.
    """
    window, length = len(first), len(made)
    row = jnp.concatenate([jnp.flip(first, 0), made])  # value of step t at window + t
    size = window + length
    tiled = jnp.broadcast_to(row, (window, *row.shape)).reshape(window * size, *row.shape[1:])
    rows = tiled[: window * (size - 1)].reshape(window, size - 1, *row.shape[1:])
    return jnp.moveaxis(rows[:, window - 1 : window - 1 + length], 0, 1)
