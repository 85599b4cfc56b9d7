"""Programs of a few operations that were drawn, on arrays of awkward shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
from jax import lax

from tests.support.numpy_cases import INDEX, Case

__all__ = ["random_program"]

_UNARY = [
    jnp.sin, jnp.exp, jnp.tanh, jnp.abs, jnp.square, jnp.floor, jnp.sign, jnp.log1p, jnp.sqrt,
    jnp.log, jnp.reciprocal, jnp.negative, jnp.cbrt, jax.nn.relu, jax.nn.softplus, jax.nn.sigmoid,
    special.gammaln, special.erf, jnp.nan_to_num, jnp.isfinite, jnp.argsort, lambda x: x**3,
    lambda x: x**0.5, lambda x: jnp.clip(x, -1.0, 1.0), lambda x: jnp.where(x > 0, x, x * x),
    lambda x: lax.stop_gradient(x) * x, lambda x: jnp.arange(1.0 * x.size).reshape(x.shape) * x,
    lambda x: x.astype(np.int64), lambda x: jnp.round(x).astype(np.int64) // 2,
]  # fmt: skip
_BINARY = [
    jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.maximum, jnp.minimum, jnp.logaddexp,
    jnp.hypot, special.xlogy, special.xlog1py, lambda x, y: jnp.where(x > y, x, y * y),
    lambda x, y: jnp.abs(x) ** y, lambda x, y: jnp.where(x == y, 0.0, x / y), jnp.matmul,
    lambda x, y: jnp.einsum("...i,...i->...", x, y), lambda x, y: jnp.concatenate([x, y]),
]  # fmt: skip
_ALONG = [
    jnp.sum, jnp.max, jnp.min, jnp.prod, jnp.mean, jax.nn.logsumexp, jnp.cumsum, jnp.cumprod,
    lax.cummax, jax.nn.softmax, jnp.flip, jnp.squeeze, jnp.argmax, jnp.std, jnp.linalg.norm,
]  # fmt: skip
_PLACES = [
    jnp.transpose, jnp.ravel, lambda x: x[..., None], lambda x: x[None], lambda x: x[:1],
    lambda x: jnp.concatenate([x, x[:1]]), lambda x: jnp.broadcast_to(x, (2, *x.shape)),
    lambda x: jnp.stack([x, x * 2], -1), lambda x: jnp.pad(x, 1, constant_values=2.0),
    lambda x: x[INDEX[1:5]], lambda x: x[..., INDEX[:3]], lambda x: x.at[INDEX[:4]].add(2 * x[0]),
    lambda x: x.at[INDEX[2:5]].set(x[0] * x[0]), lambda x: x[::-1], lambda x: x[1::2],
    lambda x: x.at[INDEX[:3]].get(mode="fill", fill_value=3.0), lambda x: x[:0],
    lambda x: x.at[:, INDEX[:2]].multiply(0.5), lambda x: jnp.split(x, [1])[1],
]  # fmt: skip
_SHAPES = [(), (1,), (3,), (1, 3), (2, 1), (2, 3), (3, 3), (0, 3), (2, 1, 3)]
_USUAL = np.array([-2, -1, -0.5, 0, 0.5, 1, 2, 3])


def random_program(seed: int) -> Case:
    """A few operations after another, on arrays of awkward shapes that have ties and zeros."""
    rng = np.random.default_rng(seed)
    shapes = [_SHAPES[rng.integers(len(_SHAPES))] for _ in range(2)]
    given = [rng.choice(_USUAL, shape) for shape in shapes]
    given = [np.where(rng.random(x.shape) < 0.3, rng.normal(size=x.shape), x) for x in given]
    if seed % 5 == 0:
        far = rng.choice([np.inf, -np.inf, np.nan, -0.0], 2)
        given = [np.where(rng.random(x.shape) < 0.2, f, x) for x, f in zip(given, far)]
    steps: list[Callable] = []

    def function(*inputs: Any) -> list[Any]:
        known = list(inputs)
        for step in steps:
            known.append(step(known))
        return known[len(inputs) :]

    while len(steps) < 4:
        step = _random_step(rng, 2 + len(steps))
        try:
            tried = partial(_tried, function, step)
            last, _ = jax.eval_shape(lambda xs, f=tried: jax.jvp(f, xs, xs), given)
        except (TypeError, ValueError, IndexError, ZeroDivisionError):
            continue  # of other shapes or types
        if last.size <= 100:
            steps.append(step)
    return Case(function, lambda d: tuple(x.astype(d) for x in given))


def _tried(function: Callable, step: Callable, *inputs: Any) -> Any:
    return step([*inputs, *function(*inputs)])


def _random_step(rng: np.random.Generator, count: int) -> Callable:
    some = [_UNARY, _BINARY, _ALONG, _PLACES][rng.integers(4)]
    f, axis = some[rng.integers(len(some))], int(rng.integers(3))
    a, b = count - 1 - int(rng.exponential(1)) % count, rng.integers(count)
    if some is _BINARY:
        return lambda known: f(known[a], known[b])
    if some is _ALONG:
        return lambda known: f(known[a], axis=axis)
    return lambda known: f(known[a])
