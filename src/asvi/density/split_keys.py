"""Takes a key of random numbers; gives keys split from it by NumPy: nothing is compiled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.density.numpy_backend import numpy_function
from asvi.density.settings import EvaluatorSettings

__all__ = ["kind_of", "restored", "split", "split_data"]


def kind_of(key: Any) -> Any:
    """The generator that a key is for; None for a plain array, JAX's older form of a key."""
    return jax.random.key_impl(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else None


def restored(data: Any, kind: Any) -> Any:
    """The key of these numbers."""
    return data if kind is None else jax.random.wrap_key_data(data, impl=kind)


def split_data(key: Any, count: int, settings: EvaluatorSettings = EvaluatorSettings()) -> Any:
    """The numbers of ``count`` keys, those of :func:`jax.random.split`."""
    kind = kind_of(key)

    def program(data: Any) -> Any:
        found = jax.random.split(restored(data, kind), count)
        return found if kind is None else jax.random.key_data(found)

    data = key if kind is None else jax.random.key_data(key)
    if isinstance(data, jax.core.Tracer):
        return program(data)
    data = np.asarray(data)
    run = numpy_function(program, data, draws=True, settings=settings)
    return np.asarray(program(data) if run is None else run(data))


def split(key: Any, count: int, settings: EvaluatorSettings = EvaluatorSettings()) -> list[Any]:
    """``count`` keys.

    >>> one, other = split(jax.random.key(1), 2)
    >>> bool(other == jax.random.split(jax.random.key(1))[1])
    True
    """
    kind = kind_of(key)
    return [restored(jax.device_put(row), kind) for row in split_data(key, count, settings)]


def seed_of(key: jax.Array | None) -> np.ndarray:
    """Numbers for NumPy's generator: nothing is compiled for them."""
    return np.zeros(2, np.uint32) if key is None else np.asarray(jax.random.key_data(key)).ravel()
