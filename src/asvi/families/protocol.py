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
>>> from asvi.families import Parameter
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
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.distributions import Distribution
from numpyro.infer.autoguide import AutoGuide

from asvi.families.gaussian_share import GaussianShare, Held
from asvi.families.parameter import Parameter
from asvi.program.program import Program
from asvi.program.site import Site

__all__ = [
    "AnyFamily",
    "Comparable",
    "Family",
    "JointFamily",
    "OwnObject",
    "families_by_name",
    "family_class",
    "name_of",
]


#: Classes by name, those of users among them: files say which was used.
_CLASSES: dict[str, type] = {}


def family_class(name: str) -> Any:
    """The class of a family, as a file names it; None where there is none in this process."""
    return _CLASSES.get(name)


def families_by_name() -> dict[str, Any]:
    """Classes of families by name, those of users among them."""
    found = {name: cls for name, cls in _CLASSES.items() if issubclass(cls, AnyFamily)}
    return {n: cls for n, cls in found.items() if not cls.__abstractmethods__}


class OwnObject(NamedTuple):
    """In the config of a family: an object of a user's own, that cannot be made again."""

    name: str


class Comparable:
    """Shown, compared, stored and made again by its settings."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _CLASSES[cls.__name__] = cls

    def __repr__(self) -> str:
        given = ", ".join(f"{key.lstrip('_')}={value!r}" for key, value in self._given().items())
        return f"{type(self).__name__}({given})"

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def config(self) -> dict[str, Any]:
        """Arguments that make it again: plain values, and others like it."""
        return self._given()

    def _given(self) -> dict[str, Any]:
        """All that it holds, but for ``settings`` that are the default ones."""
        held = dict(vars(self))
        settings = held.get("settings")
        if isinstance(settings, Comparable) and settings == type(settings)():
            del held["settings"]
        return held

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Any:
        """What has this :meth:`config`."""
        return cls(**settings)


def name_of(family: Any) -> str:
    """A family in a word or two; of several, one for each."""
    if isinstance(family, Mapping):
        return ", ".join(dict.fromkeys(map(name_of, family.values())))
    return family.name


class AnyFamily(Comparable, ABC):
    """What families of sites and of whole models have in common."""

    is_searched = False
    """Whether :func:`asvi.fit` finds the best member by a search, and not by gradient steps."""

    @property
    def name(self) -> str:
        """The family in a word or two."""
        return type(self).__name__

    @abstractmethod
    def guide(self, model: Callable, prefix: str = "auto") -> AutoGuide | None:
        """A NumPyro guide of all sites at once; None for a family that works site by site."""


class Family(AnyFamily):
    """Turns prior sites into surrogate sites; see the module's text for how to write one.

    Two methods are enough. The others have defaults, for families that can do more.

    >>> import numpyro, numpyro.distributions as dist, asvi
    >>> class Delta(Family):
    ...     def declare(self, site):
    ...         return {"at": Parameter(site.full_batch_shape, site.support)}
    ...     def update(self, prior, parameters, site):
    ...         return dist.Delta(parameters["at"])
    >>> guide = asvi.AutoASVI(lambda: numpyro.sample("x", dist.Normal()), family=Delta())
    """

    start = "prior_mean"
    """Where ``initial`` of its parameters looks at the prior: its centre, or ``"prior_draw"``."""

    @abstractmethod
    def declare(self, site: Site) -> dict[str, Parameter]:
        """The parameters of ``site``, by name; ``site.distribution`` is abstract (shapes only)."""

    @abstractmethod
    def update(
        self, prior: Distribution, parameters: dict[str, jax.Array], site: Site
    ) -> Distribution:
        """The surrogate of ``prior``, with the same batch shape, event shape and support."""

    def inputs(self, program: Program, sites: list[Site]) -> dict[str, Any]:
        """What each of ``sites`` listens to of earlier sites' noise, by address; asked once."""
        return {}

    def declare_with(self, site: Site, inputs: Any) -> dict[str, Parameter]:
        """As ``declare``, for a site that listens to this; ``inputs`` is None for nothing."""
        return self.declare(site)

    def update_with(
        self,
        prior: Distribution,
        parameters: dict[str, jax.Array],
        site: Site,
        residuals: dict[str, Any],
    ) -> Distribution:
        """As ``update``, with the noise that the site listens to."""
        return self.update(prior, parameters, site)

    def from_data(
        self,
        program: Program,
        sites: list[Site],
        label: str,
        model: Callable,
        args: tuple,
        kwargs: dict[str, Any],
    ) -> Any:
        """What makes parameters of ``sites`` from the data, before each run; None for nothing."""
        return None

    def follows_parents(self, site: Site) -> bool:
        """Whether the surrogate of ``site`` depends on its parents."""
        return True

    def holds_gaussian(self, site: Site, declared: Mapping[str, Parameter]) -> bool:
        """Whether :meth:`from_gaussian` can write a Gaussian into the site's parameters."""
        return False

    def from_gaussian(
        self,
        share: GaussianShare,
        declared: Mapping[str, Parameter],
        steps: Mapping[str, np.ndarray],
    ) -> Held:
        """Parameters that hold a site's share, and their steps, which were ``steps``."""
        raise NotImplementedError(f"{self.name} holds no Gaussian")

    def guide(self, model: Callable, prefix: str = "auto") -> AutoGuide | None:
        """A guide of all sites at once; None for a family that works site by site."""
        return None


class JointFamily(AnyFamily):
    """A family of joint distributions over all latent sites.

    >>> from numpyro.infer.autoguide import AutoNormal
    >>> class OfNumPyro(JointFamily):
    ...     def guide(self, model, prefix="auto"):
    ...         return AutoNormal(model, prefix=prefix)
    """

    @abstractmethod
    def guide(self, model: Callable, prefix: str = "auto") -> AutoGuide:
        """A NumPyro guide for ``model``."""
