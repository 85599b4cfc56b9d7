"""Takes nothing; gives what a family declares of each of its parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Literal

import jax
import numpy as np
from numpyro.distributions import Distribution, constraints

__all__ = ["PRIOR_SCALE", "Parameter", "Role", "layer_step"]

PRIOR_SCALE: Literal["prior scale"] = "prior scale"
"""A step of one standard deviation of the site's prior, where that is known."""


class Role(StrEnum):
    """What a parameter does."""

    PRIOR_WEIGHT = "prior weight"
    """λ of a leaf: how far it follows the parents."""
    DATA_TERM = "data term"
    """α of a leaf: where the data pull it."""
    PRIOR_WEIGHT_COUPLING = "prior weight coupling"
    """How other sites steer a leaf's λ."""
    DATA_TERM_COUPLING = "data term coupling"
    """How other sites steer a leaf's α."""
    COUPLING = "coupling"
    """How much a number of the site takes from others."""
    SPLINE = "spline"
    """A map of the site's own noise."""
    NETWORK = "network"
    """Weights of an encoder."""
    OTHER = "other"

    @property
    def couples(self) -> bool:
        """Whether it weighs what one latent number gives to another."""
        return self in (Role.COUPLING, Role.DATA_TERM_COUPLING, Role.PRIOR_WEIGHT_COUPLING)


@dataclass(frozen=True)
class Parameter:
    """One variational parameter of one site, for one run of the body that the site stands in.

    ``shape`` starts with the site's ``full_batch_shape``; the guide adds an axis for each enclosing
    scan and takes the minibatch of subsampled plates. ``initial(key, prior)`` gives the start from
    the site's prior at the start, batched at ``site.batch_shape``; without it, a value well inside
    the domain is taken.

    >>> weight = Parameter((3,), role=Role.COUPLING, step_size=0.5)
    >>> weight.trained, weight.role.couples
    (True, True)
    """

    shape: tuple[int, ...]
    constraint: constraints.Constraint = field(default_factory=lambda: constraints.real)
    initial: Callable[[jax.Array, Distribution], jax.Array] | None = None
    role: Role = Role.OTHER
    leaf: str | None = None
    """The parameter of the site's distribution that it belongs to, as ``"loc"``."""
    step_size: float | Literal["prior scale"] = 1.0
    """A move at learning rate 1, in unconstrained space."""
    trained: bool = True
    """False: held where the start, or a Gaussian that was found, put it."""
    upper: float = inf
    """Value that is never passed."""
    edge_kind: str | None = None
    """Of weights that are held: the kind of edges that they weigh, to hold a Gaussian's factor."""
    plates: tuple[str, ...] = ()
    """Plates that the first axes of its shape are local to; filled in by the guide."""
    address: str | None = None
    """The site's address; filled in by the guide."""

    @property
    def leaf_kind(self) -> str | None:
        """The leaf without the wrappers around it: ``"loc"`` of ``"base_dist/loc"``."""
        return None if self.leaf is None else self.leaf.rpartition("/")[2]


def layer_step(shape: tuple[int, ...], network_step: float) -> float:
    """Weights of a layer add up: a row of k of them is measured in :math:`1/\\sqrt k`."""
    return network_step / np.sqrt(np.prod(shape[:-1])) if len(shape) > 1 else network_step
