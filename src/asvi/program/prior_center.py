"""Takes a distribution; gives one finite value in the middle of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import (
    Cauchy,
    Distribution,
    ExpandedDistribution,
    Independent,
    Laplace,
    Logistic,
    MaskedDistribution,
    Normal,
    TransformedDistribution,
    biject_to,
)

__all__ = ["prior_center"]

SYMMETRIC = (Normal, Cauchy, Laplace, Logistic)


def prior_center(dist: Distribution) -> jax.Array | None:
    """The mean; where there is no finite one the median, else a value well inside the support.

    For a transformed distribution it is the image of the base distribution's centre: the mean of a
    ``LogNormal(0, 10)`` is about 1e21, its centre is 1. For a discrete one there is no centre.

    >>> import numpyro.distributions as dist
    >>> float(prior_center(dist.Normal(2.0, 1.0))), float(prior_center(dist.LogNormal(0.0, 10.0)))
    (2.0, 1.0)
    >>> float(prior_center(dist.HalfCauchy(3.0)))
    3.0
    """
    if dist.support is None or dist.support.is_discrete:
        return None
    if isinstance(dist, ExpandedDistribution | Independent | MaskedDistribution):
        inner = prior_center(dist.base_dist)
        return None if inner is None else jnp.broadcast_to(inner, dist.shape())
    if isinstance(dist, TransformedDistribution):
        value = prior_center(dist.base_dist)
        if value is None:
            return None
        for transform in dist.transforms:
            value = transform(value)
        return jnp.broadcast_to(value, dist.shape())
    value = _feasible(dist)
    for better in (_median, _mean):
        try:
            found: Any = better(dist)
            candidate = jnp.broadcast_to(found, dist.shape())
        except (NotImplementedError, AttributeError, ImportError, TypeError, ValueError):
            continue
        candidate = candidate.astype(jnp.result_type(float))
        value = candidate if value is None else jnp.where(jnp.isfinite(candidate), candidate, value)
    return value


def _mean(dist: Distribution):
    return dist.mean


def _median(dist: Distribution):
    if isinstance(dist, SYMMETRIC):
        return dist.loc  # where the quantile function gives the same after many small programs
    return dist.icdf(jnp.asarray(0.5))


def _feasible(dist: Distribution) -> jax.Array | None:
    try:
        to_support = biject_to(dist.support)
    except NotImplementedError:
        return None
    return jnp.broadcast_to(
        to_support(jnp.zeros(to_support.inverse_shape(dist.shape()))), dist.shape()
    )
