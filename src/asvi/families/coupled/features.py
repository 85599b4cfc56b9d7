"""Takes the noise that a site listens to; gives features of it, and their sums by weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from asvi.distributions.warped_noise import Residual
from asvi.families.coupled.settings import CouplingSettings

__all__ = [
    "apply_weights",
    "as_blocks",
    "gain_features",
    "marginal_features",
    "n_gain_features",
    "n_shift_features",
    "product_features",
    "shift_features",
    "tail_features",
]


def n_gain_features(
    count: int, has_curves: bool, settings: CouplingSettings = CouplingSettings()
) -> int:
    """How many features of this many numbers steer others."""
    return 8 * count if has_curves and count <= settings.max_product_numbers else count


def gain_features(given: Residual) -> jax.Array:
    """What k numbers steer others by, (..., 8k): curves of their noise, as drawn and as moved.

    Moved noise is where a number lies, whatever moved it there: a width that follows the *value* of
    an observation scale must know that, where the scale itself is wider or narrower as others say.
    """
    return jnp.concatenate([marginal_features(given.drawn), marginal_features(given.warped)], -1)


def marginal_features(noise: jax.Array) -> jax.Array:
    r"""Noise (..., k), its squares and its tails, (..., 4k).

    Squares are :math:`r^2 / \sqrt{1 + 2r^2}`, so that everything is straight far out, with slopes
    of its own on either side.
    """
    return jnp.concatenate([noise, noise**2 / jnp.sqrt(1 + 2 * noise**2), tail_features(noise)], -1)


def tail_features(noise: jax.Array) -> jax.Array:
    """How far noise (..., k) is beyond 1.5 to the right, and to the left, (..., 2k).

    What few draws show is learned slowly: the factor makes its steps as large as the others'.
    """
    return 4 / 3 * jax.nn.softplus(3 * (jnp.concatenate([noise, -noise], -1) - 1.5))


def shift_features(given: Residual, settings: CouplingSettings = CouplingSettings()) -> jax.Array:
    """What a few numbers bend others by: products and tails of their noise; curves of it, moved."""
    return jnp.concatenate(
        [
            product_features(given.drawn, settings),
            tail_features(given.drawn),
            marginal_features(given.warped),
        ],
        -1,
    )


def n_shift_features(
    count: int, has_curves: bool, settings: CouplingSettings = CouplingSettings()
) -> int:
    """How many products this many numbers have; with ``has_curves``, tails and the rest, too."""
    if count > settings.max_product_numbers:
        return count
    return count * (count + 1) // 2 + (6 * count if has_curves else 0)


def product_features(
    noise: jax.Array, settings: CouplingSettings = CouplingSettings()
) -> jax.Array:
    r"""Second-order features of noise (..., k): :math:`r_i r_j / \sqrt{1 + r_i^2 + r_j^2}`.

    They are products near 0 and grow like their factors far out, so that no draw is thrown far off.
    Of more than a few numbers the squares alone are taken.
    """
    count = noise.shape[-1]
    if count <= settings.max_product_numbers:
        first, second = (noise[..., i] for i in np.triu_indices(count))
    else:
        first = second = noise
    return first * second / jnp.sqrt(1 + first**2 + second**2)


def apply_weights(weights: jax.Array, noise: jax.Array) -> jax.Array:
    """``weights`` (..., k) on noise (k,), or on (plates..., k) member by member."""
    if noise.ndim == 1:
        return weights @ noise
    between = weights.ndim - noise.ndim
    noise = jnp.reshape(noise, noise.shape[:-1] + (1,) * between + noise.shape[-1:])
    return jnp.sum(weights * noise, -1)


def as_blocks(within: jax.Array | None) -> jax.Array | None:
    """Weights (..., k) of all numbers of a site as square blocks (blocks, k, k)."""
    if within is None:
        return None
    size = within.shape[-1]
    return jnp.reshape(within, (-1, size, size))
