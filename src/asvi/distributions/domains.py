"""Takes domains of distributions' parameters; gives convex mixtures in them, and safe values.

A prior weight is one number for each free number of a leaf where the domain is a product of
intervals, and one for all of them where it is convex and no product (simplex, ordered vectors).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to, constraints
from numpyro.distributions import transforms as T
from numpyro.distributions.util import vec_to_tril_matrix

from asvi.distributions.registry import Leaf
from asvi.distributions.settings import DomainSettings
from asvi.program.unwrapping import bare_constraint

__all__ = ["PriorWeight", "inside", "mix", "prior_weight_shape"]


class PriorWeight(constraints.Constraint):
    """The open unit interval, optimised through a steep gate: λ = sigmoid(gain · x).

    λ starts near 1, where a plain sigmoid is flat; the gain lets Adam-like optimisers, whose steps
    have a fixed length in x, cross the gate in a few hundred steps.
    """

    def __init__(self, gain: float = 4.0):
        self.gain = gain

    def __call__(self, x):
        return (x >= 0) & (x <= 1)

    def feasible_like(self, prototype):
        return jnp.full_like(prototype, 0.5)

    def tree_flatten(self):
        return (), ((), {"gain": self.gain})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PriorWeight) and self.gain == other.gain


@biject_to.register(PriorWeight)
def _biject_to_prior_weight(constraint):
    return T.ComposeTransform([T.AffineTransform(0.0, constraint.gain), T.SigmoidTransform()])


def mix(weight: jax.Array, leaf: Leaf, data_term: jax.Array) -> jax.Array:
    """``λ⊙θ + (1-λ)⊙α`` with λ in the shape that the leaf's domain asks for."""
    domain = bare_constraint(leaf.constraint)
    if _is_lower(domain):
        weight = vec_to_tril_matrix(weight)
    elif domain.event_dim > 0:
        # Convex but no product of intervals (simplex, ordered, positive definite, ...):
        # mixing its entries with different weights would leave the set.
        weight = jnp.reshape(weight, jnp.shape(weight) + (1,) * domain.event_dim)
    return weight * leaf.value + (1.0 - weight) * data_term


def prior_weight_shape(domain: constraints.Constraint, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of λ for a leaf of this domain and shape: as many as the leaf has free numbers.

    >>> prior_weight_shape(constraints.simplex, (7, 3)), prior_weight_shape(constraints.real, (7,))
    ((7,), (7,))
    >>> prior_weight_shape(constraints.lower_cholesky, (7, 3, 3))
    (7, 6)
    """
    domain = bare_constraint(domain)
    if _is_lower(domain):
        return (*shape[:-2], shape[-1] * (shape[-1] + 1) // 2)
    if domain.event_dim > 0:
        return shape[: len(shape) - domain.event_dim]
    return shape


def inside(
    value: jax.Array,
    constraint: constraints.Constraint,
    settings: DomainSettings = DomainSettings(),
) -> jax.Array:
    """``value`` where it is finite and strictly inside the domain, else a safe value there.

    >>> inside(jnp.array([0.0, 2.0]), constraints.positive).tolist()
    [1.0, 2.0]
    """
    transform = biject_to(constraint)
    free = transform.inv(value)
    far = jnp.abs(free) > settings.max_unconstrained
    wild = ~jnp.isfinite(free) | (far & (constraint is not constraints.real))
    return transform(jnp.where(wild, 0.0, free))


def _is_lower(domain: constraints.Constraint) -> bool:
    return isinstance(domain, type(constraints.lower_cholesky))
