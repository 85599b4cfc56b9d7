"""Takes distributions made of others; gives the leaves of all that is inside.

Independent, expanded and masked distributions are transparent: their leaves keep their names, and a
mask is left out.
Transformed distributions add their transforms' own parameters, mixtures and gates their weights.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from asvi.distributions.registry import (
    Decomposition,
    Leaf,
    constructed_from,
    decompose,
    decomposer,
    expand_leaf,
)
from asvi.distributions.transforms import decompose_transforms
from asvi.program.statements.flat_prior import FlatPrior

_GATE = constraints.unit_interval


def _inner(d, batch_shape, how) -> Decomposition:
    return decompose(d, batch_shape, parameterization=how)


# Each wrapper is registered for every parameterisation: it passes the wish on to what is inside.
def _wrapper(*classes):
    def register(function):
        for how in ("expectation", "logits", "natural"):
            decomposer(*classes, parameterization=how)(function)
        return function

    return register


@_wrapper(dist.ExpandedDistribution)
def _expanded(d, batch_shape, how):
    return _inner(d.base_dist, batch_shape, how)


@_wrapper(dist.Independent)
def _independent(d, batch_shape, how):
    ndims = d.reinterpreted_batch_ndims
    parts = _inner(d.base_dist, batch_shape + d.event_shape[:ndims], how)
    return Decomposition(parts.leaves, lambda values: parts.rebuild(values).to_event(ndims))


@_wrapper(dist.MaskedDistribution, FlatPrior)
def _masked(d, batch_shape, how):
    # A mask takes terms out of the model's density; a guide's density counts in full.
    parts = _inner(d.base_dist, batch_shape, how)
    return Decomposition(parts.leaves, parts.rebuild)


@_wrapper(dist.Delta)
def _delta(d, batch_shape, how):
    return Decomposition({}, lambda _: d)  # nothing is random, nothing to learn


@_wrapper(dist.FoldedDistribution)
def folded(d, batch_shape, how):
    parts = _inner(d.base_dist, batch_shape, how)
    return Decomposition(
        parts.leaves, lambda values: dist.FoldedDistribution(parts.rebuild(values))
    )


@_wrapper(dist.TransformedDistribution)
def _transformed(d, batch_shape, how):
    base = _inner(d.base_dist, batch_shape, how)
    transforms = decompose_transforms(d, batch_shape)

    def rebuild(values):
        return dist.TransformedDistribution(base.rebuild(values), transforms.rebuild(values))

    return Decomposition({**base.leaves, **transforms.leaves}, rebuild)


# ------------------------------------------------------------------- bounds stay with the model


def _present(*names: str) -> list[Any]:
    """The classes of these names that this version of NumPyro has (some came with 0.22)."""
    return [getattr(dist, name) for name in names if hasattr(dist, name)]


# What stands in for these has no truncated form in NumPyro.
_AS_THEY_ARE = {
    cls: constructed_from(dict(cls.arg_constraints)) for cls in (dist.Cauchy, dist.StudentT)
}


def _bounded(*bounds: str):
    def take_apart(d, batch_shape, how):
        plain = _AS_THEY_ARE.get(type(d.base_dist))
        base = d.base_dist
        parts = plain(base, batch_shape, how) if plain else _inner(base, batch_shape, how)
        kept = {name: getattr(d, name) for name in bounds}
        return Decomposition(parts.leaves, lambda values: type(d)(parts.rebuild(values), **kept))

    return take_apart


left_truncated = _bounded("low")
_wrapper(dist.LeftTruncatedDistribution, *_present("LeftTruncatedGamma"))(left_truncated)
_wrapper(dist.RightTruncatedDistribution, *_present("RightTruncatedGamma"))(_bounded("high"))
_wrapper(dist.TwoSidedTruncatedDistribution, *_present("TwoSidedTruncatedGamma"))(
    _bounded("low", "high")
)


# -------------------------------------------------------------------------------- gates, mixtures


def _gated(make=None):
    """``make(base, gate)`` rebuilds; without it the class itself, from gate and base parameters."""

    def take_apart(d, batch_shape, how):
        # Classes built from their parameters have none but the default parameterisation.
        parts = _inner(d.base_dist, batch_shape, how if make else "expectation")
        gate = jax.nn.sigmoid(d.gate_logits) if hasattr(d, "gate_logits") else d.gate
        leaves = {"gate": Leaf(expand_leaf(gate, _GATE, batch_shape), _GATE), **parts.leaves}
        if make is not None:
            join = make
            return Decomposition(leaves, lambda values: join(parts.rebuild(values), values["gate"]))
        return Decomposition(leaves, lambda values: type(d)(**values))

    return take_apart


for _kind in ("ZeroInflated", "Hurdle"):
    for _probs in _present(f"{_kind}Probs"):
        _wrapper(_probs, *_present(f"{_kind}Logits"))(_gated(_probs))
_wrapper(dist.ZeroInflatedPoisson, *_present("HurdlePoisson", "HurdleGamma", "HurdleLogNormal"))(
    _gated()
)


@_wrapper(dist.MixtureSameFamily)
def _mixture_same_family(d, batch_shape, how):
    size = (d.mixture_size,)
    mixing = _inner(d.mixing_distribution, batch_shape, how).under("mixing.")
    component = _inner(d.component_distribution, batch_shape + size, how).under("component.")
    return Decomposition(
        {**mixing.leaves, **component.leaves},
        lambda v: dist.MixtureSameFamily(mixing.rebuild(v), component.rebuild(v)),
    )


@_wrapper(dist.MixtureGeneral)
def _mixture_general(d, batch_shape, how):
    mixing = _inner(d.mixing_distribution, batch_shape, how).under("mixing.")
    components = [
        _inner(component, batch_shape, how).under(f"component{i}.")
        for i, component in enumerate(d.component_distributions)
    ]
    leaves = dict(mixing.leaves)
    for component in components:
        leaves.update(component.leaves)
    return Decomposition(
        leaves,
        lambda v: dist.MixtureGeneral(
            mixing.rebuild(v), [c.rebuild(v) for c in components], support=d._support
        ),
    )


# --------------------------------------------------------------------------- copulas, skewness


def _correlation(d, batch_shape) -> Leaf:
    # Correlation Cholesky factors are not convex; correlation matrices are.
    tril = d.base_dist.scale_tril
    matrix = tril @ jnp.swapaxes(tril, -1, -2)
    return Leaf(expand_leaf(matrix, constraints.corr_matrix, batch_shape), constraints.corr_matrix)


@_wrapper(dist.GaussianCopula)
def _gaussian_copula(d, batch_shape, how):
    marginal = _inner(d.marginal_dist, batch_shape + d.event_shape, how).under("marginal.")
    leaves = {"correlation_matrix": _correlation(d, batch_shape), **marginal.leaves}
    return Decomposition(
        leaves,
        lambda v: dist.GaussianCopula(
            marginal.rebuild(v), correlation_matrix=v["correlation_matrix"]
        ),
    )


@_wrapper(dist.SineSkewed)
def _sine_skewed(d, batch_shape, how):
    parts = _inner(d.base_dist, batch_shape, how).under("base.")
    ball = constraints.l1_ball
    leaves = {"skewness": Leaf(expand_leaf(d.skewness, ball, batch_shape), ball), **parts.leaves}
    return Decomposition(leaves, lambda v: dist.SineSkewed(parts.rebuild(v), v["skewness"]))
