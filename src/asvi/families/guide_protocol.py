"""Takes a guide of any kind; gives answers to what is asked of all of them.

Guides of this library are :class:`Guide`; :func:`as_guide` lets any other guide of NumPyro's answer
for itself, with the little that can be known of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to
from numpyro.infer.autoguide import AutoGuide

from asvi.density.bound_model import BoundModel
from asvi.density.noise_space import NoiseSpace
from asvi.errors import SiteError
from asvi.families.parameter import Parameter
from asvi.program.input_check import InputCheck
from asvi.program.program import Program
from asvi.program.run_trace import trace_of
from asvi.program.site import Site

__all__ = ["ForeignGuide", "Guide", "JointGuide", "SiteRow", "as_guide"]


@dataclass(frozen=True)
class SiteRow:
    """What a guide does at one latent site.

    ``prior_weights`` has, per leaf, the mean of λ: 1 where the prior conditional rules, 0 where the
    data overrode it. A :class:`~asvi.families.StructuredNormal` has one for the ``noise``: the
    share of its prior variance that the data left.
    """

    name: str
    family: str
    parents: tuple[str, ...]
    prior_weights: dict[str, float]


class Guide:
    """A guide; each member answers one question of the stages below."""

    program: Any
    """The model's :class:`~asvi.program.Program`; None before the set-up."""
    prefix: str
    has_path_gradients = False
    """Whether its density can be run again at given values, parameters held."""
    by_site = False
    """Whether each site's terms are its own: a site given its parents."""
    score_sites: frozenset[str] = frozenset()
    """Continuous sites that decide a branch: their gradients come by the score function."""
    dependence: Any = None
    """Who depends on sites without reparameterised draws; None where there are none."""
    improper: Mapping[str, Any] = {}
    """Latent numbers without a posterior, by site."""
    checks_late = False
    """Whether the data are looked at after the set-up, with the density that a search records."""

    def set_up(self, bound: BoundModel, check: InputCheck | None) -> None:
        """Get ready for a model and its arguments; ``check`` looks at the data, if it is given."""
        raise NotImplementedError

    def trust_losses(self) -> None:
        """Say nothing of the loss that trains it: it is the library's own."""

    def parameters(self) -> dict[str, Parameter]:
        """What is known of its parameters, by their NumPyro names."""
        return {}

    def known_parameters(self) -> dict[str, Parameter] | None:
        """All of its parameters, where they are known without a run of the guide; else None."""
        return None

    def start_priors(self) -> dict[str, Any]:
        """The sites' priors at the prior's centre, by address, where the set-up met them."""
        return {}

    def log_density(
        self, params: dict[str, Any], values: dict[str, Any], args: tuple, kwargs: dict[str, Any]
    ) -> jax.Array:
        """Its log density at values of all latent sites."""
        raise NotImplementedError

    def noise_space(self, bound: BoundModel) -> NoiseSpace | None:
        """The noise of the program that a Gaussian for it is looked for in; None without."""
        return None

    def guide_space(self, bound: BoundModel) -> Any:
        """Its own noise, in one vector; None where draws are not made of noise alone."""
        return None

    def explain_site(self, params: Mapping[str, Any], site: Site) -> SiteRow:
        """What it does at a site."""
        raise NotImplementedError

    def prior_shares(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """How far each number follows the prior, 0 to 1, by what it is called in a picture."""
        return {}

    def couples(self, parent: Site, child: Site) -> bool:
        """Whether it can hold the dependence of two sites, ``parent`` being the earlier one."""
        return True

    @property
    def dropped(self) -> tuple[tuple[str, str], ...]:
        """Dependences left out for their cost: names of the earlier site and the later one."""
        return ()


class JointGuide(Guide):
    """One of NumPyro's guides over the unconstrained vector of all latent sites."""

    family: Any
    _init_locs: Any
    prototype_trace: Any
    get_posterior: Callable

    def set_up(self, bound: BoundModel, check: InputCheck | None) -> None:
        _refuse_given_steps(bound.program)
        if check is not None:
            check(*bound.arguments)
        self.program = bound.program
        guide: Any = self
        trace_of(guide, jax.random.key(0), {}, {}, *bound.arguments)

    def log_density(
        self, params: dict[str, Any], values: dict[str, Any], args: tuple, kwargs: dict[str, Any]
    ) -> jax.Array:
        """Density of the unconstrained vector, and the Jacobian."""
        free, jacobian = {}, jnp.zeros(())
        for name in self._init_locs:
            transform = biject_to(self.prototype_trace[name]["fn"].support)
            free[name] = transform.inv(values[name])
            jacobian += jnp.sum(transform.log_abs_det_jacobian(free[name], values[name]))
        flat = jnp.concatenate([jnp.ravel(free[name]) for name in self._init_locs])
        return self.get_posterior(params).log_prob(flat) - jacobian

    def explain_site(self, params: Mapping[str, Any], site: Site) -> SiteRow:
        return SiteRow(site.name, self.family.name, (), {})


class ForeignGuide(JointGuide):
    """A guide that knows nothing of this library."""

    def __init__(self, guide: AutoGuide, family: Any):
        self.guide, self.family = guide, family
        self.prefix = getattr(guide, "prefix", "auto")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.guide(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.guide, name)


def _refuse_given_steps(program: Program) -> None:
    """NumPyro's guides take a site of a scan for latent although the model gives its values."""
    for site in program.sites:
        if site.kind == "fixed" and site.steps:
            raise SiteError(
                site.name,
                "the model itself gives its values inside a `scan`, which families of the whole "
                "model do not see",
                f'numpyro.handlers.condition(model, {{"{site.name}": values}})',
            )


def as_guide(guide: Any, family: Any = None) -> Any:
    """The guide, as one that answers what is asked of all."""
    return guide if isinstance(guide, Guide) else ForeignGuide(guide, family)
