"""Takes a site of the program; gives the parameters it needs and, at each draw, its surrogate.

How to write a family of your own
---------------------------------
Subclass :class:`Family` and give it two methods. ``declare`` is called once per site, before
anything is drawn, and says which parameters the site needs. ``update`` is called at every draw with
the site's prior conditional *at the parents' present values* and those parameters, and returns the
distribution that the guide samples from. Because the prior conditional arrives with the parents
already in it, a family keeps the model's dependencies by using its argument, and cuts them by
ignoring it.

A family for sites on the real line that shifts the prior by a learned amount, in units of the
prior's own scale:

>>> import jax, jax.numpy as jnp, numpyro.distributions as dist
>>> class Shifted(Family):
...     def declare(self, site):
...         return {"shift": Parameter(site.full_batch_shape, dist.constraints.real)}
...     def update(self, prior, parameters, site):
...         return dist.Normal(prior.mean + parameters["shift"] * prior.variance**0.5,
...                            prior.variance**0.5)

It is used like any other: ``AutoASVI(model, family={"theta": Shifted()})``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, biject_to, constraints

from asvi.program import Program, Site

__all__ = ["Comparable", "ContextFamily", "Family", "Parameter", "inside"]


@dataclass(frozen=True)
class Parameter:
    """One variational parameter of one site, for one run of the body that the site stands in.

    ``shape`` starts with the site's ``full_batch_shape``; the guide adds an axis for each enclosing
    scan and takes the minibatch of subsampled plates. ``initial(key, prior)`` gives the start from
    the site's prior at the start, batched at ``site.batch_shape``; without it, a value well inside
    the domain is taken.
    """

    shape: tuple[int, ...]
    constraint: constraints.Constraint = field(default_factory=lambda: constraints.real)
    initial: Callable[[jax.Array, Distribution], jax.Array] | None = None


class Comparable:
    """Shown and compared by its settings."""

    def __repr__(self) -> str:
        settings = ", ".join(f"{key.lstrip('_')}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({settings})"

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class Family(Comparable, ABC):
    """Turns prior sites into surrogate sites; see the module's text for how to write one."""

    @abstractmethod
    def declare(self, site: Site) -> dict[str, Parameter]:
        """The parameters of ``site``, by name; ``site.distribution`` is abstract (shapes only)."""

    @abstractmethod
    def update(
        self, prior: Distribution, parameters: dict[str, jax.Array], site: Site
    ) -> Distribution:
        """The surrogate of ``prior``, with the same batch shape, event shape and support."""


class ContextFamily(Family):
    """A family whose surrogates also listen to the noise of earlier sites.

    ``contexts`` is asked once, before anything is declared; what a site listens to then comes with
    every ``declare_in`` and ``update_in``.
    """

    @abstractmethod
    def contexts(self, program: Program, sites: list[Site]) -> dict[str, Any]:
        """What each of ``sites`` listens to, by address."""

    @abstractmethod
    def declare_in(self, site: Site, context: Any) -> dict[str, Parameter]:
        """As ``declare``, in a context."""

    @abstractmethod
    def update_in(
        self,
        prior: Distribution,
        parameters: dict[str, jax.Array],
        site: Site,
        heard: dict[str, Any],
    ) -> Distribution:
        """As ``update``, with the noise that was ``heard``."""


def inside(value: jax.Array, constraint: constraints.Constraint) -> jax.Array:
    """``value`` where it is finite and strictly inside the domain, else a safe value there.

    >>> inside(jnp.array([0.0, 2.0]), constraints.positive).tolist()
    [1.0, 2.0]
    """
    transform = biject_to(constraint)
    free = transform.inv(value)
    # 30 in unconstrained space is e^30 or 1 - e^-30 already: nothing is learned from there.
    wild = ~jnp.isfinite(free) | ((jnp.abs(free) > 30.0) & (constraint is not constraints.real))
    return transform(jnp.where(wild, 0.0, free))
