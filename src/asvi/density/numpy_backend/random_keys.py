"""Takes an operation on keys of random numbers; gives the function of NumPy arrays that does it.

A key is one whole number of 64 bits here, so that what moves entries of arrays moves keys, too. The
bits are those of JAX's own generator, Threefry (20 rounds over two words); keys of other generators
are left to the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.density.numpy_backend.broadcasting import is_of_keys, lengthened, shape_in
from asvi.density.numpy_backend.no_rule import NoNumpyRule

__all__ = ["OF_KEYS", "is_known_key", "made_of", "packed", "unpacked"]

#: constant of the formula: bits that a word is turned by, round after round.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
#: constant of the formula
_PARITY = np.uint32(0x1BD11BDA)
#: constant of the formula
_WORD = np.uint64(32)


def is_known_key(dtype: Any) -> bool:
    """Whether keys of this type are those whose bits are known here."""
    return is_of_keys(dtype) and str(dtype) == "key<fry>"


def packed(key: Any) -> np.ndarray:
    """JAX's keys as whole numbers."""
    return _joined(np.moveaxis(np.asarray(jax.random.key_data(key)), -1, 0))


def unpacked(keys: Any) -> jax.Array:
    """Whole numbers as JAX's keys."""
    data = np.stack(_words(keys), -1)
    return jax.random.wrap_key_data(jnp.asarray(data), impl="threefry2x32")


def _joined(words: Any) -> np.ndarray:
    first, second = (np.asarray(x).astype(np.uint64) for x in words)
    return (first << _WORD) | second


def _words(keys: Any) -> tuple[np.ndarray, np.ndarray]:
    keys = np.asarray(keys)
    return (keys >> _WORD).astype(np.uint32), keys.astype(np.uint32)


def _hashed(keys: Any, first: Any, second: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both words of a count, stirred with a key."""
    one, other = _words(keys)
    schedule = [one, other, one ^ other ^ _PARITY]
    shape = np.broadcast_shapes(one.shape, np.shape(first))
    x, y = np.empty(shape, np.uint32), np.empty(shape, np.uint32)
    np.add(first, one, out=x)
    np.add(second, other, out=y)
    left = np.empty(shape, np.uint32)
    for k in range(5):
        for turn in _ROTATIONS[k % 2]:
            np.add(x, y, out=x)
            np.left_shift(y, np.uint32(turn), out=left)
            np.right_shift(y, np.uint32(32 - turn), out=y)
            np.bitwise_or(y, left, out=y)
            np.bitwise_xor(y, x, out=y)
        np.add(x, schedule[(k + 1) % 3], out=x)
        np.add(y, schedule[(k + 2) % 3], out=y)
        np.add(y, np.uint32(k + 1), out=y)
    return x, y


def _counted(shape: tuple[int, ...]) -> Callable:
    """Both words for each entry of ``shape``, from each key."""
    if not jax.config.jax_threefry_partitionable:
        raise NoNumpyRule("NumPy does not number random bits as JAX once did")
    first, second = _words(np.arange(prod(shape), dtype=np.uint64).reshape(shape))
    ones = (1,) * len(shape)

    def apply(keys: Any) -> tuple[np.ndarray, np.ndarray]:
        keys = np.asarray(keys)
        return _hashed(keys.reshape(keys.shape + ones), first, second)

    return apply


def _bits(eqn: Any) -> Callable:
    words, width = _counted(tuple(eqn.params["shape"])), eqn.params["bit_width"]
    if width == 64:
        return lambda keys: _joined(words(keys))
    dtype = np.dtype(f"uint{width}")

    def apply(keys: Any) -> np.ndarray:
        first, second = words(keys)
        return (first ^ second).astype(dtype, copy=False)

    return apply


def _split(eqn: Any) -> Callable:
    words = _counted(tuple(eqn.params["shape"]))
    return lambda keys: _joined(words(keys))


def _fold_in(_eqn: Any) -> Callable:
    return lambda keys, data: _joined(
        _hashed(*np.broadcast_arrays(keys, np.uint32(0), np.asarray(data).astype(np.uint32)))
    )


def _seed(eqn: Any) -> Callable:
    dtype = eqn.invars[0].aval.dtype
    if dtype.itemsize < 4:
        raise NoNumpyRule(f"NumPy does not make keys of {dtype}")
    return lambda x: np.asarray(x).astype(f"uint{8 * dtype.itemsize}").astype(np.uint64)


def _wrap(eqn: Any) -> Callable:
    full = shape_in(eqn)
    return lambda x: _joined(np.moveaxis(lengthened(x, full, [len(full) - 1]), -1, 0))


def made_of(eqn: Any) -> Any:
    """The program that an operation on keys is made of, where JAX has one: draws of a gamma."""
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    try:
        return jax.make_jaxpr(partial(eqn.primitive.impl, **eqn.params, use_vmap=True))(*shapes)
    except TypeError as failure:  # a version of JAX that makes them otherwise
        raise NoNumpyRule(f"NumPy does not run {eqn.primitive.name!r}") from failure


OF_KEYS: dict[str, Callable[[Any], Callable]] = {
    "random_bits": _bits,
    "random_fold_in": _fold_in,
    "random_seed": _seed,
    "random_split": _split,
    "random_unwrap": lambda eqn: lambda keys: np.stack(_words(keys), -1),
    "random_wrap": _wrap,
}
