"""Takes model, family and data; gives a problem: one flat vector of numbers and its noisy ELBO.

*What is kept, and for how long.* A problem is made anew by each call of :func:`asvi.fit`, and
nothing is looked up by a model's name or a family's ``repr``: only what was recorded decides.

- Compiled programs (:mod:`asvi.program.compiling`), by the operations, shapes and types that were
  recorded, for the process: the last 256, until ``forget_programs()``. They hold no data: constants
  are inputs. With :func:`asvi.keep_programs` JAX keeps them on disk, too.
- What is made of a recorded density (:mod:`asvi.density.traced_density`): its forms in NumPy,
  slopes, Hessians; by its operations and precision, for the process: the last 32.
- Copies of the constants of recorded programs (:mod:`asvi.program.traced`), by their bytes, as long
  as a program that has them.
- A model's functions (``BoundModel.kept``, ``jit``, ``map_in_batches``), by a name and what else
  shapes them (restarts, steps, draws, clipping), as long as the model at these arguments. Each
  ``Compiled`` holds a recording for every set of input types that it met. ``BoundModel.at`` has
  none of them: other arguments are other functions.
- ``Problem.noise_space``, ``Problem.splines``, ``BoundModel.digest``, ``ParameterVector.size`` and
  the like: attributes that are computed once, as long as their object.
- ``Fit.guide``, ``Fit.posterior``, its report, and 4,000 draws' moments in a ``Posterior``: as long
  as the fit.
- Reshapes and sums over axes of the NumPy backend, by shapes, and what this version of JAX and its
  compiler know (:mod:`asvi.program.compiling`): for the process. They are few and small.
- The embedded tasks' data (:mod:`asvi.tasks`): for the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.density.bound_model import BoundModel
from asvi.density.noise_space import NoiseSpace
from asvi.density.settings import DensitySettings
from asvi.distributions.standardize import noise_shape, rebuilt_prior, standardize
from asvi.distributions.warped_noise import WarpedNoise
from asvi.errors import ModelError
from asvi.families.guide_protocol import as_guide
from asvi.families.parameter import Role
from asvi.families.protocol import Family, JointFamily
from asvi.fitting.parameter_vector import ParameterVector, free_values
from asvi.guide.auto_asvi import autoguide
from asvi.objective.elbo import ELBO
from asvi.objective.score_function import score_part
from asvi.program.arguments import Arguments
from asvi.program.improper import Improper
from asvi.program.input_check import InputCheck
from asvi.program.program import Program
from asvi.program.run_trace import trace_of
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
        known_gaussian: Any = None,
        density: DensitySettings = DensitySettings(),
    ):
        self.family = family
        #: Mean and precision of a Gaussian over the program's noise that was found before.
        self.known_gaussian = known_gaussian
        self.bound = BoundModel(model, args, kwargs, check, density)
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
        #: Where each parameter lies in the flat vector.
        self.vector = (
            ParameterVector.of_run(self._trained_by)
            if known is None
            else ParameterVector.of_declared(known)
        )
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
    def size(self) -> int:
        """Numbers in the flat vector."""
        return self.vector.size

    @property
    def dtype(self) -> Any:
        """Type of the flat vector."""
        return self.vector.dtype

    @property
    def improper(self) -> dict[str, Improper]:
        """Latent numbers without a posterior, by site."""
        return self.bound.improper

    @cached_property
    def noise_space(self) -> NoiseSpace | None:
        """The noise that a Gaussian is looked for in; None where the guide would hold none."""
        return None if self.vector.has_networks else self.guide.noise_space(self.bound)

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

    def _trained_by(self, key: jax.Array) -> dict[str, dict[str, Any]]:
        """Messages of all parameters, the guide's and the model's own, in a run of both."""
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
        found = {}
        for name, site in sorted({**met, **drawn}.items()):
            if site["type"] == "mutable":
                raise ModelError(
                    f"the model's {name!r} is mutable state, which asvi.fit does not keep.\n"
                    "Write instead:\n"
                    "    numpyro.infer.SVI(model, asvi.AutoASVI(model), optimizer, asvi.ELBO())"
                )
            if site["type"] == "param":
                found[name] = site
        return found

    def initial(self, key: jax.Array) -> jax.Array:
        """A start as a flat vector."""
        return self.vector.flatten(free_values(self._trained_by(key)))

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

    def params(self, flat: jax.Array) -> dict[str, jax.Array]:
        """The guide's (and the model's own) parameters by name, constrained."""
        return self.vector.constrain(flat)

    def found_params(self, flat: jax.Array) -> dict[str, jax.Array]:
        """The same, compiled."""
        return self.bound.jit("params", lambda: self.vector.constrain)(flat)

    def free(self, params: Mapping[str, Any]) -> jax.Array:
        """The vector that holds these constrained parameters."""
        values = jax.tree.map(lambda x: np.asarray(x, self.dtype), dict(params))
        return self.bound.jit("free", lambda: self.vector.unconstrain)(values)

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
