"""Takes numbers and the weights of a monotone spline; gives them bent, or unbent, and slopes.

A rational-quadratic spline (Gregory and Delbourgo 1982; as a flow: Durkan et al. 2019) passes
through knots with given slopes; between them it is the ratio of two quadratics, so that its inverse
is the root of one. Outside the outer knots it is the identity.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["WEIGHTS", "bend", "unbend"]

REACH = 4.0
BINS = 8
KNOTS = np.linspace(-REACH, REACH, BINS + 1)
WEIGHTS = 2 * BINS - 1  # logarithms: heights of the bins, slopes at the inner knots
LEAST = 1e-3


def _knots(weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where the knots go, (..., bins + 1), and the slopes there."""
    share = jax.nn.softmax(weights[..., :BINS], -1)
    heights = 2 * REACH * (LEAST + (1 - LEAST * BINS) * share)
    ends = jnp.cumsum(heights, -1) - REACH
    first = jnp.full_like(ends[..., :1], -REACH)
    to = jnp.concatenate([first, ends[..., :-1], -first], -1)
    one = jnp.ones_like(first)
    inner = LEAST + (1 - LEAST) * jnp.exp(weights[..., BINS:])
    return to, jnp.concatenate([one, inner, one], -1)


def _of_bin(where: jax.Array, *tables: jax.Array) -> list[jax.Array]:
    """The entry of each table (..., bins) for the bin that a number is in; ``where`` is one-hot."""
    return [jnp.sum(jnp.where(where, table, 0.0), -1) for table in tables]


def _bin(x: jax.Array, edges: jax.Array) -> jax.Array:
    """One-hot, (..., bins)."""
    x = x[..., None]
    return (x >= edges[..., :-1]) & (x < edges[..., 1:])


def _tables(weights: jax.Array) -> tuple[jax.Array, ...]:
    to, slopes = _knots(weights)
    start = jnp.broadcast_to(jnp.asarray(KNOTS[:-1], to.dtype), to[..., :-1].shape)
    return start, to[..., :-1], to[..., 1:] - to[..., :-1], slopes[..., :-1], slopes[..., 1:]


def bend(z: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Numbers z (...), under weights (..., WEIGHTS), and the logarithm of the slope there.

    >>> import jax.numpy as jnp
    >>> v, slope = bend(jnp.array([-5.0, 0.3]), jnp.zeros((2, WEIGHTS)))
    >>> bool(jnp.allclose(v, jnp.array([-5.0, 0.3]), atol=1e-5)), bool(abs(slope).max() < 1e-5)
    (True, True)
    """
    width = 2 * REACH / BINS
    where = _bin(z, jnp.asarray(KNOTS, z.dtype))
    inside = (z >= -REACH) & (z < REACH)
    start, to, height, left, right = _of_bin(where, *_tables(weights))
    x = jnp.where(inside, (z - start) / width, 0.5)
    height = jnp.where(inside, height, width)
    left, right = (jnp.where(inside, s, 1.0) for s in (left, right))
    mean = height / width
    both = x * (1 - x)
    below = mean + (left + right - 2 * mean) * both
    v = to + height * (mean * x**2 + left * both) / below
    slope = mean**2 * (right * x**2 + 2 * mean * both + left * (1 - x) ** 2) / below**2
    return jnp.where(inside, v, z), jnp.where(inside, jnp.log(slope), 0.0)


def unbend(v: jax.Array, weights: jax.Array) -> jax.Array:
    """z such that :func:`bend` gives v."""
    width = 2 * REACH / BINS
    start, to, height, left, right = _tables(weights)
    ends = jnp.concatenate([to, jnp.full_like(to[..., :1], REACH)], -1)
    where = _bin(v, ends)
    inside = (v >= -REACH) & (v < REACH)
    start, to, height, left, right = _of_bin(where, start, to, height, left, right)
    height = jnp.where(inside, height, width)
    left, right = (jnp.where(inside, s, 1.0) for s in (left, right))
    y = jnp.where(inside, v - to, 0.5 * width)
    mean = height / width
    more = y * (left + right - 2 * mean)
    a = height * (mean - left) + more
    b = height * left - more
    c = -mean * y
    x = 2 * c / (-b - jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, 0.0)))
    return jnp.where(inside, start + width * x, v)
