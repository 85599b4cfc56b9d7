"""Takes normal noise; gives quantiles of priors there, and the way back, each as one operation.

The kinds are priors of scale 1: ``half_normal``, ``half_cauchy``, ``exponential`` and ``uniform``.
Both tails are computed from their own small probability.

JAX is told of them as operations of their own, with slopes in closed form. Written out, the series
of each would be traced, differentiated and compiled wherever a prior is used, and that takes longer
than all else that a small model computes. NumPy has its own functions for them
(:mod:`asvi.density.numpy_backend.quantiles`).

>>> bool(jnp.allclose(noise_of("exponential", quantile_at("exponential", 1.5)), 1.5, atol=1e-5))
True
>>> round(float(jax.grad(lambda z: quantile_at("uniform", z))(0.0)), 4)   # the normal density
0.3989
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.scipy.special import erf, erfc, log_ndtr, ndtr, ndtri

__all__ = ["log_slope", "noise_of", "quantile_at"]

#: constant of the formula
_LOG_ROOT_TWO_PI = 0.9189385332046727
#: constant of the formula
_LOG_ROOT_TWO_OVER_PI = -0.22579135264472738
#: constant of the formula
_LOG_TWO_OVER_PI = -0.4515827052894548


def quantile_at(kind: str, z: Any) -> jax.Array:
    """The quantile of a prior at the normal probability of z."""
    return _QUANTILE.bind(_float(z), kind=kind)


def noise_of(kind: str, u: Any) -> jax.Array:
    """The inverse of :func:`quantile_at`."""
    return _NOISE.bind(_float(u), kind=kind)


def log_slope(kind: str, z: jax.Array, u: jax.Array) -> jax.Array:
    """The logarithm of du/dz: the normal density at z over the prior's at u."""
    if kind == "half_normal":
        log_density: Any = _LOG_ROOT_TWO_OVER_PI - u**2 / 2
    elif kind == "half_cauchy":
        log_density = _LOG_TWO_OVER_PI - jnp.log1p(u**2)
    elif kind == "exponential":
        log_density = -u
    else:
        log_density = 0.0
    return -(z**2) / 2 - _LOG_ROOT_TWO_PI - log_density


def _float(x: Any) -> jax.Array:
    return jnp.asarray(x, jnp.result_type(x, float) if not hasattr(x, "dtype") else None)


def _quantile(kind: str, z: jax.Array) -> jax.Array:
    tail = ndtr(-jnp.abs(z))  # below z where it is negative, above it elsewhere
    return jnp.where(z <= 0, _from_lower(kind, tail), _from_upper(kind, tail, z))


def _noise(kind: str, u: jax.Array) -> jax.Array:
    lower, upper = _below(kind, u), _above(kind, u)
    tiny = jnp.finfo(u.dtype).tiny
    score = ndtri(jnp.clip(jnp.where(lower <= 0.5, lower, upper), tiny, 0.5))
    return jnp.where(lower <= 0.5, score, -score)


def _from_lower(kind: str, p: jax.Array) -> jax.Array:
    """The quantile from the probability below it, p <= 1/2."""
    if kind == "half_normal":
        return jnp.sqrt(2.0) * jax.lax.erf_inv(p)
    if kind == "half_cauchy":
        return jnp.tan(jnp.pi / 2 * p)
    if kind == "exponential":
        return -jnp.log1p(-p)
    return p


def _from_upper(kind: str, p: jax.Array, z: jax.Array) -> jax.Array:
    """The quantile from the probability above it, p <= 1/2."""
    if kind == "half_normal":
        return -ndtri(p / 2)
    if kind == "half_cauchy":
        return 1.0 / jnp.tan(jnp.pi / 2 * p)
    if kind == "exponential":
        return -log_ndtr(-jnp.maximum(z, 0.0))
    return 1.0 - jnp.maximum(p, jnp.finfo(p.dtype).eps)


def _below(kind: str, u: jax.Array) -> jax.Array:
    if kind == "half_normal":
        return erf(u / jnp.sqrt(2.0))
    if kind == "half_cauchy":
        return 2 / jnp.pi * jnp.arctan(u)
    if kind == "exponential":
        return -jnp.expm1(-u)
    return u


def _above(kind: str, u: jax.Array) -> jax.Array:
    if kind == "half_normal":
        return erfc(u / jnp.sqrt(2.0))
    if kind == "half_cauchy":
        return 2 / jnp.pi * jnp.arctan2(1.0, u)
    if kind == "exponential":
        return jnp.exp(-u)
    return 1.0 - u


def _operation(name: str, formula: Callable, slope: Callable) -> Primitive:
    """``formula(kind, x)`` of single entries as an operation; ``slope(kind, x, y)`` is its own."""
    operation = Primitive(name)

    @cache
    def compiled(kind: str) -> Callable:
        return jax.jit(partial(formula, kind))

    def moved(xs: Any, ds: Any, *, kind: str) -> Any:
        y = operation.bind(xs[0], kind=kind)
        return y, slope(kind, xs[0], y) * ds[0]

    operation.def_impl(lambda x, *, kind: compiled(kind)(x))
    operation.def_abstract_eval(lambda x, *, kind: x.update(weak_type=False))
    ad.primitive_jvps[operation] = moved
    batching.defvectorized(operation)
    lowered = mlir.lower_fun(lambda x, *, kind: formula(kind, x), multiple_results=False)
    mlir.register_lowering(operation, lowered)
    return operation


_QUANTILE = _operation("quantile_at", _quantile, lambda kind, z, u: jnp.exp(log_slope(kind, z, u)))
_NOISE = _operation("noise_of", _noise, lambda kind, u, z: jnp.exp(-log_slope(kind, z, u)))
