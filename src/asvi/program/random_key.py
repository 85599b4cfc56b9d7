"""Takes what a user gives as a key; gives a key of JAX."""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp

from asvi.errors import AsviError

__all__ = ["as_key"]


def as_key(rng_key: Any) -> jax.Array:
    """A key of JAX, old or new, as a new one; of an int the key with this seed; of None, of 0.

    >>> bool(as_key(3) == jax.random.key(3)), bool(as_key(jax.random.PRNGKey(3)) == as_key(3))
    (True, True)
    """
    if rng_key is None:
        return jax.random.key(0)
    if hasattr(rng_key, "dtype"):
        if jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key):
            return rng_key
        if rng_key.dtype == jnp.uint32 and rng_key.ndim >= 1:
            return jax.random.wrap_key_data(jnp.asarray(rng_key))
    try:
        seed = operator.index(rng_key)
    except TypeError:
        raise AsviError(
            f"rng_key={rng_key!r} is neither a key of JAX nor an int.\n"
            "Write instead:\n    rng_key=0   # or jax.random.key(0)"
        ) from None
    return jax.random.key(seed)
