"""Takes a prior that cannot be drawn from; gives one that can, with the same density.

A distribution of a user's own may have a support and ``log_prob``, and no ``sample``: that is all
that NUTS asks for. Here its draws, which only begin a search, are normal numbers behind the
support's map from the real line.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, ExpandedDistribution, Independent, biject_to

__all__ = ["Unsampled", "has_sampler", "is_unsampled"]


class Unsampled(Distribution):
    """The distribution ``asked`` for, with draws that are not of it."""

    arg_constraints = {}
    pytree_data_fields = ("asked",)

    def __init__(self, asked: Distribution):
        self.asked = asked
        super().__init__(asked.batch_shape, asked.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        return self.asked.support

    @property
    def has_rsample(self) -> bool:
        return True

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        to_support = biject_to(self.support)
        inner = to_support.inverse_shape(sample_shape + self.shape())
        return jnp.broadcast_to(
            to_support(jax.random.normal(key, inner)), sample_shape + self.shape()
        )

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        del intermediates
        return self.asked.log_prob(value)


def has_sampler(dist: Distribution) -> bool:
    """Whether draws can be had; NumPyro's own distributions all have them."""
    while isinstance(dist, ExpandedDistribution | Independent):
        dist = dist.base_dist
    if type(dist).__module__.startswith("numpyro."):
        return True
    try:
        jax.eval_shape(dist.sample, jax.eval_shape(jax.random.key, 0))
    except NotImplementedError:
        return False
    return True


def is_unsampled(dist: Any) -> bool:
    """Whether a latent site's prior could not be drawn from."""
    while hasattr(dist, "base_dist") and not isinstance(dist, Unsampled):
        dist = dist.base_dist
    return isinstance(dist, Unsampled)
