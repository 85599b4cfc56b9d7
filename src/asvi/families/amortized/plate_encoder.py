"""Takes an amortised family and its network; gives parameters of a plate's latents in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, biject_to, constraints

from asvi.distributions.domains import PriorWeight, inside, prior_weight_shape
from asvi.distributions.registry import decompose
from asvi.families.amortized.data import ModelData
from asvi.families.amortized.encoder_input import encoder_input
from asvi.families.amortized.networks import Network
from asvi.families.convex import data_terms
from asvi.families.parameter import Parameter, Role, layer_step
from asvi.program.site import Site

__all__ = ["Head", "PlateEncoder", "followed_leaves", "is_weight", "named_outputs"]

Ask = Callable[[str, Callable[[jax.Array], Any]], jax.Array]


@dataclass(frozen=True)
class Head:
    """One parameter of one point: its shape and domain, and where the plate's axis goes."""

    leaf: str
    shape: tuple[int, ...]
    constraint: constraints.Constraint
    axis: int

    @property
    def free_shape(self) -> tuple[int, ...]:
        return biject_to(self.constraint).inverse_shape(self.shape)


@dataclass
class PlateEncoder:
    """An amortised family at work in one guide; see :mod:`asvi.families.amortized.encode`."""

    family: Any
    plate: str
    label: str
    network: Network
    heads: dict[str, dict[str, Head]]
    """By the site's address and the parameter's name."""
    names: dict[str, str]
    """The sites' names by address."""
    paths: list[str] = field(default_factory=list)
    """Of the network's parameters."""
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    tree: Any = None
    features: dict[str, int] = field(default_factory=dict)
    """Features of a point that heads are given, by address."""
    direct: frozenset[str] = frozenset()
    """Addresses of sites whose data terms the encoder gives itself."""

    def declare(self, site: Site) -> dict[str, Parameter]:
        """The parameters of a site in the plate that no head gives: λ, one for all points."""
        declared, heads = {}, self.heads[site.address]
        start: Any = getattr(self.family.base, "initial_prior_weight", None)
        for name in followed_leaves(self.family, site):
            if (weight := f"{name}/prior_weight") in heads:
                continue
            head = heads[f"{name}/data_term"]
            point = prior_weight_shape(head.constraint, head.shape)
            shape = (*point[: head.axis], 1, *point[head.axis :])
            declared[weight] = Parameter(
                shape,
                PriorWeight(self.family.base.gate_gain),
                lambda _key, _prior, shape=shape: jnp.full(shape, start),
                Role.PRIOR_WEIGHT,
                name,
                upper=self.family.settings.max_prior_weight,
            )
        return declared

    def as_declared(self, site: Site) -> dict[str, Parameter]:
        """What the encoder gives to a site, as if it were declared for each point."""
        batch = len(site.full_batch_shape)
        return {
            name: Parameter(site.full_batch_shape + head.shape[batch - 1 :], head.constraint)
            for name, head in self.heads[site.address].items()
        }

    def parameters(self) -> dict[str, Parameter]:
        """What :meth:`encode` asks for, by name."""
        layers = zip(self.paths, self.shapes, strict=True)
        network_step = self.family.settings.network_step
        found = {
            f"{self.label}/{path}": _of_network(shape, layer_step(shape, network_step))
            for path, shape in layers
        }
        for address, heads in self.heads.items():
            if address in self.direct:
                continue
            for name, head in heads.items():
                shape = (self.features[address], *head.free_shape)
                prefix = f"{self.names[address]}/{name}"
                step = network_step / np.sqrt(shape[0])
                found[f"{prefix}/head_kernel"] = _of_network(shape, step)
                found[f"{prefix}/head_bias"] = _of_network(head.free_shape, 1.0)
        return found

    def read(self, gathered: ModelData, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the encoder is given in this run: arrays whose first axis is the plate's."""
        return encoder_input(self.family, self.plate, gathered, args, kwargs)

    def encode(
        self, data: Any, ask: Ask, priors: Callable[[jax.Array], dict[str, Distribution]]
    ) -> dict[str, dict[str, jax.Array]]:
        """The parameters that come from the data, by address and name, at the minibatch's size.

        ``ask(name, initial)`` gives the value of a parameter of the guide; ``priors`` the sites'
        priors at the start.
        """
        made: list[Any] = []

        def start(key: jax.Array, i: int) -> jax.Array:
            if not made:
                made.extend(jax.tree.leaves(self.network.init(key, data)))
            return made[i]

        params = jax.tree.unflatten(
            self.tree,
            [
                ask(f"{self.label}/{path}", lambda key, i=i: start(key, i))
                for i, path in enumerate(self.paths)
            ],
        )
        given = self.network.apply(params, data)
        found = {}
        for address, heads in self.heads.items():
            name = self.names[address]
            own = given[name] if isinstance(given, Mapping) else given
            found[address] = {
                parameter: jnp.moveaxis(value, 0, heads[parameter].axis)
                for parameter, value in (
                    named_outputs(own).items()
                    if address in self.direct
                    else self._through_heads(own, address, ask, priors).items()
                )
            }
        return found

    def _through_heads(
        self, features: jax.Array, address: str, ask: Ask, priors: Callable
    ) -> dict[str, jax.Array]:
        found, sd = {}, self.family.settings.head_start_sd
        for parameter, head in self.heads[address].items():
            shape = head.free_shape
            size = features.shape[-1]
            prefix = f"{self.names[address]}/{parameter}"

            def kernel(key: jax.Array, shape=shape, size=size) -> jax.Array:
                return sd * jax.random.normal(key, (size, *shape)) / size**0.5

            def bias(key: jax.Array, parameter=parameter, head=head) -> jax.Array:
                return self._start(parameter, head, address, priors(key))

            weights = ask(f"{prefix}/head_kernel", kernel)
            free = jnp.tensordot(features, weights, 1) + ask(f"{prefix}/head_bias", bias)
            found[parameter] = biject_to(head.constraint)(free)
        return found

    def _start(
        self, parameter: str, head: Head, address: str, priors: dict[str, Distribution]
    ) -> jax.Array:
        """Where a head's bias starts: the prior's own leaf, its mean over the minibatch."""
        to_domain = biject_to(head.constraint)
        if is_weight(parameter):
            weight = self.family.base.initial_prior_weight
            return to_domain.inv(jnp.full(head.shape, weight))
        parts = decompose(
            priors[address],
            parameterization=self.family.parameterization,
            site=self.names[address],
        )
        value = inside(parts.leaves[head.leaf].value, head.constraint)
        return to_domain.inv(jnp.mean(value, axis=head.axis))


def named_outputs(given: Mapping[str, Any]) -> dict[str, jax.Array]:
    """The encoder's names for its outputs (``loc``, ``loc/prior_weight``) as parameters' names."""
    return {
        name if is_weight(name) else f"{name}/data_term": value for name, value in given.items()
    }


def is_weight(output: str) -> bool:
    """Whether an encoder's output, as a user names it, is a prior weight: ``"loc/prior_weight"``.

    >>> is_weight("loc/prior_weight"), is_weight("loc")
    (True, False)
    """
    return output.rpartition("/")[2] == "prior_weight"


def followed_leaves(family: Any, site: Site) -> list[str]:
    """The leaves of a site in the plate that follow its parents."""
    if not site.parents or not family.base.follows_parents(site):
        return []
    leaves = list(data_terms(family.base, site))
    return leaves if family.follow is None else [n for n in leaves if n in family.follow]


def _of_network(shape: tuple[int, ...], step: float) -> Parameter:
    return Parameter(shape, role=Role.NETWORK, step_size=step)
