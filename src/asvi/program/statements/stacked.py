"""Takes the distributions met in a control-flow body; gives one distribution for all its runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, FoldedDistribution, constraints
from numpyro.distributions.distribution import validation_enabled

__all__ = ["Evaluated", "Stacked", "log_prob_at", "over_steps"]


def over_steps(function, steps: int):
    """``function`` mapped over ``steps`` leading axes of all its arguments."""
    for _ in range(steps):
        function = jax.vmap(function)
    return function


def log_prob_at(dist: Distribution, value: jax.Array, intermediates: Any) -> jax.Array:
    """Log density at a draw, from what the draw was made from where the distribution takes that.

    It is exact where the inverse of a transform would saturate. NumPyro's own check of the value is
    left out: it cannot name the site.
    """
    with validation_enabled(False):
        if intermediates and not isinstance(dist, FoldedDistribution):
            return dist.log_prob(value, intermediates)
        return dist.log_prob(value)


class Stacked(Distribution):
    r"""The conditional distributions of one ``scan`` site, one per step, along a leading axis.

    :math:`\log p(x_{1:T}) = (\log p_1(x_1), \ldots, \log p_T(x_T))`, computed by ``vmap`` over the
    steps, so it holds for every distribution, however its parameters broadcast.

    >>> import numpyro.distributions as dist
    >>> steps = jax.vmap(lambda loc: dist.Normal(loc, 1.0))(jnp.arange(3.0))
    >>> Stacked(steps, 3).log_prob(jnp.arange(3.0)).shape
    (3,)
    """

    arg_constraints = {}
    pytree_data_fields = ("step_dist",)
    pytree_aux_fields = ("length",)

    def __init__(self, step_dist: Distribution, length: int):
        self.step_dist, self.length = step_dist, length
        super().__init__(
            (length, *step_dist.batch_shape), step_dist.event_shape, validate_args=False
        )

    @property
    def support(self) -> constraints.Constraint:
        return self.step_dist.support

    @property
    def has_rsample(self) -> bool:
        return self.step_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:
        return False

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        keys = jax.random.split(key, self.length)
        draw = jax.vmap(
            lambda dist, key: dist.sample(key, sample_shape), out_axes=len(sample_shape)
        )
        return draw(self.step_dist, keys)

    def rsample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.sample(key, sample_shape)

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        if intermediates:
            return jax.vmap(log_prob_at)(self.step_dist, value, intermediates)
        return jax.vmap(lambda d, v: d.log_prob(v))(self.step_dist, value)

    @property
    def mean(self) -> jax.Array:
        return jax.vmap(lambda d: jnp.broadcast_to(d.mean, d.shape()))(self.step_dist)

    @property
    def variance(self) -> jax.Array:
        return jax.vmap(lambda d: jnp.broadcast_to(d.variance, d.shape()))(self.step_dist)


class Evaluated(Distribution):
    """A site of a ``cond`` branch, known by its log density at the value that it took.

    The two branches may use different families, so no one distribution stands for both.
    """

    arg_constraints = {}
    pytree_data_fields = ("evaluated",)
    pytree_aux_fields = ("discrete", "reparameterized")

    def __init__(self, evaluated: jax.Array, event_shape, discrete: bool, reparameterized: bool):
        self.evaluated = evaluated
        self.discrete, self.reparameterized = discrete, reparameterized
        super().__init__(jnp.shape(evaluated), event_shape, validate_args=False)

    @classmethod
    def like(cls, dist: Distribution, log_prob: jax.Array) -> Evaluated:
        discrete = dist.support is not None and dist.support.is_discrete
        return cls(log_prob, dist.event_shape, discrete, dist.has_rsample)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.dependent(is_discrete=self.discrete, event_dim=self.event_dim)

    @property
    def has_rsample(self) -> bool:
        return self.reparameterized

    def log_prob(self, value: jax.Array, intermediates: Any = None) -> jax.Array:
        del value, intermediates
        return self.evaluated
