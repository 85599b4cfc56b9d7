r"""Takes a prior whose own family cannot hold a posterior; gives a richer one of its support.

A half-normal has one parameter and its mode at 0: whatever its scale, it cannot say that a standard
deviation is 3 ± 0.2. Each stand-in here *contains the prior* (so a prior weight of 1 is still the
prior) and can concentrate anywhere in the support.

================================ ==================================================================
prior                            stand-in
================================ ==================================================================
HalfNormal, HalfCauchy,          normal noise through the prior's own quantile function
Exponential, Uniform, LogUniform
Cauchy, StudentT                 the same, nearly, with free degrees of freedom, location and scale
folded Normal, Cauchy, StudentT, that of the half of the distribution, which it is if its location
Laplace; Cauchy cut on the left  is the fold
Levy                             inverse Gamma
Chi2                             Gamma
LKJ, LKJCholesky                 independent Beta partial correlations (the vine of the LKJ)
ZeroSumNormal                    the same map of independent normals with free means and scales
GaussianRandomWalk               a linear Gaussian chain with free weight, shift, scale per step
GaussianStateSpace               the same recursion with free mean and noise per step
================================ ==================================================================

Why not a truncated normal for the half-normal: it has density at 0, so that E[1/τ²], which appears
in the gradient of every hierarchical model, diverges. The choice is measured in
``benchmarks/stand_ins.py``. Why not a Cauchy for the Cauchy: under it a log likelihood that falls
like \|x\| has no expectation; see :mod:`asvi.distributions.student_t`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import Distribution, constraints
from numpyro.distributions import transforms as T
from numpyro.distributions.util import matrix_to_tril_vec

from asvi.distributions.quantile_transform import (
    GaussianChain,
    HalfLogitTransform,
    QuantileTransform,
)
from asvi.distributions.registry import Decomposition, decompose, decomposer, register_parameters
from asvi.distributions.student_t import HalfStudentTTransform, TransformedStudentT
from asvi.distributions.wrappers import folded, left_truncated

__all__ = ["half_of", "register_stand_in", "substitution_of"]

_SUBSTITUTIONS: dict[type, Callable[[Distribution], Distribution]] = {}


def register_stand_in(
    cls: type[Distribution], stand_in: Callable[[Distribution], Distribution]
) -> None:
    """Let the guide sample sites of class ``cls`` from ``stand_in(prior)``, updated.

    ``stand_in`` must keep support and shapes. Where it equals the prior at its own parameters, a
    prior weight of 1 stays the prior exactly.

    >>> from asvi.distributions.registry import decompose
    >>> class Rate(dist.Exponential):
    ...     pass
    >>> register_stand_in(Rate, lambda d: dist.Gamma(jnp.ones_like(d.rate), d.rate))
    >>> list(decompose(Rate(2.0)).leaves)
    ['concentration', 'rate']
    """
    _SUBSTITUTIONS[cls] = stand_in

    def through_stand_in(d, batch_shape, how):
        # What the stand-in is made of has no logits or natural form of its own to ask for.
        del how
        return decompose(stand_in(d), batch_shape)

    for how in ("expectation", "logits", "natural"):
        decomposer(cls, parameterization=how)(through_stand_in)


def substitution_of(cls: type) -> Callable[[Distribution], Distribution] | None:
    """The stand-in registered for a class, if any."""
    return _SUBSTITUTIONS.get(cls)


def _stands_in_for(cls: type[Distribution]):
    def register(stand_in):
        register_stand_in(cls, stand_in)
        return stand_in

    return register


def _noise(shape) -> dist.Normal:
    return dist.Normal(jnp.zeros(shape), jnp.ones(shape))


def _through_quantile(kind: str, scale_of: Callable[[Any], Any]):
    def stand_in(d: Distribution) -> Distribution:
        return dist.TransformedDistribution(
            _noise(d.batch_shape), QuantileTransform(kind, scale_of(d))
        )

    return stand_in


register_stand_in(dist.HalfNormal, _through_quantile("half_normal", lambda d: d.scale))
register_stand_in(dist.HalfCauchy, _through_quantile("half_cauchy", lambda d: d.scale))
register_stand_in(dist.Exponential, _through_quantile("exponential", lambda d: 1.0 / d.rate))


@_stands_in_for(dist.Cauchy)
def _cauchy(d: dist.Cauchy) -> Distribution:
    return TransformedStudentT(jnp.ones(d.batch_shape), d.loc, d.scale)


@_stands_in_for(dist.StudentT)
def _student_t(d: dist.StudentT) -> Distribution:
    return TransformedStudentT(d.df, d.loc, d.scale)


register_parameters(TransformedStudentT, TransformedStudentT.arg_constraints)


def half_of(d: Any, edge: Any = 0.0) -> Distribution | None:
    """Normal noise through the quantiles of the upper half of ``d``, were it centred at ``edge``.

    None where it is not known. A location beside the edge makes the half wider.

    >>> import jax
    >>> half = half_of(dist.StudentT(3.0, 0.0, 2.5))
    >>> round(float(jnp.median(half.sample(jax.random.key(0), (9999,)))), 1)   # 2.5 times 0.765
    1.9
    """
    kind = _HALVES.get(type(d))
    if kind is None:
        return None
    scale = jnp.sqrt(d.scale**2 + (d.loc - edge) ** 2)
    if isinstance(d, dist.StudentT):
        transforms = [QuantileTransform(kind), HalfStudentTTransform(d.df, scale)]
    else:
        transforms = [QuantileTransform(kind, scale)]
    return dist.TransformedDistribution(_noise(d.batch_shape), transforms)


_HALVES: dict[type, str] = {
    dist.Normal: "half_normal",
    dist.StudentT: "half_normal",
    dist.Cauchy: "half_cauchy",
    dist.Laplace: "exponential",
}


def _folded(d: Any, batch_shape: tuple[int, ...], how: Any) -> Decomposition:
    half = half_of(d.base_dist)
    return folded(d, batch_shape, how) if half is None else decompose(half, batch_shape)


def _left_truncated(d: Any, batch_shape: tuple[int, ...], how: Any) -> Decomposition:
    """A Cauchy cut on the left as the half of one: under its own family no variance is finite."""
    if not isinstance(d.base_dist, dist.Cauchy):
        return left_truncated(d, batch_shape, how)
    half: Any = half_of(d.base_dist, d.low)
    shift = T.AffineTransform(d.low, 1.0, domain=constraints.positive)
    made = dist.TransformedDistribution(half.base_dist, [*half.transforms, shift])
    return decompose(made, batch_shape)


for _how in ("expectation", "logits", "natural"):
    decomposer(dist.FoldedDistribution, parameterization=_how)(_folded)
    decomposer(dist.LeftTruncatedDistribution, parameterization=_how)(_left_truncated)


@_stands_in_for(dist.Levy)
def _levy(d: Any) -> Distribution:
    half = jnp.full_like(jnp.asarray(d.scale, jnp.result_type(float)), 0.5)
    shift = T.AffineTransform(d.loc, 1.0, domain=constraints.positive)
    return dist.TransformedDistribution(dist.InverseGamma(half, d.scale / 2), shift)


@_stands_in_for(dist.Uniform)
def _uniform(d: Any) -> Distribution:
    low, width = d.low, d.high - d.low
    interval = T.AffineTransform(low, width, domain=constraints.unit_interval)
    return dist.TransformedDistribution(
        _noise(d.batch_shape), [QuantileTransform("uniform"), interval]
    )


@_stands_in_for(dist.LogUniform)
def _log_uniform(d: Any) -> Distribution:
    low, high = jnp.log(d.low), jnp.log(d.high)
    interval = T.AffineTransform(low, high - low, domain=constraints.unit_interval)
    return dist.TransformedDistribution(
        _noise(d.batch_shape),
        [
            QuantileTransform("uniform"),
            interval,
            T.ExpTransform(domain=constraints.interval(low, high)),
        ],
    )


@_stands_in_for(dist.Chi2)
def _chi2(d: dist.Chi2) -> Distribution:
    return dist.Gamma(d.df / 2, jnp.full_like(jnp.asarray(d.df, jnp.result_type(float)), 0.5))


def _vine(d: dist.LKJCholesky | dist.LKJ) -> tuple[Distribution, list[T.Transform]]:
    """Partial correlations of the C-vine: independent, Beta on (-1, 1)."""
    n = d.dimension - 1
    offset = matrix_to_tril_vec(jnp.broadcast_to(0.5 * jnp.arange(n), (n, n)))
    middle = jnp.expand_dims(d.concentration, -1) + 0.5 * (d.dimension - 2)
    concentration = middle - offset
    partial = dist.Beta(concentration, concentration).to_event(1)
    return partial, [HalfLogitTransform(), T.CorrCholeskyTransform()]


@_stands_in_for(dist.LKJCholesky)
def _lkj_cholesky(d: dist.LKJCholesky) -> Distribution:
    partial, transforms = _vine(d)
    return dist.TransformedDistribution(partial, transforms)


@_stands_in_for(dist.LKJ)
def _lkj(d: dist.LKJ) -> Distribution:
    partial, transforms = _vine(d)
    return dist.TransformedDistribution(partial, [*transforms, T.CorrMatrixCholeskyTransform().inv])


@_stands_in_for(dist.ZeroSumNormal)
def _zero_sum_normal(d: dist.ZeroSumNormal) -> Distribution:
    ndim = d.event_dim
    scale = jnp.reshape(d.scale, jnp.shape(d.scale) + (1,) * ndim)
    shape = d.batch_shape + tuple(size - 1 for size in d.event_shape)
    free = dist.Normal(jnp.zeros(shape), jnp.broadcast_to(scale, shape)).to_event(ndim)
    return dist.TransformedDistribution(free, T.ZeroSumTransform(ndim))


@_stands_in_for(dist.GaussianRandomWalk)
def _gaussian_random_walk(d: dist.GaussianRandomWalk) -> Distribution:
    scale = jnp.broadcast_to(jnp.expand_dims(d.scale, -1), d.shape())
    return GaussianChain(jnp.ones_like(scale), jnp.zeros_like(scale), scale)


register_parameters(GaussianChain, GaussianChain.arg_constraints)


@_stands_in_for(dist.GaussianStateSpace)
def _gaussian_state_space(d: dist.GaussianStateSpace) -> Distribution:
    shape = d.batch_shape + d.event_shape
    scale_tril = jnp.broadcast_to(d.scale_tril[..., None, :, :], (*shape, shape[-1]))
    noise = dist.MultivariateNormal(jnp.zeros(shape), scale_tril=scale_tril).to_event(1)
    recursion = T.RecursiveLinearTransform(d.transition_matrix, initial_value=d._initial_value)
    return dist.TransformedDistribution(noise, recursion)
