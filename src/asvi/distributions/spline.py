"""Takes numbers and the weights of a monotone spline; gives them bent, or unbent, and slopes.

A rational-quadratic spline (Gregory and Delbourgo 1982; as a flow: Durkan et al. 2019) passes
through knots with given slopes; between them it is the ratio of two quadratics, so that its inverse
is the root of one. Outside the outer knots it is the identity.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["KNOTS", "N_SPLINE_WEIGHTS", "spline_forward", "spline_inverse", "weights_through"]

#: constant of the formula: the outer knots; beyond them the spline is the identity
SPLINE_BOUND = 4.0
#: constant of the formula: knots, closer where posteriors of scales end in a cliff
RIGHT = (0.75, 1.5, 2.0, 2.5, 3.0, SPLINE_BOUND)
KNOTS = np.array([*(-x for x in reversed(RIGHT)), 0.0, *RIGHT])
WIDTHS = np.diff(KNOTS)
BINS = len(WIDTHS)
#: constant of the formula: logarithms of the bins' heights over their widths, of inner slopes
N_SPLINE_WEIGHTS = 2 * BINS - 1
#: constant of the formula: the least slope, so that there is an inverse
MIN_SLOPE = 1e-3
_BIN_STARTS_AND_WIDTHS = (KNOTS[:-1], WIDTHS)


def _knots(weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where the knots go, (..., bins + 1), and the slopes there."""
    widths = jnp.asarray(WIDTHS, weights.dtype)
    share = jax.nn.softmax(weights[..., :BINS] + jnp.log(widths), -1)
    heights = MIN_SLOPE * widths + (1 - MIN_SLOPE) * 2 * SPLINE_BOUND * share
    ends = jnp.cumsum(heights, -1) - SPLINE_BOUND
    first = jnp.full_like(ends[..., :1], -SPLINE_BOUND)
    to = jnp.concatenate([first, ends[..., :-1], -first], -1)
    one = jnp.ones_like(first)
    inner = MIN_SLOPE + (1 - MIN_SLOPE) * jnp.exp(weights[..., BINS:])
    return to, jnp.concatenate([one, inner, one], -1)


def weights_through(values: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """The weights with which the inner knots go to ``values``, with ``slopes`` there.

    >>> import jax.numpy as jnp, numpy as np
    >>> weights = jnp.asarray(weights_through(0.9 * KNOTS[1:-1], np.full(len(KNOTS) - 2, 0.9)))
    >>> [round(float(x), 3) for x in spline_forward(jnp.array(1.5), weights)]  # log 0.9
    [1.35, -0.105]
    """
    heights = np.diff(np.concatenate([[-SPLINE_BOUND], values, [SPLINE_BOUND]]))
    shares = np.maximum(heights / WIDTHS - MIN_SLOPE, MIN_SLOPE**2) / (1 - MIN_SLOPE)
    inner = np.maximum(slopes - MIN_SLOPE, MIN_SLOPE**2) / (1 - MIN_SLOPE)
    return np.log(np.concatenate([shares, inner]))


def _of_bin(where: jax.Array, *tables: jax.Array) -> list[jax.Array]:
    """The entry of each table (..., bins) for the bin that a number is in; ``where`` is one-hot."""
    return [jnp.sum(jnp.where(where, table, 0.0), -1) for table in tables]


def _bin(x: jax.Array, edges: jax.Array) -> jax.Array:
    """One-hot, (..., bins)."""
    x = x[..., None]
    return (x >= edges[..., :-1]) & (x < edges[..., 1:])


def _at(x: jax.Array, edges: jax.Array, weights: jax.Array) -> tuple[jax.Array, ...]:
    """Of the bin that x is in: start, width, where it starts afterwards, height, both slopes.

    Outside all bins it is one that changes nothing.
    """
    to, slopes = _knots(weights)
    start, width = (
        jnp.broadcast_to(jnp.asarray(t, to.dtype), to[..., 1:].shape)
        for t in _BIN_STARTS_AND_WIDTHS
    )
    tables = (start, width, to[..., :-1], jnp.diff(to), slopes[..., :-1], slopes[..., 1:])
    found = _of_bin(_bin(x, edges), *tables)
    inside = (x >= -SPLINE_BOUND) & (x < SPLINE_BOUND)
    steady = [jnp.where(inside, table, 1.0) for table in (found[1], *found[3:])]
    return found[0], steady[0], found[2], *steady[1:]


def spline_forward(z: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Numbers z (...), under weights (..., N_SPLINE_WEIGHTS), and the logarithm of the slope there.

    >>> import jax.numpy as jnp
    >>> v, slope = spline_forward(jnp.array([-5.0, 0.3]), jnp.zeros((2, N_SPLINE_WEIGHTS)))
    >>> bool(jnp.allclose(v, jnp.array([-5.0, 0.3]), atol=1e-5)), bool(abs(slope).max() < 1e-5)
    (True, True)
    """
    inside = (z >= -SPLINE_BOUND) & (z < SPLINE_BOUND)
    start, width, to, height, left, right = _at(z, jnp.asarray(KNOTS, z.dtype), weights)
    x = jnp.where(inside, (z - start) / width, 0.5)
    mean = height / width
    both = x * (1 - x)
    below = mean + (left + right - 2 * mean) * both
    v = to + height * (mean * x**2 + left * both) / below
    slope = mean**2 * (right * x**2 + 2 * mean * both + left * (1 - x) ** 2) / below**2
    return jnp.where(inside, v, z), jnp.where(inside, jnp.log(slope), 0.0)


def spline_inverse(v: jax.Array, weights: jax.Array) -> jax.Array:
    """z such that :func:`spline_forward` gives v."""
    inside = (v >= -SPLINE_BOUND) & (v < SPLINE_BOUND)
    start, width, to, height, left, right = _at(v, _knots(weights)[0], weights)
    y = jnp.where(inside, v - to, 0.5)
    mean = height / width
    more = y * (left + right - 2 * mean)
    a = height * (mean - left) + more
    b = height * left - more
    c = -mean * y
    x = 2 * c / (-b - jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, 0.0)))
    return jnp.where(inside, start + width * x, v)
