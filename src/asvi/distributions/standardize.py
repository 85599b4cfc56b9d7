"""Takes a surrogate; gives it as standard noise and a map to its support.

Every continuous distribution here is read as *core noise* in an unconstrained space and a map to
the support, :math:`x = T(u)`, :math:`u = m + s z`: for a normal T is the identity, m and s its
location and scale; for a log-normal T is the exponential; for a Gamma m and s come from its mean
and variance by the delta method. :math:`z`, the *residual*, is what one site can give another
about where in its distribution the draw lies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from numpyro.distributions import (
    Distribution,
    ExpandedDistribution,
    Gumbel,
    Independent,
    Laplace,
    Logistic,
    MaskedDistribution,
    MultivariateNormal,
    Normal,
    SoftLaplace,
    TransformedDistribution,
    biject_to,
    constraints,
)
from numpyro.distributions import transforms as T

from asvi.distributions.registry import decompose
from asvi.distributions.student_t import TransformedStudentT
from asvi.errors import SiteError
from asvi.program.prior_center import prior_center
from asvi.program.site import Site

__all__ = [
    "Standardized",
    "diagonal",
    "is_direct",
    "noise_shape",
    "noise_widths",
    "rebuilt_prior",
    "standardize",
]

LOCATION_SCALE = (Normal, Laplace, Logistic, Gumbel, SoftLaplace)


@dataclass(frozen=True)
class Standardized:
    """``core`` draws u, of shape batch + own event; ``loc`` and ``scale`` standardise u."""

    core: Any
    transform: Any
    loc: jax.Array
    scale: jax.Array
    direct: bool = False
    """Whether ``loc`` and ``scale`` are parameters of the distribution themselves."""
    unit: Any = None
    """``core`` at location 0 and scale 1, where it is known: draws z without knowing u."""

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.loc.shape[len(self.core.batch_shape) :]


def diagonal(matrix: Any) -> jax.Array:
    """The diagonal of the last two axes; JAX's own asks what machine it runs on."""
    order = np.arange(jnp.shape(matrix)[-1])
    return matrix[..., order, order]


def standardize(dist: Distribution) -> Standardized:
    """``dist`` as unconstrained noise, its location and scale, and the map to its support.

    >>> import numpyro.distributions as dist
    >>> found = standardize(dist.LogNormal(1.0, 2.0).expand([3]).to_event(1))
    >>> found.loc.tolist(), found.scale.tolist(), found.event_shape
    ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], (3,))
    """
    if isinstance(dist, ExpandedDistribution):
        inner = standardize(dist.base_dist)
        shape = dist.batch_shape + inner.event_shape
        inner = _wrapped(inner, lambda core: core.expand(dist.batch_shape))
        return _with(inner, loc=_to(inner.loc, shape), scale=_to(inner.scale, shape))
    if isinstance(dist, Independent):
        inner = standardize(dist.base_dist)
        return _wrapped(inner, lambda core: core.to_event(dist.reinterpreted_batch_ndims))
    if isinstance(dist, MaskedDistribution):
        return standardize(dist.base_dist)  # the mask is the model's affair
    if isinstance(dist, TransformedStudentT):
        core = dist.base_dist
        transform = T.ComposeTransform(dist.transforms)
        return Standardized(core, transform, core.loc, core.scale, unit=core)
    if isinstance(dist, TransformedDistribution):
        inner = standardize(dist.base_dist)
        steps = [] if isinstance(inner.transform, T.IdentityTransform) else [inner.transform]
        # The transforms may turn batch axes of the base into event axes.
        extra = len(inner.core.batch_shape) - len(dist.batch_shape)
        if extra > 0:
            inner = _wrapped(inner, lambda core: core.to_event(extra))
        if inner.core.batch_shape != dist.batch_shape:
            inner = _wrapped(inner, lambda core: core.expand(dist.batch_shape))
        shape = dist.batch_shape + inner.core.event_shape
        return _with(
            inner,
            transform=T.ComposeTransform([*steps, *dist.transforms]),
            loc=_to(inner.loc, shape),
            scale=_to(inner.scale, shape),
        )
    d: Any = dist
    if isinstance(dist, MultivariateNormal):
        zero = jnp.zeros(dist.batch_shape + dist.event_shape, jnp.result_type(d.loc))
        affine = _Whitening(d.loc, d.scale_tril)
        core = Normal(zero, jnp.ones_like(zero)).to_event(1)
        return Standardized(core, affine, zero, jnp.ones_like(zero), unit=core)
    shape = dist.batch_shape + dist.event_shape
    if hasattr(d, "loc") and hasattr(d, "scale") and dist.support is constraints.real:
        loc, scale = _to(d.loc, shape), _to(d.scale, shape)
        return Standardized(dist, T.IdentityTransform(), loc, scale, direct=True, unit=_unit(d))
    return _through_support(dist)


def noise_widths(found: Standardized) -> jax.Array:
    """How far one unit of each number's noise moves its value, before maps to a support.

    >>> import numpyro.distributions as dist
    >>> factor = jnp.array([[2.0, 0.0], [1.0, 3.0]])
    >>> noise_widths(standardize(dist.MultivariateNormal(jnp.zeros(2), scale_tril=factor))).tolist()
    [2.0, 3.0]
    """
    first = found.transform
    if isinstance(first, T.ComposeTransform) and first.parts:
        first = first.parts[0]
    if not isinstance(first, _Whitening):
        return found.scale
    return found.scale * diagonal(first.scale_tril)


def rebuilt_prior(prior: Distribution) -> Distribution:
    """The member of the convex-update family that is the prior itself, as the guide builds it.

    A distribution that has none, known by its density and support alone, stands for itself.
    """
    try:
        parts = decompose(prior)
    except SiteError:
        return prior
    return parts.rebuild({name: leaf.value for name, leaf in parts.leaves.items()})


def noise_shape(site: Site, drawn: bool = True) -> tuple[int, ...] | None:
    """Shape of a site's noise in one run of its body, plates at full size.

    None where there is no noise to be moved: discrete values, point masses, supports without a map
    from the real line (circles, spheres, folded lines); where the noise is to be ``drawn``, also
    priors whose draws have no slope, such as mixtures.
    """

    def noise(prior: Distribution) -> jax.Array:
        found = standardize(rebuilt_prior(prior))
        value = found.transform(found.loc)
        found.transform.log_abs_det_jacobian(found.transform.inv(value), value)  # or it raises
        return found.loc

    if site.is_discrete or (drawn and not site.distribution.has_rsample):
        return None
    try:
        shape = jax.eval_shape(noise, site.distribution).shape
    except (NotImplementedError, AttributeError, TypeError, ValueError):
        return None
    return site.full_batch_shape + shape[len(site.batch_shape) :]


def is_direct(site: Site) -> bool:
    """Whether the leaves ``loc`` and ``scale`` of a site are those of its noise."""
    found = []

    def probe(prior: Distribution) -> jax.Array:
        seen = standardize(rebuilt_prior(prior))
        found.append(seen.direct)
        return seen.loc

    jax.eval_shape(probe, site.distribution)
    return found[0]


def _through_support(dist: Distribution) -> Standardized:
    """Any other distribution: by the bijection of its support."""
    transform = biject_to(dist.support)
    core = TransformedDistribution(dist, transform.inv)
    middle: Any = prior_center(dist)
    loc = transform.inv(middle)
    scale = jnp.ones_like(loc)
    if transform.domain.event_dim == 0 and transform.codomain.event_dim == 0:
        # Delta method: the spread in u is the spread in x over the slope there.
        slope = jnp.exp(transform.log_abs_det_jacobian(loc, middle))
        try:
            spread = jnp.sqrt(jnp.broadcast_to(dist.variance, jnp.shape(middle))) / slope
            scale = jnp.where(jnp.isfinite(spread) & (spread > 0), spread, 1.0)
            scale = jnp.clip(scale, 1e-3, 3.0)
        except (NotImplementedError, AttributeError):
            pass
    return Standardized(core, transform, loc, scale)


def _unit(dist: Any) -> Any:
    """A distribution of location and scale at 0 and 1; None where scaling may mean more."""
    if type(dist) not in LOCATION_SCALE:
        return None
    shape, dtype = dist.batch_shape, jnp.result_type(float)
    others = {n: getattr(dist, n) for n in dist.arg_constraints if n not in ("loc", "scale")}
    zero, one = jnp.zeros(shape, dtype), jnp.ones(shape, dtype)
    return type(dist)(**others, loc=zero, scale=one, validate_args=False)


def _wrapped(found: Standardized, wrap: Callable[[Any], Any]) -> Standardized:
    unit = None if found.unit is None else wrap(found.unit)
    return _with(found, core=wrap(found.core), unit=unit)


def _with(found: Standardized, **changes: Any) -> Standardized:
    return Standardized(**{**vars(found), **changes})


def _to(value: Any, shape: tuple[int, ...]) -> jax.Array:
    return jnp.broadcast_to(jnp.asarray(value, jnp.result_type(float)), shape)


class _Whitening(T.Transform):
    """x = loc + L z, also for batches of L, which NumPyro's own transform does not take."""

    domain = constraints.real_vector
    codomain = constraints.real_vector

    def __init__(self, loc: jax.Array, scale_tril: jax.Array):
        self.loc, self.scale_tril = loc, scale_tril

    def __call__(self, z):
        return self.loc + jnp.einsum("...ij,...j->...i", self.scale_tril, z)

    def _inverse(self, x):
        z = (x - self.loc)[..., None]
        lead = jnp.broadcast_shapes(z.shape[:-2], self.scale_tril.shape[:-2])
        factor = jnp.broadcast_to(self.scale_tril, lead + self.scale_tril.shape[-2:])
        return solve_triangular(factor, jnp.broadcast_to(z, lead + z.shape[-2:]), lower=True)[
            ..., 0
        ]

    def log_abs_det_jacobian(self, z, x, intermediates=None):
        slope = jnp.sum(jnp.log(diagonal(self.scale_tril)), -1)
        return jnp.broadcast_to(slope, jnp.shape(x)[:-1])

    def tree_flatten(self):
        return (self.loc, self.scale_tril), (("loc", "scale_tril"), {})

    def eq(self, other, static: bool = False):
        return isinstance(other, _Whitening) and jnp.array_equal(self.loc, other.loc)
