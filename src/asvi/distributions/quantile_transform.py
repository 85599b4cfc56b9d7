"""Takes the parts of a prior that is too poor to be updated; gives richer pieces with its support.

The pieces here are transforms and distributions that NumPyro does not have. Which prior is replaced
by what is said in :mod:`asvi.distributions.substitutions`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, Normal, constraints
from numpyro.distributions.transforms import ParameterFreeTransform, Transform

from asvi.distributions.prior_quantiles import log_slope, noise_of, quantile_at

__all__ = ["GaussianChain", "HalfLogitTransform", "QuantileTransform"]


class QuantileTransform(Transform):
    r"""Normal noise through a prior's own quantile function: :math:`u = s F^{-1}(\Phi(z))`.

    With :math:`z \sim N(0, 1)` this *is* the prior with scale :math:`s`; with other location and
    scale of :math:`z` it moves mass anywhere in the support. For a scale :math:`\omega < 1` of
    :math:`z`, the density falls to 0 at the edge of the support like :math:`u^{1/\omega^2 - 1}`;
    once :math:`\omega < 1/\sqrt2`, :math:`E[u^{-2}]`, which hierarchical models need, is finite. A
    truncated normal's never is.

    Both tails are computed from their own small probability, so nothing saturates before float32
    ends (|z| about 13).

    >>> t = QuantileTransform("half_normal", 2.0)
    >>> z = jnp.array([-6.0, 0.0, 6.0])
    >>> bool(jnp.allclose(t.inv(t(z)), z, atol=1e-4))
    True
    """

    def __init__(self, kind: str, scale: Any = 1.0):
        self.kind, self.scale = kind, scale

    domain = constraints.real

    @property
    def codomain(self) -> constraints.Constraint:
        return constraints.unit_interval if self.kind == "uniform" else constraints.positive

    def __call__(self, z):
        return self.scale * quantile_at(self.kind, z)

    def _inverse(self, y):
        return noise_of(self.kind, y / self.scale)

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        return log_slope(self.kind, x, y / self.scale) + jnp.log(self.scale)

    def forward_shape(self, shape):
        return jnp.broadcast_shapes(shape, jnp.shape(self.scale))

    inverse_shape = forward_shape

    def tree_flatten(self):
        return (self.scale,), (("scale",), {"kind": self.kind})

    def eq(self, other, static: bool = False):
        if not isinstance(other, QuantileTransform) or self.kind != other.kind:
            return False
        return jnp.array_equiv(self.scale, other.scale)


class HalfLogitTransform(ParameterFreeTransform):
    r"""From the unit interval to the real line: :math:`y = \frac12 \log\frac{x}{1-x}`.

    The inverse hyperbolic tangent of the partial correlation :math:`2x - 1`.
    """

    domain = constraints.unit_interval
    codomain = constraints.real

    def __call__(self, x):
        edge = jnp.finfo(jnp.result_type(x)).eps
        x = jnp.clip(x, edge, 1 - edge)
        return 0.5 * (jnp.log(x) - jnp.log1p(-x))

    def _inverse(self, y):
        return jax.nn.sigmoid(2 * y)

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        return -jnp.log(2.0) - jax.nn.log_sigmoid(2 * y) - jax.nn.log_sigmoid(-2 * y)


class GaussianChain(Distribution):
    r"""A linear Gaussian chain as one vector: :math:`x_t \sim N(w_t x_{t-1} + b_t, s_t)`.

    With :math:`x_0 = 0`. All :math:`w_t = 1`, :math:`b_t = 0` is the Gaussian random walk; the
    smoothing posterior of a random walk under Gaussian observations is another member.

    >>> chain = GaussianChain(jnp.ones(3), jnp.zeros(3), jnp.ones(3))
    >>> chain.sample(jax.random.key(0), (5,)).shape, chain.log_prob(jnp.zeros(3)).shape
    ((5, 3), ())
    """

    arg_constraints = {
        "weight": constraints.independent(constraints.unit_interval, 1),
        "shift": constraints.real_vector,
        "scale": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    reparametrized_params = ["weight", "shift", "scale"]

    def __init__(self, weight, shift, scale, *, validate_args=None):
        shape = jnp.broadcast_shapes(jnp.shape(weight), jnp.shape(shift), jnp.shape(scale))
        self.weight, self.shift, self.scale = (
            jnp.broadcast_to(x, shape) for x in (weight, shift, scale)
        )
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def sample(self, key: Any, sample_shape=()):
        noise = jax.random.normal(key, sample_shape + self.shape())
        steps = self.shift + self.scale * noise
        weight = jnp.broadcast_to(self.weight, steps.shape)

        def compose(first, second):
            return first[0] * second[0], first[1] * second[0] + second[1]

        return jax.lax.associative_scan(compose, (weight, steps), axis=-1)[1]

    def log_prob(self, value):
        before = jnp.concatenate([jnp.zeros_like(value[..., :1]), value[..., :-1]], axis=-1)
        return Normal(self.weight * before + self.shift, self.scale).log_prob(value).sum(-1)

    @property
    def mean(self):
        def step(x, inputs):
            x = inputs[0] * x + inputs[1]
            return x, x

        inputs = tuple(jnp.moveaxis(x, -1, 0) for x in (self.weight, self.shift))
        _, means = jax.lax.scan(step, jnp.zeros(self.batch_shape), inputs)
        return jnp.moveaxis(means, 0, -1)
