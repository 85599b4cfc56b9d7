"""Takes model, family and data; gives a problem: one flat vector of numbers and its noisy ELBO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to, constraints
from numpyro.infer.util import transform_fn

from asvi.density.bound_model import BoundModel
from asvi.density.noise_space import NoiseSpace
from asvi.distributions.standardize import noise_shape, rebuilt_prior, standardize
from asvi.distributions.warped_noise import WarpedNoise
from asvi.errors import ModelError
from asvi.families.guide_protocol import as_guide
from asvi.families.parameter import Parameter, Role
from asvi.families.protocol import Family, JointFamily
from asvi.guide.auto_asvi import autoguide
from asvi.objective.elbo import ELBO, score_part
from asvi.program.arguments import Arguments
from asvi.program.improper import Improper
from asvi.program.input_check import InputCheck
from asvi.program.program import Program
from asvi.program.run_trace import trace_of
from asvi.program.site import Site
from asvi.program.statements.stacked import over_steps

__all__ = ["Problem"]

FamilyArgument = Family | JointFamily | Mapping[str, Family] | None


class Problem:
    """The ELBO of a guide as a function of one vector, for one model and its arguments."""

    def __init__(
        self,
        model: Callable,
        family: FamilyArgument,
        args: tuple,
        kwargs: dict[str, Any],
        check: bool = True,
        discrete: Any = "auto",
    ):
        self.family = family
        #: Mean and precision of a Gaussian over the program's noise that was found before.
        self.known_gaussian: Any = None
        self.bound = BoundModel(model, args, kwargs, check)
        self.guide = as_guide(autoguide(self.bound.given, family=family), family)
        self.guide.trust_losses()
        self._check = InputCheck(self.bound.given)
        self._unchecked = check and self.guide.checks_late
        if check and not self._unchecked:
            self._check.begin(args, kwargs)
        self._objective = ELBO(discrete=discrete)
        self.guide.set_up(self.bound, self._check if check else None)
        #: By address, at the centre of these data's prior.
        self.start_priors = self.guide.start_priors()
        if check:
            self.bound.complete()
        known = self.guide.known_parameters() if check else None
        if known is not None:
            example = self._known(known)
        else:
            # By a function of its own: JAX keeps what it traced for as long as there is a function.
            key = jax.eval_shape(jax.random.key, 0)
            example = jax.eval_shape(lambda key: self._initial(key), key)
        flat = jax.eval_shape(self._flattened, example)
        self.size = flat.size
        self.has_networks = any(not hasattr(x, "shape") for x in example.values())
        self.dtype = flat.dtype
        #: Path gradients rerun the guide's density at given values: cheap for families of sites.
        self.has_path = self.guide.has_path_gradients
        self.observed = {site.name for site in self.program.sites if site.kind != "latent"}
        self.may_have_scores = bool(self.guide.score_sites) or any(
            site.is_discrete or not site.distribution.has_rsample for site in self.program.latent
        )

    @property
    def model(self) -> Callable:
        return self.bound.model

    @property
    def program(self) -> Program:
        return self.bound.program

    @property
    def arguments(self) -> Arguments:
        return self.bound.arguments

    @property
    def improper(self) -> dict[str, Improper]:
        """Latent numbers without a posterior, by site."""
        return self.bound.improper

    @cached_property
    def noise_space(self) -> NoiseSpace | None:
        """The noise that a Gaussian is looked for in; None where the guide would hold none."""
        return None if self.has_networks else self.guide.noise_space(self.bound)

    def finish_check(self, is_fine: Callable[[], bool]) -> None:
        """Raise where the data are wrong, if that was not looked at yet.

        Where a quicker look, ``is_fine``, finds nothing wrong, that is all.
        """
        if self._unchecked and not is_fine():
            self._check(*self.arguments)
        self._unchecked = False

    def at(self, args: tuple, kwargs: dict[str, Any], complete: bool = True) -> Problem:
        """The same guide and model, called with other arguments."""
        other = copy(self)
        other.bound = self.bound.at(args, kwargs, complete)
        other.__dict__.pop("noise_space", None)
        return other

    # ------------------------------------------------------------------------------ parameters

    def _initial(self, key: jax.Array) -> dict[str, jax.Array]:
        args, kwargs = self.arguments
        drawn = trace_of(self.guide, key, {}, {}, args, kwargs)
        values = {
            name: site["value"]
            for name, site in drawn.items()
            if site["type"] == "sample" and not site["is_observed"]
        }
        met = {}
        if self.program.trained:
            met = trace_of(self.model, key, {}, values, args, kwargs)
        free, self.transforms = {}, {}
        for name, site in sorted({**met, **drawn}.items()):
            if site["type"] == "mutable":
                raise ModelError(
                    f"the model's {name!r} is mutable state, which asvi.fit does not keep.\n"
                    "Write instead:\n"
                    "    numpyro.infer.SVI(model, asvi.AutoASVI(model), optimizer, asvi.ELBO())"
                )
            if site["type"] == "param":
                transform = biject_to(site["kwargs"].get("constraint", constraints.real))
                self.transforms[name] = transform
                # A network of the model's own is one parameter, a tree of arrays.
                free[name] = jax.tree.map(
                    lambda x, transform=transform: jnp.asarray(
                        transform.inv(x), jnp.result_type(float)
                    ),
                    site["value"],
                )
        return free

    def _known(self, parameters: dict[str, Parameter]) -> dict[str, Any]:
        """As :meth:`_initial`, without a run: shapes alone, of the guide's own parameters."""
        self.transforms = {n: biject_to(p.constraint) for n, p in parameters.items()}
        dtype = jnp.result_type(float)
        return {
            name: jax.ShapeDtypeStruct(self.transforms[name].inverse_shape(p.shape), dtype)
            for name, p in parameters.items()
        }

    def _flattened(self, free: dict[str, jax.Array]) -> jax.Array:
        """All in one vector; how to get them back is kept."""
        flat, self.unravel = ravel_pytree(free)
        return flat

    def initial(self, key: jax.Array) -> jax.Array:
        """A start as a flat vector."""
        return ravel_pytree(self._initial(key))[0]

    @property
    def prior_scales(self) -> dict[str, Any]:
        """Scale of the prior of each site that has no parents, by address, where it is known."""
        if not self.start_priors:
            return {}
        found = {}
        for site in map(self.program.with_parents, self.program.latent):
            prior = self.start_priors.get(site.address)
            if prior is None or site.parents or noise_shape(site) is None:
                continue
            found[site.address] = over_steps(
                lambda p: standardize(rebuilt_prior(p)).scale, len(site.steps)
            )(prior)
        return found

    def start_half_mean_field(self, free: jax.Array) -> jax.Array:
        """The same start, (parameters,), with the prior weights of hierarchies at 1/2.

        Chains keep theirs: away from the prior they fall into basins of their own.
        """
        program = self.program
        sites = {site.address: program.with_parents(site) for site in program.latent}
        shapes = {site.name: site.shape for site in program.latent}

        def is_of_hierarchy(site: Site) -> bool:
            return not site.steps and all(shapes.get(p) != site.shape for p in site.parents)

        names = [
            name
            for name, p in self.guide.parameters().items()
            if p.role is Role.PRIOR_WEIGHT and p.address is not None
            if is_of_hierarchy(sites[p.address])
        ]
        if not names:
            return free
        start = self.unravel(free)
        start |= {name: jnp.zeros_like(start[name]) for name in names}
        return ravel_pytree(start)[0]

    def params(self, flat: jax.Array) -> dict[str, jax.Array]:
        """The guide's (and the model's own) parameters by name, constrained."""
        return transform_fn(self.transforms, self.unravel(flat))

    def found_params(self, flat: jax.Array) -> dict[str, jax.Array]:
        """The same, compiled."""
        return self.bound.jit("params", lambda: self.params)(flat)

    def free(self, params: Mapping[str, Any]) -> jax.Array:
        """The vector that holds these constrained parameters."""

        def inverse(params):
            free = {n: jax.tree.map(self.transforms[n].inv, x) for n, x in params.items()}
            return ravel_pytree(free)[0]

        values = jax.tree.map(lambda x: np.asarray(x, self.dtype), dict(params))
        return self.bound.jit("free", lambda: inverse)(values)

    # -------------------------------------------------------------------------------- the ELBO

    def elbo(
        self,
        flat: jax.Array,
        key: jax.Array,
        temperature: Any = 1.0,
        score_share: Any = None,
    ) -> jax.Array:
        """One draw's ELBO; the data's log density weighs ``temperature``."""
        return self._draw(flat, key, temperature, score_share)[0]

    @cached_property
    def splines(self) -> dict[str, str]:
        """Parameters that hold splines, by the names of their sites."""
        names = {site.address: site.name for site in self.program.latent}
        return {
            names[str(p.address)]: full
            for full, p in self.guide.parameters().items()
            if p.role is Role.SPLINE
        }

    def elbo_and_noise(
        self, flat: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """One draw's ELBO, and the noise that entered the splines, by site.

        Sites in branches, or under a mask, are left out: what they drew from is not to be seen.
        """
        elbo, _scores, latent = self._draw(flat, key, 1.0, None)
        sites = {name: (latent or {}).get(name) for name in self.splines}
        return elbo, {
            name: site["fn"].unit_noise(site["value"], site["intermediates"])
            for name, site in sites.items()
            if site is not None and isinstance(site["fn"], WarpedNoise)
        }

    def _draw(self, flat, key, temperature, score_share) -> tuple[jax.Array, Any, Any]:
        args, kwargs = self.arguments
        share = score_share if self.has_path else None
        weights = dict.fromkeys(sorted(self.observed), temperature)
        drawn = self._objective.draw(
            key, self.params(flat), share, self.model, self.guide, args, kwargs, weights
        )
        return sum(drawn.terms.values(), jnp.zeros(())), drawn.scores, drawn.latent

    def has_scores(self) -> bool:
        """Whether gradients of some site come by the score function, and want more draws."""
        flat = jax.ShapeDtypeStruct((self.size,), self.dtype)
        draw = jax.eval_shape(
            lambda flat, key: self._draw(flat, key, 1.0, None)[1], flat, jax.random.key(0)
        )
        return bool(draw)

    def loss(
        self,
        flat: jax.Array,
        keys: jax.Array,
        temperature: Any = 1.0,
        score_share: Any = None,
    ) -> jax.Array:
        """Negative mean ELBO over ``keys``, with its gradient also through discrete draws."""
        elbos, scores = jax.vmap(lambda key: self._draw(flat, key, temperature, score_share)[:2])(
            keys
        )
        return -jnp.mean(elbos) - score_part(scores)

    def site_terms(self, flat: jax.Array, key: jax.Array) -> dict[str, Any]:
        """One draw's ELBO by site."""
        return self.terms_at(self.params(flat), key)

    def terms_at(self, params: dict[str, jax.Array], key: jax.Array) -> dict[str, Any]:
        """One draw's ELBO by site, at constrained parameters."""
        args, kwargs = self.arguments
        return self._objective.site_terms(key, params, self.model, self.guide, *args, **kwargs)[0]
