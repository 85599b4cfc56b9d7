"""Takes model, family and data; gives a problem: one flat vector of numbers and its noisy ELBO."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to, constraints
from numpyro.infer.util import transform_fn

from asvi.compiling import Ahead, compiler_options
from asvi.errors import ModelError
from asvi.families import Family, WholeFamily
from asvi.families.moved import MovedNoise
from asvi.families.noise import noise_shape, stand_in, standard
from asvi.families.structured import AutoStructuredNormal
from asvi.guide import AutoASVI, autoguide
from asvi.input_check import input_check_of
from asvi.layout import NEEDS_VALUES, split
from asvi.objective import ELBO, score_part, trace_of
from asvi.program import Program
from asvi.stacked import over_steps

__all__ = ["Problem", "problem_for"]

FamilyChoice = Family | WholeFamily | Mapping[str, Family] | None


class Problem:
    """The ELBO of a guide as a function of one vector; compiled parts are kept with it.

    ``static_data`` closes the compiled program over the data: for models whose Python looks at the
    data's values (``if observed[t]``), which cannot be inputs of a compiled program.
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
        self.model, self.family = model, family
        self.guide = autoguide(model, family=family)
        if isinstance(self.guide, AutoASVI):
            self.guide._losses_seen.add("unknown")  # the loss is ours, whoever calls the guide
        arrays, self.layout = split(args, kwargs)
        self.static_data = False
        look = Program.of if check else Program.unchecked
        self.program = look(model, *args, **kwargs)
        if check and not isinstance(self.guide, AutoStructuredNormal):
            input_check_of(model).begin(args, kwargs)
        self._fixed: list[Any] = []
        self._objective = ELBO(discrete=discrete)
        self.compiled: dict[Any, Any] = {}
        self._unchecked = False
        self.start_priors: dict[str, Any] = {}  # by address, at the centre of these data's prior
        self.set_up(arrays, check)
        if check and isinstance(self.guide, AutoStructuredNormal):
            example = self._known(self.guide)
        else:
            key = jax.eval_shape(jax.random.key, 0)
            example = self.traced(arrays, lambda: jax.eval_shape(self._initial, key, arrays))
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

    def traced(self, arrays: list[Any], trace: Callable[[], Any]) -> Any:
        """What ``trace`` gives; once more, with the data fixed, where the model looks at values."""
        try:
            return trace()
        except NEEDS_VALUES:
            self.static_data, self._fixed = True, arrays
            return trace()

    def set_up(self, arrays: list[Any], check: bool = True) -> None:
        """Check these data and forget what earlier data said about the start."""
        args, kwargs = self.layout.join(arrays)
        guide = self.guide
        if isinstance(guide, AutoStructuredNormal):
            if guide.program is None:
                guide.set_program(self.program)
            self._unchecked = check
            return
        if isinstance(guide, AutoASVI):
            if guide.program is None:
                guide._setup_prototype(*args, check_input=check, **kwargs)
            elif check:
                guide._check_input(guide.program, args, kwargs)
            self.start_priors = dict(guide._starts.get("prior_mean", {}))
            guide._starts.clear()
            return
        if check:
            input_check_of(self.model)(args, kwargs)
        if guide.prototype_trace is None:
            trace_of(guide, jax.random.key(0), {}, {}, args, kwargs)

    def finish_check(self, arrays: list[Any], is_fine: Callable[[], bool]) -> None:
        """Raise where these data are wrong, if that was not looked at by :meth:`set_up`.

        Where a quicker look, ``is_fine``, finds nothing wrong, that is all.
        """
        if self._unchecked and not is_fine():
            args, kwargs = self.layout.join(arrays)
            input_check_of(self.model)(args, kwargs)
        self._unchecked = False

    def arguments(self, arrays: list[Any]) -> tuple[tuple, dict[str, Any]]:
        """The model's arguments, for use in a compiled program."""
        return self.layout.join(self._fixed if self.static_data else arrays)

    # ------------------------------------------------------------------------------ parameters

    def _initial(self, key: jax.Array, arrays: list[Any]) -> dict[str, jax.Array]:
        args, kwargs = self.arguments(arrays)
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

    def initial(self, key: jax.Array, arrays: list[Any]) -> jax.Array:
        """A start as a flat vector."""
        return ravel_pytree(self._initial(key, arrays))[0]

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
        prefixes = tuple(
            guide.parameter_name(site, "")
            for site in map(self.program.with_parents, self.program.latent)
            if not site.steps and all(shapes.get(p) != site.shape for p in site.parents)
        )
        names = [
            n for n in self.transforms if n.endswith("/prior_weight") and n.startswith(prefixes)
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
        arrays: list[Any],
        temperature: Any = 1.0,
        score_share: Any = None,
    ) -> jax.Array:
        """One draw's ELBO; the data's log density weighs ``temperature``."""
        return self._draw(flat, key, arrays, temperature, score_share)[0]

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
        self, flat: jax.Array, key: jax.Array, arrays: list[Any]
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """One draw's ELBO, and the noise that entered the splines, by site.

        Sites in branches, or under a mask, are left out: what they drew from is not to be seen.
        """
        elbo, _scores, latent = self._draw(flat, key, arrays, 1.0, None)
        sites = {name: (latent or {}).get(name) for name in self.splines}
        return elbo, {
            name: site["fn"].unit_noise(site["value"], site["intermediates"])
            for name, site in sites.items()
            if site is not None and isinstance(site["fn"], MovedNoise)
        }

    def _draw(self, flat, key, arrays, temperature, score_share) -> tuple[jax.Array, Any, Any]:
        args, kwargs = self.arguments(arrays)
        share = score_share if self.has_path else None
        weights = dict.fromkeys(sorted(self.observed), temperature)
        drawn = self._objective.draw(
            key, self.params(flat), share, self.model, self.guide, args, kwargs, weights
        )
        return sum(drawn.terms.values(), jnp.zeros(())), drawn.scores, drawn.latent

    def has_scores(self, arrays: list[Any]) -> bool:
        """Whether gradients of some site come by the score function, and want more draws."""
        flat = jax.ShapeDtypeStruct((self.size,), self.dtype)
        draw = jax.eval_shape(
            lambda flat, key: self._draw(flat, key, arrays, 1.0, None)[1], flat, jax.random.key(0)
        )
        return bool(draw)

    def loss(
        self,
        flat: jax.Array,
        keys: jax.Array,
        arrays: list[Any],
        temperature: Any = 1.0,
        score_share: Any = None,
    ) -> jax.Array:
        """Negative mean ELBO over ``keys``, with its gradient also through discrete draws."""
        elbos, scores = jax.vmap(
            lambda key: self._draw(flat, key, arrays, temperature, score_share)[:2]
        )(keys)
        return -jnp.mean(elbos) - score_part(scores)

    def site_terms(self, flat: jax.Array, key: jax.Array, arrays: list[Any]) -> dict[str, Any]:
        """One draw's ELBO by site."""
        return self.terms_at(self.params(flat), key, arrays)

    def terms_at(
        self, params: dict[str, jax.Array], key: jax.Array, arrays: list[Any]
    ) -> dict[str, Any]:
        """One draw's ELBO by site, at constrained parameters."""
        args, kwargs = self.arguments(arrays)
        return self._objective.site_terms(key, params, self.model, self.guide, *args, **kwargs)[0]

    def kept(self, name: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made once."""
        if name not in self.compiled:
            self.compiled[name] = make()
        return self.compiled[name]

    def jit(self, name: Any, make: Callable[[], Callable]) -> Callable:
        """A compiled function of this problem, made once."""
        return self.kept(name, lambda: jax.jit(make(), compiler_options=compiler_options()))

    def compile_ahead(
        self, name: Any, make: Callable[[], Callable], *inputs: Any, urgent: bool = False
    ) -> None:
        """Begin to compile, beside what else goes on, for inputs of these shapes."""
        self.kept(name, lambda: self.ahead(make(), inputs, urgent))

    @staticmethod
    def ahead(function: Callable, inputs: tuple, urgent: bool = False) -> Ahead:
        """This function, being compiled for inputs of these shapes."""
        return Ahead(jax.jit(function, compiler_options=compiler_options()), inputs, urgent)


_KEPT: OrderedDict[Any, Problem] = OrderedDict()
_KEEP = 16


def problem_for(
    model: Callable,
    family: FamilyChoice,
    args: tuple,
    kwargs: dict[str, Any],
    discrete: Any = "auto",
) -> tuple[Problem, list[Any]]:
    """The problem for this call and its data; an earlier one of the same shape is used again.

    So a second fit of the same model with new data of the same shapes compiles nothing.
    """
    arrays, layout = split(args, kwargs)
    layout_key = layout.key()
    key = None
    if layout_key is not None:
        double = bool(jax.config.read("jax_enable_x64"))
        key = (model, repr(family), repr(discrete), layout_key, double)
        try:
            hash(key)
        except TypeError:
            key = None
    if key is not None and key in _KEPT and not _KEPT[key].static_data:
        _KEPT.move_to_end(key)
        _KEPT[key].set_up(arrays)
        return _KEPT[key], arrays
    problem = Problem(model, family, args, kwargs, discrete=discrete)
    if key is not None:
        _KEPT[key] = problem
        while len(_KEPT) > _KEEP:
            _KEPT.popitem(last=False)
    return problem, arrays
