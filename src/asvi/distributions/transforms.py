"""Takes the transforms of a transformed distribution; gives their own parameters as leaves.

The paper's update acts on the union of the base distribution's and the transforms' parameters. A
transform's parameter is a leaf only where it leaves the support alone: the shift of an affine map
of the real line is one, the shift of an affine map of the positive numbers is the edge of the
support and is not. Signs (of a scale, of an exponent) stay with the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from numpyro.distributions import TransformedDistribution, constraints
from numpyro.distributions import transforms as T

from asvi.distributions.quantile_transform import QuantileTransform
from asvi.distributions.registry import Decomposition, Leaf, expand_leaf
from asvi.program.unwrapping import bare_constraint

__all__ = ["decompose_transforms"]

_REAL, _POSITIVE = constraints.real, constraints.positive
Shape = tuple[int, ...]


def decompose_transforms(d: TransformedDistribution, batch_shape: Shape) -> Decomposition:
    """Leaves of all transforms of ``d``, named ``transform{i}.{parameter}``; rebuilds the list."""
    leaves: dict[str, Leaf] = {}
    builders: list[Callable[[dict[str, Any]], T.Transform]] = []
    shape = batch_shape + d.base_dist.event_shape
    line = _line(d.base_dist.support)
    for i, transform in enumerate(d.transforms):
        out_shape = transform.forward_shape(shape)
        parts = _take_apart(transform, line, out_shape, batch_shape)
        parts = parts.under(f"transform{i}.")
        leaves.update(parts.leaves)
        builders.append(parts.rebuild)
        line = _after(transform, line)
        shape = out_shape
    return Decomposition(leaves, lambda values: [build(values) for build in builders])


def _line(constraint: Any) -> str:
    """Which line the values run along: ``real``, ``positive``, or something else."""
    constraint = bare_constraint(constraint)
    if constraint is _REAL:
        return "real"
    if constraint in (_POSITIVE, constraints.nonnegative, constraints.softplus_positive):
        return "positive"
    return "other"


def _after(transform: T.Transform, line: str) -> str:
    if isinstance(transform, T.AffineTransform):
        return "real" if line == "real" else "other"
    if isinstance(transform, T.PermuteTransform | T.ReshapeTransform):
        return line
    return _line(transform.codomain)


def _take_apart(
    transform: T.Transform, line: str, shape: Shape, batch_shape: Shape
) -> Decomposition:
    if isinstance(transform, T.AffineTransform):
        return _affine(transform, line, shape)
    if isinstance(transform, T.PowerTransform):
        return _power(transform, shape)
    if isinstance(transform, QuantileTransform) and transform.kind != "uniform":
        scale = Leaf(expand_leaf(transform.scale, _POSITIVE, shape), _POSITIVE)
        return Decomposition(
            {"scale": scale}, lambda v: QuantileTransform(transform.kind, v["scale"])
        )
    if isinstance(transform, T.LowerCholeskyAffine) and line == "real" and not batch_shape:
        return _matrix(transform, {"loc": constraints.real_vector, "scale_tril": _CHOLESKY})
    if isinstance(transform, T.SimplexToOrderedTransform):
        anchor = Leaf(expand_leaf(transform.anchor_point, _REAL, batch_shape), _REAL)
        return Decomposition(
            {"anchor_point": anchor}, lambda v: T.SimplexToOrderedTransform(v["anchor_point"])
        )
    if isinstance(transform, T.IndependentTransform):
        inner = _take_apart(transform.base_transform, line, shape, batch_shape)
        ndims = transform.reinterpreted_batch_ndims
        return Decomposition(
            inner.leaves, lambda v: T.IndependentTransform(inner.rebuild(v), ndims)
        )
    if isinstance(transform, T._InverseTransform) and line == "real":
        inner = _take_apart(transform._inv, line, shape, batch_shape)
        return Decomposition(inner.leaves, lambda v: inner.rebuild(v).inv)
    if isinstance(transform, T.ComposeTransform):
        return _compose(transform, line, shape, batch_shape)
    # Permutations, Fourier and stick-breaking maps, networks: nothing to mix with the prior.
    return Decomposition({}, lambda _: transform)


_CHOLESKY = constraints.lower_cholesky


def _affine(transform: T.AffineTransform, line: str, shape: Shape) -> Decomposition:
    leaves = {}
    sign = jnp.sign(transform.scale)
    if line == "real":
        leaves["loc"] = Leaf(expand_leaf(transform.loc, _REAL, shape), _REAL)
    if line in ("real", "positive"):
        leaves["scale"] = Leaf(expand_leaf(jnp.abs(transform.scale), _POSITIVE, shape), _POSITIVE)

    def rebuild(v):
        scale = sign * v["scale"] if "scale" in v else transform.scale
        return T.AffineTransform(v.get("loc", transform.loc), scale, transform.domain)

    return Decomposition(leaves, rebuild)


def _power(transform: T.PowerTransform, shape: Shape) -> Decomposition:
    sign = jnp.sign(transform.exponent)
    exponent = expand_leaf(jnp.abs(transform.exponent), _POSITIVE, shape)
    return Decomposition(
        {"exponent": Leaf(exponent, _POSITIVE)},
        lambda v: T.PowerTransform(sign * v["exponent"]),
    )


def _matrix(transform: T.Transform, domains: dict[str, constraints.Constraint]) -> Decomposition:
    leaves = {
        name: Leaf(expand_leaf(getattr(transform, name), domain, ()), domain)
        for name, domain in domains.items()
    }
    return Decomposition(leaves, lambda v: type(transform)(**v))


def _compose(
    transform: T.ComposeTransform, line: str, shape: Shape, batch_shape: Shape
) -> Decomposition:
    leaves: dict[str, Leaf] = {}
    builders = []
    here = transform.inverse_shape(shape)
    for i, part in enumerate(transform.parts):
        here = part.forward_shape(here)
        parts = _take_apart(part, line, here, batch_shape).under(f"part{i}.")
        leaves.update(parts.leaves)
        builders.append(parts.rebuild)
        line = _after(part, line)
    return Decomposition(leaves, lambda v: T.ComposeTransform([build(v) for build in builders]))
