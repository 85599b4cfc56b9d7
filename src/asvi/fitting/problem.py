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

from asvi.arguments import Arguments, check_arrays
from asvi.compiling import Compiled
from asvi.errors import ModelError, SiteError, changed, with_mended
from asvi.families import Family, WholeFamily
from asvi.families.moved import MovedNoise
from asvi.families.noise import noise_shape, stand_in, standard
from asvi.families.structured import AutoStructuredNormal, StructuredNormal
from asvi.guide import AutoASVI, autoguide
from asvi.improper import Improper, find_improper
from asvi.input_check import InputCheck
from asvi.masks import completed
from asvi.objective import ELBO, score_part
from asvi.program import Program
from asvi.stacked import over_steps
from asvi.traced import Traced
from asvi.traces import log_density, trace_of

__all__ = ["Problem"]

FamilyChoice = Family | WholeFamily | Mapping[str, Family] | None


_IMPURE = (
    "def model(data):\n"
    "    data = dict(data)   # a copy, before anything is taken out of it or put into it\n"
    "    # and no counters, no iterators, no numpy.random: draw such numbers before the fit"
)


_AGAIN = (
    "result = asvi.fit(model, ...)   # again: a global, a default, an attribute, or an array that\n"
    "                                # the model reads was changed after the first fit"
)


class Problem:
    """The ELBO of a guide as a function of one vector, for one model and its arguments.

    The model is called with the user's own objects wherever a program of it is recorded; what is
    compiled is found again by what was recorded (:mod:`asvi.compiling`), so that a problem with new
    data of the same shapes compiles nothing.
    """

    def __init__(
        self,
        model: Callable,
        family: FamilyChoice,
        args: tuple,
        kwargs: dict[str, Any],
        check: bool = True,
        discrete: Any = "auto",
    ):
        self.family = family
        self.arguments = Arguments(args, kwargs)
        check_arrays(args, kwargs)
        look = Program.of if check else Program.unchecked
        self._look = lambda model: look(model, *args, **kwargs)
        self.model, self.program = self.arguments.calling(model, self._look)
        self._given_model = self.model
        if check:
            self.refuse_change("it gives another program each time that it is called", _IMPURE)
        if isinstance(family, WholeFamily) and not isinstance(family, StructuredNormal):
            _refuse_given_steps(self.program)
        self.guide = autoguide(self.model, family=family)
        self._check = InputCheck(self.model)
        if isinstance(self.guide, AutoASVI):
            self.guide._losses_seen.add("unknown")  # the loss is ours, whoever calls the guide
            self._check = self.guide._input_check
        if check and not isinstance(self.guide, AutoStructuredNormal):
            self._check.begin(args, kwargs)
        self._objective = ELBO(discrete=discrete)
        self.programs: dict[Any, Any] = {}
        self._unchecked, self.is_fitted = False, False
        self._double = bool(jax.config.read("jax_enable_x64"))
        self.start_priors: dict[str, Any] = {}  # by address, at the centre of these data's prior
        self._set_up(check)
        self.improper: dict[str, Improper] = {}  # latent numbers without a posterior, by site
        if check:
            self.complete()
        if check and isinstance(self.guide, AutoStructuredNormal):
            example = self._known(self.guide)
        else:
            # By a function of its own: JAX keeps what it traced for as long as there is a function.
            key = jax.eval_shape(jax.random.key, 0)
            example = jax.eval_shape(lambda key: self._initial(key), key)
        flat = jax.eval_shape(self._flattened, example)
        self.size = flat.size
        self.has_networks = any(not hasattr(x, "shape") for x in example.values())
        self.dtype = flat.dtype
        #: Path gradients rerun the guide's density at given values: cheap for families of sites.
        self.has_path = isinstance(self.guide, AutoASVI)
        self.observed = {site.name for site in self.program.sites if site.kind != "latent"}
        self.may_have_scores = bool(getattr(self.guide, "jumps", ())) or any(
            site.is_discrete or not site.distribution.has_rsample for site in self.program.latent
        )

    def refuse_change(self, what: str, mended: str) -> None:
        """Raise where the model is not what it was when the problem was made, at its arguments."""
        try:
            differs = self.program.differs(self._look(self._given_model))
        except ModelError as error:
            raise ModelError(with_mended(f"{what}: {str(error).rstrip('.')}", mended)) from error
        if differs is not None:
            raise changed(what, differs, mended)

    def complete(self) -> None:
        """Let the model's density be that of a distribution at these arguments."""
        self.improper = find_improper(self._given_model, self.program, *self.arguments)
        self.model = completed(self._given_model, self.improper)

    def _set_up(self, check: bool) -> None:
        """Check the data and make the guide ready."""
        args, kwargs = self.arguments
        guide = self.guide
        if isinstance(guide, AutoStructuredNormal):
            guide.set_program(self.program)
            self._unchecked = check
            return
        if isinstance(guide, AutoASVI):
            guide._setup_prototype(*args, check_input=check, **kwargs)
            self.start_priors = dict(guide._starts.get("prior_mean", {}))
            guide._starts.clear()
            return
        if check:
            self._check(args, kwargs)
        trace_of(guide, jax.random.key(0), {}, {}, args, kwargs)

    def finish_check(self, is_fine: Callable[[], bool]) -> None:
        """Raise where the data are wrong, if that was not looked at yet.

        Where a quicker look, ``is_fine``, finds nothing wrong, that is all.
        """
        if self._unchecked and not is_fine():
            self._check(*self.arguments)
        self._unchecked = False

    @cached_property
    def digest(self) -> str:
        """Model and data in a line that is the same in every process, and no other's."""

        def density(key: jax.Array) -> jax.Array:
            met = trace_of(self.model, key, {}, {}, *self.arguments)
            return sum(log_density(s) for s in met.values() if s["type"] == "sample")

        return Traced(density, jax.random.key(0)).digest

    def at(self, args: tuple, kwargs: dict[str, Any]) -> Problem:
        """The same guide and model, called with other arguments."""
        check_arrays(args, kwargs)
        other = copy(self)
        other.arguments, other.programs = Arguments(args, kwargs), {}
        other.complete()
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

    def _known(self, guide: AutoStructuredNormal) -> dict[str, Any]:
        """As :meth:`_initial`, without a run: shapes alone, of the guide's own parameters."""
        self.transforms = {n: biject_to(domain) for n, (_, domain) in guide.domains().items()}
        dtype = jnp.result_type(float)
        return {
            name: jax.ShapeDtypeStruct(self.transforms[name].inverse_shape(shape), dtype)
            for name, (shape, _) in guide.domains().items()
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
        guide = self.guide
        if not isinstance(guide, AutoASVI):
            return {}
        found = {}
        for site in map(self.program.with_parents, self.program.latent):
            prior = self.start_priors.get(site.address)
            if prior is None or site.parents or noise_shape(site) is None:
                continue
            found[site.address] = over_steps(
                lambda p: standard(stand_in(p)).scale, len(site.steps)
            )(prior)
        return found

    def half_way(self, free: jax.Array) -> jax.Array:
        """The same start, (parameters,), with the prior weights of hierarchies at 1/2.

        Chains keep theirs: away from the prior they fall into basins of their own.
        """
        guide = self.guide
        if not isinstance(guide, AutoASVI):
            return free
        shapes = {site.name: site.shape for site in self.program.latent}
        names = [
            guide.parameter_name(site, name)
            for site in map(self.program.with_parents, self.program.latent)
            if not site.steps and all(shapes.get(p) != site.shape for p in site.parents)
            for name in guide._declared[site.address]
            if name.endswith("/prior_weight")
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
        return self.jit("params", lambda: self.params)(flat)

    def free(self, params: Mapping[str, Any]) -> jax.Array:
        """The vector that holds these constrained parameters."""

        def inverse(params):
            free = {n: jax.tree.map(self.transforms[n].inv, x) for n, x in params.items()}
            return ravel_pytree(free)[0]

        values = jax.tree.map(lambda x: np.asarray(x, self.dtype), dict(params))
        return self.jit("free", lambda: inverse)(values)

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
        guide = self.guide
        if not isinstance(guide, AutoASVI):
            return {}
        return {
            site.name: guide.parameter_name(site, "coupling/spline")
            for site in self.program.latent
            if "coupling/spline" in guide._declared[site.address]
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
            if site is not None and isinstance(site["fn"], MovedNoise)
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

    def kept(self, name: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made once."""
        if name not in self.programs:
            self.programs[name] = make()
        return self.programs[name]

    def jit(self, name: Any, make: Callable[[], Callable]) -> Compiled:
        """A compiled function of this problem, made once."""
        return self.kept(
            name, lambda: Compiled(make(), before=self._unchanged, double=self._double)
        )

    def _unchanged(self) -> None:
        """Raise where a fitted model reads other numbers now than it did then."""
        if self.is_fitted:
            self.refuse_change("what it reads is not what it was when it was fitted", _AGAIN)

    def compile_ahead(self, name: Any, make: Callable[[], Callable], *inputs: Any) -> None:
        """Begin to compile, beside what else goes on, for inputs of these shapes."""
        self.jit(name, make).begin(*inputs)


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
