"""Takes the parameters of a guide and its model; gives them as one flat vector of free numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import Transform
from numpyro.infer.util import transform_fn

from asvi.families.parameter import Parameter

__all__ = ["ParameterVector", "free_values"]

Messages = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class ParameterVector:
    """Where each parameter lies in a vector, and how it gets into its domain.

    *Free* numbers are unconstrained. They lie in the order of the parameters' names.

    >>> vector = ParameterVector.of_declared({"b": Parameter((2,), constraints.positive),
    ...                                       "a": Parameter(())})
    >>> vector.names, vector.size
    (('a', 'b'), 3)
    >>> {name: x.tolist() for name, x in vector.constrain(jnp.zeros(3)).items()}
    {'a': 0.0, 'b': [1.0, 1.0]}
    """

    shapes: Mapping[str, Any]
    """Of the free numbers, by name; a network of the model's own is a tree of them."""
    transforms: Mapping[str, Any]
    """From free numbers into the parameter's domain."""

    @classmethod
    def of_declared(cls, parameters: Mapping[str, Parameter]) -> ParameterVector:
        """Of what a guide says of its parameters, where these are all that there are."""
        transforms = {name: biject_to(p.constraint) for name, p in parameters.items()}
        dtype = jnp.result_type(float)
        shapes = {
            name: jax.ShapeDtypeStruct(transforms[name].inverse_shape(p.shape), dtype)
            for name, p in parameters.items()
        }
        return cls(shapes, transforms)

    @classmethod
    def of_run(cls, run: Callable[[jax.Array], Messages]) -> ParameterVector:
        """Of what a run with a key meets: its messages of parameters, by name."""

        def recorded(key: jax.Array) -> tuple[dict[str, Any], _Static]:
            met = run(key)
            return free_values(met), _Static({name: _transform_of(met[name]) for name in met})

        # By a function of its own: JAX keeps what it traced for as long as there is a function.
        shapes, transforms = jax.eval_shape(recorded, jax.eval_shape(jax.random.key, 0))
        return cls(shapes, transforms.value)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters, in the vector's order."""
        return tuple(sorted(self.shapes))

    @cached_property
    def _leaves(self) -> tuple[list[Any], Any]:
        return jax.tree.flatten(dict(self.shapes))

    @cached_property
    def size(self) -> int:
        """How many free numbers there are."""
        return sum(prod(leaf.shape) for leaf in self._leaves[0])

    @cached_property
    def dtype(self) -> Any:
        """Type of the vector."""
        return jax.eval_shape(self.flatten, dict(self.shapes)).dtype

    @property
    def has_networks(self) -> bool:
        """Whether the model has networks of its own."""
        return any(not hasattr(x, "shape") for x in self.shapes.values())

    def flatten(self, free: Mapping[str, Any]) -> jax.Array:
        """Free numbers by name as one vector."""
        return ravel_pytree(dict(free))[0]

    def unflatten(self, flat: jax.Array) -> dict[str, Any]:
        """Free numbers by name."""
        leaves, tree = self._leaves
        if jnp.shape(flat) != (self.size,):
            raise ValueError(f"the vector has shape {jnp.shape(flat)}, wanted is ({self.size},)")
        ends = np.cumsum([prod(leaf.shape) for leaf in leaves])
        parts = jnp.split(flat, ends[:-1]) if leaves else []
        return jax.tree.unflatten(
            tree, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        )

    def constrain(self, flat: jax.Array) -> dict[str, Any]:
        """Parameters by name, each in its domain."""
        return transform_fn(dict(self.transforms), self.unflatten(flat))

    def unconstrain(self, params: Mapping[str, Any]) -> jax.Array:
        """The vector of parameters that are given by name."""
        return self.flatten(
            {name: jax.tree.map(self.transforms[name].inv, x) for name, x in params.items()}
        )


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class _Static:
    """What a function that is traced gives beside arrays."""

    value: Any


def free_values(met: Messages) -> dict[str, Any]:
    """Free numbers of the parameters that a run met, by name."""
    found = {}
    for name, message in met.items():
        transform = _transform_of(message)
        # A network of the model's own is one parameter, a tree of arrays.
        found[name] = jax.tree.map(
            lambda x, transform=transform: jnp.asarray(transform.inv(x), jnp.result_type(float)),
            message["value"],
        )
    return found


def _transform_of(message: Mapping[str, Any]) -> Transform:
    return biject_to(message["kwargs"].get("constraint", constraints.real))
