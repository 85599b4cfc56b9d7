"""Takes a distribution and what its site is given of others; gives it with its noise warped.

The noise is that of :mod:`asvi.distributions.standardize`. It is bent by a spline, skewed, shifted
by a triangle among its own numbers, stretched, and offset: each a map with an inverse and a
Jacobian in closed form.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from numpyro.distributions import Distribution, constraints
from numpyro.distributions import transforms as T
from numpyro.distributions.util import sum_rightmost

from asvi.distributions.settings import WarpedNoiseSettings
from asvi.distributions.spline import spline_forward, spline_inverse
from asvi.distributions.standardize import standardize

__all__ = ["Residual", "WarpedNoise", "residual"]


class Residual(NamedTuple):
    """What a site gives to others: its noise as drawn, and as warped by that of others."""

    drawn: jax.Array
    warped: jax.Array


def residual(dist: Distribution, value: jax.Array, intermediates: Any = None) -> Residual:
    """Where in ``dist`` a value lies: noise of shape batch + unconstrained event.

    A discrete value is its own residual: it says more than any standardised number.
    """
    if isinstance(dist, WarpedNoise):
        return dist.noise(value, intermediates)
    if dist.support is not None and dist.support.is_discrete:
        value = jnp.asarray(value, jnp.result_type(float))
        return Residual(value, value)
    found = standardize(dist)
    drawn = (found.transform.inv(value) - found.loc) / found.scale
    return Residual(drawn, drawn)


class WarpedNoise(Distribution):
    r"""A distribution whose standard noise is warped by affine, triangular maps.

    With the base's noise z, location m, scale s and map T,

    .. math::

        w = S(z), \quad v = w + a(\sqrt{1 + w^2} - 1), \quad \epsilon = e^c (v + B v) + h,
        \quad x = T\bigl(m + s\,(\epsilon + W\epsilon + g)\bigr),

    with :math:`|a| < 1` and B and W strictly lower triangular. S is a monotone spline, or nothing.
    v is *skewed*: far out it has slope 1 + a to the right and 1 - a to the left. The density is the
    base's at z over :math:`e^{\sum c}\prod S'(z)(1 + a w/\sqrt{1 + w^2})`. ``within`` and
    ``fixed_triangle`` are B and W, as blocks (blocks, k, k) over v flattened to (blocks, k). Others
    are given w and ε times ``output_gain`` V; with ``input_gain`` l, the numbers themselves are
    given :math:`l B(V v)`.

    >>> import numpyro.distributions as dist
    >>> warped = WarpedNoise(dist.Normal(1.0, 2.0), jnp.array(0.5))
    >>> float(warped.log_prob(2.0)), float(dist.Normal(1.0, 2.0).log_prob(1.0))
    (-1.6120857..., -1.6120857...)
    """

    arg_constraints = {}
    pytree_data_fields = (
        "base",
        "offset",
        "log_scale",
        "within",
        "shift",
        "fixed_triangle",
        "skew",
        "input_gain",
        "output_gain",
        "spline",
    )
    pytree_aux_fields = ("settings",)

    def __init__(
        self,
        base: Distribution,
        offset: jax.Array,
        log_scale: jax.Array | None = None,
        within: jax.Array | None = None,
        shift: jax.Array | None = None,
        fixed_triangle: jax.Array | None = None,
        skew: jax.Array | None = None,
        input_gain: jax.Array | None = None,
        output_gain: jax.Array | None = None,
        spline: jax.Array | None = None,
        settings: WarpedNoiseSettings = WarpedNoiseSettings(),
    ):
        self.settings = settings
        self.base, self.offset, self.log_scale = base, offset, log_scale
        self.within, self.shift, self.fixed_triangle = within, shift, fixed_triangle
        self.skew, self.input_gain, self.output_gain, self.spline = (
            skew,
            input_gain,
            output_gain,
            spline,
        )
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return self.base.support

    @property
    def has_rsample(self) -> bool:
        return self.base.has_rsample

    # -------------------------------------------------------------------------- noise to values

    def _warped(self, z: jax.Array) -> jax.Array:
        """ε from z."""
        v = z if self.spline is None else spline_forward(z, self.spline)[0]
        v = v if self.skew is None else v + self.skew * (jnp.sqrt(1 + v**2) - 1)
        v = v + self._mixed_within(self.within, v)
        return (v if self.log_scale is None else jnp.exp(self.log_scale) * v) + self.offset

    def _mixed_within(self, triangle: jax.Array | None, v: jax.Array) -> jax.Array | float:
        """What the numbers of this site add to each other."""
        if triangle is None or self.input_gain is None or self.output_gain is None:
            return _below(triangle, v)
        return self.input_gain * _below(triangle, self.output_gain * v)

    def _gated(self, triangle: jax.Array | None) -> jax.Array | None:
        """The triangle of the same: one matrix for this draw."""
        if triangle is None or self.input_gain is None or self.output_gain is None:
            return triangle
        into, out_of = (
            jnp.reshape(x, triangle.shape[:-1]) for x in (self.input_gain, self.output_gain)
        )
        return into[..., :, None] * triangle * out_of[..., None, :]

    def _unwarped(self, warped: jax.Array) -> jax.Array:
        """z from ε."""
        # The stretch is taken off first: it differs from draw to draw, and the triangle does not.
        free = warped - self.offset
        free = free if self.log_scale is None else jnp.exp(-self.log_scale) * free
        v = _solved(self._gated(self.within), free, self.settings)
        v = v if self.skew is None else _unskewed(v, self.skew)
        return v if self.spline is None else spline_inverse(v, self.spline)

    def sample_with_intermediates(self, key: jax.Array, sample_shape: tuple[int, ...] = ()):
        if sample_shape:
            keys = jax.random.split(key, prod(sample_shape))
            found = jax.vmap(self.sample_with_intermediates)(keys)
            return jax.tree.map(lambda x: x.reshape(sample_shape + x.shape[1:]), found)
        base = standardize(self.base)
        if base.unit is not None:
            z = base.unit.sample(
                key
            )  # known before loc and scale are: see `control_flow/hoisting.py`
        else:
            z = (base.core.sample(key) - base.loc) / base.scale
        return self.of_noise(z)

    def of_noise(self, z: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        """The value that noise z makes, and z, ε and u."""
        base = standardize(self.base)
        warped = self._warped(z)
        centred = warped + self._mixed_within(self.fixed_triangle, warped)
        if self.shift is not None:
            centred = centred + self.shift
        u = base.loc + base.scale * centred
        return base.transform(u), [z, warped, u]

    def log_volume(self, value: jax.Array, intermediates: list[jax.Array]) -> jax.Array:
        """Log volume of values over that of z, where these ``intermediates`` made ``value``."""
        base = standardize(self.base)
        z, _, u = intermediates
        return self._volume_of_scale(base) + self._volume_without_scale(base, z, u, value)

    def _volume_of_scale(self, base: Any) -> jax.Array:
        slope = jnp.log(base.scale)
        return sum_rightmost(slope, jnp.ndim(slope) - len(self.batch_shape))

    def _volume_without_scale(self, base: Any, z: jax.Array, u: jax.Array, value: jax.Array) -> Any:
        """Log volume of values over that of z, the base's scale left out."""
        batch, volume = len(self.batch_shape), 0.0
        if self.log_scale is not None:
            volume = volume + sum_rightmost(self.log_scale, jnp.ndim(self.log_scale) - batch)
        if self.spline is not None:
            z, slope = spline_forward(z, self.spline)
            volume = volume + sum_rightmost(slope, jnp.ndim(slope) - batch)
        if self.skew is not None:
            slope = jnp.log1p(self.skew * z / jnp.sqrt(1 + z**2))
            volume = volume + sum_rightmost(slope, jnp.ndim(slope) - batch)
        if not isinstance(base.transform, T.IdentityTransform):
            slope = base.transform.log_abs_det_jacobian(u, value)
            volume = volume + sum_rightmost(slope, jnp.ndim(slope) - batch)
        return volume

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.sample_with_intermediates(key, sample_shape)[0]

    rsample = sample

    # -------------------------------------------------------------------------- values to noise

    def _found(self, value: jax.Array, intermediates: Any) -> tuple[jax.Array, ...]:
        if intermediates:
            return tuple(intermediates)
        base = standardize(self.base)
        u = base.transform.inv(value)
        centred = (u - base.loc) / base.scale
        if self.shift is not None:
            centred = centred - self.shift
        warped = _solved(self._gated(self.fixed_triangle), centred, self.settings)
        return self._unwarped(warped), warped, u

    def unit_noise(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        """z, the base's own noise, that made ``value``."""
        return self._found(value, intermediates)[0]

    def noise(self, value: jax.Array, intermediates: Any = None) -> Residual:
        """What others are given of the noise that made ``value``."""
        drawn, warped, _ = self._found(value, intermediates)
        if self.spline is not None:
            # As the spline bends it: so it says where it lies, whatever the spline.
            drawn = spline_forward(drawn, self.spline)[0]
        if self.output_gain is None:
            return Residual(drawn, warped)
        return Residual(self.output_gain * drawn, self.output_gain * warped)

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        lead = jnp.ndim(value) - len(self.shape())
        if lead > 0 and not intermediates:
            found = self.log_prob
            for _ in range(lead):
                found = jax.vmap(found)
            return found(value)
        base = standardize(self.base)
        z, _, u = self._found(value, intermediates)
        if base.unit is not None:
            density = base.unit.log_prob(z) - self._volume_of_scale(base)
        else:
            density = base.core.log_prob(base.loc + base.scale * z)
        return density - self._volume_without_scale(base, z, u, value)

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


def _solved(
    triangle: jax.Array | None, moved: jax.Array, settings: WarpedNoiseSettings
) -> jax.Array:
    """z such that ``z + _below(triangle, z)`` is ``moved``."""
    if triangle is None:
        return moved
    size = triangle.shape[-1]
    flat = jnp.reshape(moved, (-1, size))
    if size <= settings.max_unrolled:
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
