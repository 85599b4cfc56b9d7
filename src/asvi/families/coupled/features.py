"""Takes the noise that a site hears; gives features of it, and their sums by weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from asvi.distributions.warped_noise import Residual

__all__ = [
    "CROSSED",
    "applied",
    "blocks",
    "gain_features",
    "marginal_features",
    "n_gain_features",
    "n_shift_features",
    "product_features",
    "shift_features",
    "tail_features",
]

CROSSED = 6  # numbers whose products and tails are features too, and that have a spline


def n_gain_features(count: int, rich: bool) -> int:
    """How many features of this many numbers steer others."""
    return 8 * count if rich and count <= CROSSED else count


def gain_features(heard: Residual) -> jax.Array:
    """What k numbers steer others by, (..., 8k): curves of their noise, as drawn and as moved.

    Moved noise is where a number lies, whatever moved it there: a width that follows the *value* of
    an observation scale must know that, where the scale itself is wider or narrower as others say.
    """
    return jnp.concatenate([marginal_features(heard.drawn), marginal_features(heard.warped)], -1)


def marginal_features(noise: jax.Array) -> jax.Array:
    r"""Noise (..., k), its squares and its tails, (..., 4k).

    Squares are :math:`r^2 / \sqrt{1 + 2r^2}`, so that everything is straight far out, with slopes
    of its own on either side.
    """
    return jnp.concatenate([noise, noise**2 / jnp.sqrt(1 + 2 * noise**2), tail_features(noise)], -1)


def tail_features(noise: jax.Array) -> jax.Array:
    """How far noise (..., k) is beyond 1.5 to the right, and to the left, (..., 2k).

    What few draws tell is learned slowly: the factor makes its steps as large as the others'.
    """
    return 4 / 3 * jax.nn.softplus(3 * (jnp.concatenate([noise, -noise], -1) - 1.5))


def shift_features(heard: Residual) -> jax.Array:
    """What a few numbers bend others by: products and tails of their noise; curves of it, moved."""
    return jnp.concatenate(
        [
            product_features(heard.drawn),
            tail_features(heard.drawn),
            marginal_features(heard.warped),
        ],
        -1,
    )


def n_shift_features(count: int, rich: bool) -> int:
    """How many curved features this many numbers have, with tails and the rest where ``rich``."""
    if count > CROSSED:
        return count
    return count * (count + 1) // 2 + (6 * count if rich else 0)


def product_features(noise: jax.Array) -> jax.Array:
    r"""Second-order features of noise (..., k): :math:`r_i r_j / \sqrt{1 + r_i^2 + r_j^2}`.

    They are products near 0 and grow like their factors far out, so that no draw is thrown far off.
    Of more than a few numbers the squares alone are taken.
    """
    count = noise.shape[-1]
    if count <= CROSSED:
        first, second = (noise[..., i] for i in np.triu_indices(count))
    else:
        first = second = noise
    return first * second / jnp.sqrt(1 + first**2 + second**2)


def applied(weights: jax.Array, noise: jax.Array) -> jax.Array:
    """``weights`` (..., k) on noise (k,), or on (plates..., k) cell by cell."""
    if noise.ndim == 1:
        return weights @ noise
    between = weights.ndim - noise.ndim
    noise = jnp.reshape(noise, noise.shape[:-1] + (1,) * between + noise.shape[-1:])
    return jnp.sum(weights * noise, -1)


def blocks(within: jax.Array | None) -> jax.Array | None:
    """Weights (..., k) of all numbers of a site as square blocks (blocks, k, k)."""
    if within is None:
        return None
    size = within.shape[-1]
    return jnp.reshape(within, (-1, size, size))
