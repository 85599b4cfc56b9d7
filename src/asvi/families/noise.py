"""Takes a surrogate; gives it as standard noise moved by other noise: a shift and a triangle.

Every continuous distribution here is read as *core noise* in an unconstrained space and a map to
the support, :math:`x = T(u)`, :math:`u = m + s z`: for a normal T is the identity, m and s its
location and scale; for a log-normal T is the exponential; for a Gamma m and s come from its mean
and variance by the delta method. :math:`z`, the *residual*, is what one site can tell another
about where in its distribution the draw lies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from numpyro.distributions import (
    Cauchy,
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
    StudentT,
    TransformedDistribution,
    biject_to,
    constraints,
)
from numpyro.distributions import transforms as T
from numpyro.distributions.util import sum_rightmost

from asvi.center import center
from asvi.families.parameters import decompose
from asvi.program import Site

__all__ = [
    "Heard",
    "MovedNoise",
    "Standard",
    "is_direct",
    "noise_shape",
    "residual",
    "stand_in",
    "standard",
]

LOCATION_SCALE = (Normal, StudentT, Cauchy, Laplace, Logistic, Gumbel, SoftLaplace)
UNROLLED = 4  # numbers: triangles this small are solved line by line, without a library call


@dataclass(frozen=True)
class Standard:
    """``core`` draws u, of shape batch + own event; ``loc`` and ``scale`` standardise u."""

    core: Any
    transform: Any
    loc: jax.Array
    scale: jax.Array
    mask: Any = None
    direct: bool = False
    """Whether ``loc`` and ``scale`` are parameters of the distribution themselves."""
    unit: Any = None
    """``core`` at location 0 and scale 1, where it is known: draws z without knowing u."""

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.loc.shape[len(self.core.batch_shape) :]


def standard(dist: Distribution) -> Standard:
    """``dist`` as unconstrained noise, its location and scale, and the map to its support.

    >>> import numpyro.distributions as dist
    >>> found = standard(dist.LogNormal(1.0, 2.0).expand([3]).to_event(1))
    >>> found.loc.tolist(), found.scale.tolist(), found.event_shape
    ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], (3,))
    """
    if isinstance(dist, ExpandedDistribution):
        inner = standard(dist.base_dist)
        shape = dist.batch_shape + inner.event_shape
        inner = _wrapped(inner, lambda core: core.expand(dist.batch_shape))
        return _with(inner, loc=_to(inner.loc, shape), scale=_to(inner.scale, shape))
    if isinstance(dist, Independent):
        inner = standard(dist.base_dist)
        return _wrapped(inner, lambda core: core.to_event(dist.reinterpreted_batch_ndims))
    if isinstance(dist, MaskedDistribution):
        inner = standard(dist.base_dist)
        mask = dist._mask if inner.mask is None else dist._mask & inner.mask
        return _with(inner, mask=mask)
    if isinstance(dist, TransformedDistribution):
        inner = standard(dist.base_dist)
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
        return Standard(core, affine, zero, jnp.ones_like(zero), unit=core)
    shape = dist.batch_shape + dist.event_shape
    if hasattr(d, "loc") and hasattr(d, "scale") and dist.support is constraints.real:
        loc, scale = _to(d.loc, shape), _to(d.scale, shape)
        return Standard(dist, T.IdentityTransform(), loc, scale, direct=True, unit=_unit(d))
    return _through_support(dist)


def stand_in(prior: Distribution) -> Distribution:
    """The member of the convex-update family that is the prior itself, as the guide builds it."""
    parts = decompose(prior)
    return parts.rebuild({name: leaf.value for name, leaf in parts.leaves.items()})


def noise_shape(site: Site) -> tuple[int, ...] | None:
    """Shape of a site's noise in one run of its body, plates at full size.

    None where there is no noise to be moved: discrete values, point masses, supports without a map
    from the real line (circles, spheres, folded lines).
    """

    def noise(prior: Distribution) -> jax.Array:
        found = standard(stand_in(prior))
        value = found.transform(found.loc)
        found.transform.log_abs_det_jacobian(found.transform.inv(value), value)  # or it raises
        return found.loc

    if site.is_discrete or not site.distribution.has_rsample:
        return None
    try:
        shape = jax.eval_shape(noise, site.distribution).shape
    except (NotImplementedError, AttributeError, TypeError, ValueError):
        return None
    return site.full_batch_shape + shape[len(site.batch_shape) :]


def is_direct(site: Site) -> bool:
    """Whether the leaves ``loc`` and ``scale`` of a site are those of its noise."""
    found = []

    def look(prior: Distribution) -> jax.Array:
        seen = standard(stand_in(prior))
        found.append(seen.direct)
        return seen.loc

    jax.eval_shape(look, site.distribution)
    return found[0]


def _through_support(dist: Distribution) -> Standard:
    """Any other distribution: by the bijection of its support."""
    transform = biject_to(dist.support)
    core = TransformedDistribution(dist, transform.inv)
    middle: Any = center(dist)
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
    return Standard(core, transform, loc, scale)


def _unit(dist: Any) -> Any:
    """A distribution of location and scale at 0 and 1; None where scaling may mean more."""
    if type(dist) not in LOCATION_SCALE:
        return None
    shape, dtype = dist.batch_shape, jnp.result_type(float)
    others = {n: getattr(dist, n) for n in dist.arg_constraints if n not in ("loc", "scale")}
    zero, one = jnp.zeros(shape, dtype), jnp.ones(shape, dtype)
    return type(dist)(**others, loc=zero, scale=one, validate_args=False)


def _wrapped(found: Standard, wrap: Callable[[Any], Any]) -> Standard:
    unit = None if found.unit is None else wrap(found.unit)
    return _with(found, core=wrap(found.core), unit=unit)


def _with(found: Standard, **changes: Any) -> Standard:
    return Standard(**{**vars(found), **changes})


def _to(value: Any, shape: tuple[int, ...]) -> jax.Array:
    return jnp.broadcast_to(jnp.asarray(value, jnp.result_type(float)), shape)


def residual(dist: Distribution, value: jax.Array, intermediates: Any = None) -> Heard:
    """Where in ``dist`` a value lies: noise of shape batch + unconstrained event.

    A discrete value is its own residual: it tells more than any standardised number.
    """
    if isinstance(dist, MovedNoise):
        return dist.noise(value, intermediates)
    if dist.support is not None and dist.support.is_discrete:
        value = jnp.asarray(value, jnp.result_type(float))
        return Heard(value, value)
    found = standard(dist)
    drawn = (found.transform.inv(value) - found.loc) / found.scale
    return Heard(drawn, drawn)


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
        slope = jnp.sum(jnp.log(jnp.diagonal(self.scale_tril, axis1=-2, axis2=-1)), -1)
        return jnp.broadcast_to(slope, jnp.shape(x)[:-1])

    def tree_flatten(self):
        return (self.loc, self.scale_tril), (("loc", "scale_tril"), {})

    def eq(self, other, static: bool = False):
        return isinstance(other, _Whitening) and jnp.array_equal(self.loc, other.loc)


class Heard(NamedTuple):
    """What a site tells others: its noise as drawn, and as moved by what it heard itself."""

    drawn: jax.Array
    moved: jax.Array


class MovedNoise(Distribution):
    r"""A distribution whose standard noise is moved by affine, triangular maps.

    With the base's noise z, location m, scale s and map T,

    .. math::

        v = z + a(\sqrt{1 + z^2} - 1), \quad \epsilon = e^c (v + B v) + h, \qquad
        x = T\bigl(m + s\,(\epsilon + W\epsilon + g)\bigr),

    with :math:`|a| < 1` and B and W strictly lower triangular. v is *skewed*: far out it has slope
    1 + a to the right and 1 - a to the left. The density is the base's at z over
    :math:`e^{\sum c}\prod(1 + a z/\sqrt{1 + z^2})`. ``within`` and ``frame_within`` are B and W,
    as blocks (blocks, k, k) over v flattened to (blocks, k).

    >>> import numpyro.distributions as dist
    >>> moved = MovedNoise(dist.Normal(1.0, 2.0), jnp.array(0.5))
    >>> float(moved.log_prob(2.0)), float(dist.Normal(1.0, 2.0).log_prob(1.0))
    (-1.6120857..., -1.6120857...)
    """

    arg_constraints = {}
    pytree_data_fields = ("base", "offset", "stretch", "within", "shift", "frame_within", "skew")

    def __init__(
        self,
        base: Distribution,
        offset: jax.Array,
        stretch: jax.Array | None = None,
        within: jax.Array | None = None,
        shift: jax.Array | None = None,
        frame_within: jax.Array | None = None,
        skew: jax.Array | None = None,
    ):
        self.base, self.offset, self.stretch = base, offset, stretch
        self.within, self.shift, self.frame_within = within, shift, frame_within
        self.skew = skew
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return self.base.support

    @property
    def has_rsample(self) -> bool:
        return self.base.has_rsample

    # -------------------------------------------------------------------------- noise to values

    def _moved(self, z: jax.Array) -> jax.Array:
        """ε from z."""
        v = z if self.skew is None else z + self.skew * (jnp.sqrt(1 + z**2) - 1)
        v = v + _below(self.within, v)
        return (v if self.stretch is None else jnp.exp(self.stretch) * v) + self.offset

    def _unmoved(self, moved: jax.Array) -> jax.Array:
        """z from ε."""
        # The stretch is taken off first: it differs from draw to draw, and the triangle does not.
        free = moved - self.offset
        free = free if self.stretch is None else jnp.exp(-self.stretch) * free
        v = _solved(self.within, free)
        return v if self.skew is None else _unskewed(v, self.skew)

    def sample_with_intermediates(self, key: jax.Array, sample_shape: tuple[int, ...] = ()):
        if sample_shape:
            keys = jax.random.split(key, prod(sample_shape))
            found = jax.vmap(self.sample_with_intermediates)(keys)
            return jax.tree.map(lambda x: x.reshape(sample_shape + x.shape[1:]), found)
        base = standard(self.base)
        if base.unit is not None:
            z = base.unit.sample(key)  # known before loc and scale are: see `hoisting.py`
        else:
            z = (base.core.sample(key) - base.loc) / base.scale
        moved = self._moved(z)
        framed = moved + _below(self.frame_within, moved)
        if self.shift is not None:
            framed = framed + self.shift
        u = base.loc + base.scale * framed
        return base.transform(u), [z, moved, u]

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.sample_with_intermediates(key, sample_shape)[0]

    rsample = sample

    # -------------------------------------------------------------------------- values to noise

    def _found(self, value: jax.Array, intermediates: Any) -> tuple[jax.Array, ...]:
        if intermediates:
            return tuple(intermediates)
        base = standard(self.base)
        u = base.transform.inv(value)
        framed = (u - base.loc) / base.scale
        if self.shift is not None:
            framed = framed - self.shift
        moved = _solved(self.frame_within, framed)
        return self._unmoved(moved), moved, u

    def noise(self, value: jax.Array, intermediates: Any = None) -> Heard:
        """The noise that made ``value``."""
        drawn, moved, _ = self._found(value, intermediates)
        return Heard(drawn, moved)

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        lead = jnp.ndim(value) - len(self.shape())
        if lead > 0 and not intermediates:
            found = self.log_prob
            for _ in range(lead):
                found = jax.vmap(found)
            return found(value)
        base = standard(self.base)
        z, _, u = self._found(value, intermediates)
        batch = len(self.batch_shape)
        if base.unit is not None:
            slope = jnp.log(base.scale)
            density = base.unit.log_prob(z) - sum_rightmost(slope, jnp.ndim(slope) - batch)
        else:
            density = base.core.log_prob(base.loc + base.scale * z)
        if self.stretch is not None:
            density = density - sum_rightmost(self.stretch, jnp.ndim(self.stretch) - batch)
        if self.skew is not None:
            slope = jnp.log1p(self.skew * z / jnp.sqrt(1 + z**2))
            density = density - sum_rightmost(slope, jnp.ndim(slope) - batch)
        if not isinstance(base.transform, T.IdentityTransform):
            slope = base.transform.log_abs_det_jacobian(u, value)
            density = density - sum_rightmost(slope, jnp.ndim(slope) - batch)
        return density if base.mask is None else jnp.where(base.mask, density, 0.0)

    @property
    def mean(self) -> jax.Array:
        # NumPyro's way to say that moments are not known: T is not linear.
        raise NotImplementedError

    variance = mean


def _unskewed(v: jax.Array, skew: jax.Array) -> jax.Array:
    """z such that z + a(√(1 + z²) - 1) is v: the root of a quadratic."""
    w = v + skew
    left = 1 - skew**2
    return (w - skew * jnp.sqrt(w**2 + left)) / left


def _below(triangle: jax.Array | None, z: jax.Array) -> jax.Array | float:
    """What the numbers before each number add to it; ``triangle`` is (blocks, k, k)."""
    if triangle is None:
        return 0.0
    size = triangle.shape[-1]
    flat = jnp.reshape(z, (-1, size))
    lower = jnp.tril(triangle, -1)
    if len(lower) == 1:
        return jnp.reshape(flat @ lower[0].T, z.shape)
    return jnp.reshape(jnp.einsum("bij,bj->bi", lower, flat), z.shape)


def _solved(triangle: jax.Array | None, moved: jax.Array) -> jax.Array:
    """z such that ``z + _below(triangle, z)`` is ``moved``."""
    if triangle is None:
        return moved
    size = triangle.shape[-1]
    flat = jnp.reshape(moved, (-1, size))
    if size <= UNROLLED:
        found: list[jax.Array] = []
        for i in range(size):
            known = sum((triangle[:, i, j] * found[j] for j in range(i)), jnp.zeros(()))
            found.append(flat[:, i] - known)
        return jnp.reshape(jnp.stack(found, -1), moved.shape)
    lower = jnp.tril(triangle, -1)
    if len(lower) == 1:
        solved = solve_triangular(lower[0], flat[0][:, None], lower=True, unit_diagonal=True)
    else:
        solved = solve_triangular(lower, flat[..., None], lower=True, unit_diagonal=True)
    return jnp.reshape(solved, moved.shape)
