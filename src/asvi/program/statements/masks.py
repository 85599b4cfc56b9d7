"""Takes distributions with masks; gives them without, or with fewer of their terms masked out.

A mask takes terms out of the *model's* density. It is no part of what a guide draws from, whose
density counts in full.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import (
    Distribution,
    ExpandedDistribution,
    Independent,
    MaskedDistribution,
    TransformedDistribution,
)
from numpyro.primitives import Messenger

from asvi.program.statements.ordinary import make_ordinary
from asvi.program.statements.stacked import Stacked

__all__ = ["Completed", "complete_model", "counted_part", "is_masked", "unmasked"]


def is_masked(dist: Distribution) -> bool:
    """Whether some of its density may be masked out.

    >>> import numpyro.distributions as dist
    >>> is_masked(dist.Normal(0.0, 1.0).mask(False).to_event(0)), is_masked(dist.Normal(0.0, 1.0))
    (True, False)
    """
    if isinstance(dist, MaskedDistribution):
        return dist._mask is not True or is_masked(dist.base_dist)
    inner = _inside(dist)
    return inner is not None and is_masked(inner)


def unmasked(dist: Any) -> Any:
    """``dist`` with its whole density."""
    if isinstance(dist, MaskedDistribution):
        return unmasked(dist.base_dist)
    inner = _inside(dist)
    if inner is None or not is_masked(inner):
        return dist
    return _around(dist, unmasked(inner))


def counted_part(dist: Any) -> jax.Array:
    """Which numbers of a value the density looks at, in the value's shape.

    >>> import numpyro.distributions as dist
    >>> mask = jnp.array([True, False])
    >>> counted_part(dist.Normal(0.0, 1.0).expand([2]).mask(mask).to_event(1)).tolist()
    [True, False]
    """
    shape = dist.shape()
    if isinstance(dist, Stacked):
        return jax.vmap(counted_part)(dist.step_dist)
    if isinstance(dist, MaskedDistribution):
        mask = jnp.broadcast_to(jnp.asarray(dist._mask), dist.batch_shape)
        return mask.reshape(mask.shape + (1,) * dist.event_dim) & counted_part(dist.base_dist)
    inner = _inside(dist)
    if inner is None:
        return jnp.ones(shape, bool)
    found = counted_part(inner)
    if isinstance(dist, TransformedDistribution) and found.shape != shape:
        found = jnp.any(found)  # which of its numbers made which is not known
    return jnp.broadcast_to(found, shape)


def complete_distribution(dist: Any, where: Any) -> Any:
    """``dist`` with the terms of these numbers in its density, whatever its masks say of them.

    ``where`` has the shape of a value, or is one truth for all. A term is put in place where it is
    wanted for all of its numbers.
    """
    if isinstance(dist, Stacked):
        each = jnp.broadcast_to(where, dist.shape())
        return Stacked(jax.vmap(complete_distribution)(dist.step_dist, each), dist.length)
    if isinstance(dist, MaskedDistribution):
        terms = jnp.broadcast_to(where, dist.shape())
        for _ in range(dist.event_dim):
            terms = jnp.all(terms, -1)
        inner = (
            complete_distribution(dist.base_dist, where)
            if is_masked(dist.base_dist)
            else dist.base_dist
        )
        return MaskedDistribution(inner, jnp.asarray(dist._mask) | terms)
    inner = _inside(dist)
    if inner is None or not is_masked(inner):
        return dist
    shape = inner.shape()
    if isinstance(dist, ExpandedDistribution):
        # Now that its members differ, each has a term of its own.
        return complete_distribution(_expanded(inner, dist.batch_shape), where)
    if isinstance(dist, TransformedDistribution) and jnp.ndim(where) and dist.shape() != shape:
        where = jnp.all(where)
    return _around(dist, complete_distribution(inner, where))


def _expanded(dist: Any, batch_shape: tuple[int, ...]) -> Any:
    """``dist`` of this batch shape, its masks on the outside of what is expanded."""
    if isinstance(dist, MaskedDistribution):
        mask = jnp.broadcast_to(jnp.asarray(dist._mask), batch_shape)
        return MaskedDistribution(_expanded(dist.base_dist, batch_shape), mask)
    if isinstance(dist, Independent):
        ndims = dist.reinterpreted_batch_ndims
        return _expanded(dist.base_dist, batch_shape + dist.event_shape[:ndims]).to_event(ndims)
    if isinstance(dist, ExpandedDistribution):
        return _expanded(dist.base_dist, batch_shape)
    if type(dist) is TransformedDistribution:
        inner = dist.base_dist
        extra = len(inner.batch_shape) - len(dist.batch_shape)
        if extra == 0:
            return TransformedDistribution(_expanded(inner, batch_shape), dist.transforms)
    return dist.expand(batch_shape)


def _inside(dist: Any) -> Any:
    if (
        isinstance(dist, ExpandedDistribution | Independent)
        or type(dist) is TransformedDistribution
    ):
        return dist.base_dist
    return None


def _around(dist: Any, inner: Any) -> Any:
    """The same wrapping around another distribution."""
    if isinstance(dist, ExpandedDistribution):
        return inner.expand(dist.batch_shape)
    if isinstance(dist, Independent):
        return inner.to_event(dist.reinterpreted_batch_ndims)
    return TransformedDistribution(inner, dist.transforms)


class Completed(Messenger):
    """A model, with the priors of these numbers in its density though masks took them out.

    ``where`` has, by site, what :func:`complete_distribution` takes; ``steps`` how many of its
    leading axes are those of scans.
    """

    def __init__(self, fn: Any, where: dict[str, Any], steps: dict[str, int]):
        super().__init__(fn)
        self.where, self.steps = where, steps

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "sample" or msg.get("_control_flow_done"):
            return
        if msg["name"] in self.where and not msg["is_observed"]:
            make_ordinary(msg)
            msg["fn"] = complete_distribution(msg["fn"], self.where[msg["name"]])

    def at_step(self, index: Any) -> Completed:
        """The same in the body of a scan, at this step."""
        inside = {n: jnp.asarray(w)[index] if self.steps[n] else w for n, w in self.where.items()}
        return Completed(None, inside, {n: max(0, k - 1) for n, k in self.steps.items()})


def complete_model(model: Any, improper: Any) -> Any:
    """``model``, its density completed where it is ``improper`` (:mod:`asvi.program.improper`)."""
    if not improper:
        return model
    where = {name: found.where for name, found in improper.items()}
    return Completed(model, where, {name: found.steps for name, found in improper.items()})
