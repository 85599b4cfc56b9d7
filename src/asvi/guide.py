"""Takes a model and a family; gives AutoASVI, a guide: the model program under another reading.

>>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, optax, asvi
>>> def model(y):
...     mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
...     with numpyro.plate("group", 3):
...         theta = numpyro.sample("theta", dist.Normal(mu, 1.0))
...         numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)
>>> guide = AutoASVI(model)
>>> svi = numpyro.infer.SVI(model, guide, optax.adam(0.05), asvi.ELBO(num_particles=8))
>>> y = jnp.array([2.0, 3.0, 4.0])
>>> result = svi.run(jax.random.key(0), 500, y, progress_bar=False)
>>> draws = guide.sample_posterior(jax.random.key(1), result.params, sample_shape=(1000,))
>>> draws["theta"].shape
(1000, 3)
>>> bool(abs(draws["mu"].mean() - 3.0) < 0.3)
True
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro import handlers
from numpyro.distributions import Distribution, Unit, biject_to
from numpyro.infer.autoguide import AutoGuide
from numpyro.util import not_jax_tracer

from asvi.checks import check_distribution, check_observed
from asvi.errors import FamilyError, ModelError, SiteError
from asvi.families import ConvexUpdate, Family, Parameter
from asvi.interpretation import Interpretation, outer_handlers
from asvi.losses import check_loss
from asvi.program import Program, Site, survey
from asvi.stacked import over_steps

__all__ = ["AutoASVI"]

_LONG_LOOP = 16
_OTHER_SIZE = (
    "Its parameters have the shape of the first call. Call guide and Predictive with data of that "
    "size, or predict from draws: Predictive(model, guide.sample_posterior(...))."
)


class AutoASVI(AutoGuide):
    r"""A structured guide for any NumPyro model, made from the model itself.

    The guide runs the model. At each latent site the model's distribution, at the values that the
    guide drew for the site's parents, is handed to a *family*, and the guide samples from what the
    family makes of it. Control flow, dependencies, shapes and cost are the model's own.

    It is a :class:`numpyro.infer.autoguide.AutoGuide`: use it with ``SVI``, ``Predictive``,
    :meth:`sample_posterior`, :meth:`median`, :meth:`quantiles`. Use it with :class:`asvi.ELBO`,
    which is right on every model; where one of NumPyro's own losses would be silently wrong, the
    guide says so.

    :param model: an ordinary NumPyro model: loops, plates (also subsampled), ``scan``, ``cond``,
        ``factor``, ``mask``, ``scale``, ``param``, modules, handlers.
    :param family: a :class:`~asvi.families.Family` for all sites (default
        :class:`~asvi.families.ConvexUpdate`), or one per site name, where a name may be a pattern:
        ``{"theta*": ConvexUpdate(), "sigma": MeanField()}``; the first pattern that fits decides,
        and sites without one get the default. Parents stay connected across families.
    :param prefix: of the parameters' names: ``{prefix}/{site}/{leaf}/prior_weight``, and so on.
        Sites in the branches of a ``cond`` are called ``site[true]`` and ``site[false]``.
    """

    def __init__(
        self,
        model: Callable,
        *,
        family: Family | Mapping[str, Family] | None = None,
        prefix: str = "auto",
    ):
        super().__init__(model, prefix=prefix)
        self.families = _as_patterns(family)
        self.program: Any = None  # a Program after the first call
        self._declared: dict[str, dict[str, Parameter]] = {}
        self._family_of: dict[str, Family] = {}
        self._surrogates: dict[str, Distribution] = {}
        self._starts: dict[str, dict[str, Distribution]] = {}
        self._first_call: tuple[tuple, dict] | None = None
        self._losses_seen: set[str] = set()

    # ---------------------------------------------------------------------------- as a guide

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, jax.Array]:
        """Draw all latent sites; gives their values by name."""
        if self.program is None:
            self._setup_prototype(*args, **kwargs)
        check_loss(self.program, self._surrogates, self._losses_seen)
        return self._run(*args, **kwargs)[0]

    def _run(self, *args, **kwargs) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        with handlers.trace() as trace, _Surrogate(self, args, kwargs) as reading:
            self.model(*args, **kwargs)
        latent = {name: m["value"] for name, m in trace.items() if m["type"] == "sample"}
        return latent, reading.deterministic

    def sample_posterior(
        self,
        rng_key: jax.Array,
        params: dict[str, Any],
        *args: Any,
        sample_shape: tuple[int, ...] = (),
        **kwargs: Any,
    ) -> dict[str, jax.Array]:
        """Draws of every latent and deterministic site, each of shape ``sample_shape + site``.

        Without ``args`` the guide uses those that it was first called with.
        """
        args, kwargs = self._arguments(args, kwargs)

        def draw(key: jax.Array, params: dict[str, Any]) -> dict[str, jax.Array]:
            with handlers.seed(rng_seed=key), handlers.substitute(data=params):
                latent, deterministic = self._run(*args, **kwargs)
            return {**latent, **deterministic}

        size = 1
        for n in sample_shape:
            size *= n
        draws = jax.jit(jax.vmap(draw, (0, None)))(jax.random.split(rng_key, size), params)
        return jax.tree.map(lambda x: x.reshape(sample_shape + x.shape[1:]), draws)

    def quantiles(
        self,
        params: dict[str, Any],
        quantiles: Any,
        *args: Any,
        rng_key: jax.Array | None = None,
        num_draws: int = 4000,
        **kwargs: Any,
    ) -> dict[str, jax.Array]:
        """Marginal quantiles of each latent site, on a leading axis, from ``num_draws`` draws."""
        args, kwargs = self._arguments(args, kwargs)
        key = jax.random.key(0) if rng_key is None else rng_key
        draws = self.sample_posterior(key, params, *args, sample_shape=(num_draws,), **kwargs)
        latent = {site.name for site in self.program.latent}
        levels = jnp.asarray(quantiles)
        return {
            name: jnp.quantile(x, levels, axis=0) for name, x in draws.items() if name in latent
        }

    def median(self, params: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, jax.Array]:
        """The marginal median of each latent site; see :meth:`quantiles`."""
        return self.quantiles(params, 0.5, *args, **kwargs)

    def _arguments(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        if self.program is None:
            self._setup_prototype(*args, **kwargs)
        if args or kwargs or self._first_call is None:
            return args, kwargs
        return self._first_call

    # ---------------------------------------------------------------------------- its set-up

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        program = Program.of(self.model, *args, **kwargs)
        _refuse_reversed(program)
        family_of = {site.address: self._choose(site) for site in program.latent}
        self._check_patterns(program)
        declared, surrogates = {}, {}
        for site in map(program._with_parents, program.latent):
            family = family_of[site.address]
            declared[site.address] = family.declare(site)
            surrogates[site.address] = _abstract_surrogate(family, site, declared[site.address])
        self._starts.clear()
        self._check_input(program, args, kwargs)
        if all(not_jax_tracer(x) for x in jax.tree.leaves((args, kwargs))):
            self._first_call = (args, kwargs)
        _hint_at_scan(program)
        _warn_of_jumps(program)
        self.program, self._family_of = program, family_of
        self._declared, self._surrogates = declared, surrogates
        self.prototype_trace = {site.name: site for site in program.sites}

    def _check_input(self, program: Program, args: tuple, kwargs: dict[str, Any]) -> None:
        """Run the model once at its prior's centre and look at every number that is known."""
        run = survey(self.model, args, kwargs, "prior_mean")

        def at_center(key: jax.Array):
            priors, values = run(key)
            return priors, values, {name: run.trace[name]["fn"] for name in values}

        key = jax.random.key(0)
        with jax.ensure_compile_time_eval():
            try:
                priors, values, met = jax.jit(at_center)(key)
            except TypeError:  # a distribution with parts that are no arrays (sparse matrices)
                priors, values, met = at_center(key)
        for name, fn in met.items():
            if isinstance(fn, Unit):
                continue
            if run.trace[name]["is_observed"]:
                check_observed(name, {"fn": fn, "value": values[name]})
            check_distribution(name, fn)
        latent = {site.address for site in program.latent}
        priors = {address: fn for address, fn in priors.items() if address in latent}
        if all(not_jax_tracer(x) for x in jax.tree.leaves(priors)):
            self._starts["prior_mean"] = priors

    def _choose(self, site: Site) -> Family:
        for pattern, family in self.families.items():
            if fnmatchcase(site.name, pattern):
                return family
        return ConvexUpdate()

    def _check_patterns(self, program: Program) -> None:
        names = [site.name for site in program.latent]
        for pattern in self.families:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise FamilyError(
                    f"family={{{pattern!r}: ...}} fits no latent site; the latent sites are "
                    f"{', '.join(names)}."
                )

    # ------------------------------------------------------------------------- its parameters

    def parameter_name(self, site: Site, name: str) -> str:
        """The NumPyro name of a site's parameter, e.g. ``auto/theta/loc/prior_weight``."""
        branches = [label for label in site.block if label in ("true", "false")]
        label = f"{site.name}[{','.join(branches)}]" if branches else site.name
        return f"{self.prefix}/{label}/{name}"

    def initial_value(
        self, site: Site, name: str, key: jax.Array, args: tuple, kwargs: dict[str, Any]
    ) -> jax.Array:
        """Where a parameter starts: shape ``site.steps + parameter.shape``."""
        parameter = self._declared[site.address][name]
        steps = len(site.steps)
        if parameter.initial is None:
            transform = biject_to(parameter.constraint)
            shape = site.steps + parameter.shape
            return transform(jnp.zeros(transform.inverse_shape(shape)))
        start = getattr(self._family_of[site.address], "start", "prior_mean")
        start = "prior_draw" if start == "prior_draw" else "prior_mean"
        prior = self._prior_at(start, key, args, kwargs)[site.address]
        keys = jax.random.split(key, site.steps) if steps else key
        return over_steps(parameter.initial, steps)(keys, prior)

    def _prior_at(self, start, key, args, kwargs) -> dict[str, Distribution]:
        if start in self._starts:
            return self._starts[start]
        return survey(self.model, args, kwargs, start)(key)[0]


class _Surrogate(Interpretation):
    """One run of the model as a guide: latent sites updated, data and factors unheard."""

    def __init__(self, guide: AutoASVI, args: tuple, kwargs: dict[str, Any]):
        super().__init__()
        self.guide, self.args, self.kwargs = guide, args, kwargs
        self.program = guide.program
        self.sites = {site.address: site for site in guide.program.latent}
        self.observed = {site.name for site in guide.program.sites if site.kind != "latent"}
        self.deterministic: dict[str, jax.Array] = {}
        self._plate_sizes: dict[str, int] = {}
        self._start_key: jax.Array | None = None

    # -------------------------------------------------------------------------------- sites

    def visit(self, msg: dict[str, Any]) -> None:
        # The observed set is the one of the first call: `Predictive(..., y=None)` must not turn
        # data into latent sites.
        if msg["is_observed"] or msg["name"] in self.observed:
            self._hide(msg)
            return
        site = self.sites.get("/".join((*self.frame.path, msg["name"])))
        if site is None:
            raise ModelError(
                f"site {msg['name']!r} was not in the model when the guide was set up (its latent "
                f"sites were {', '.join(s.name for s in self.program.latent)}).\n"
                "Make a new guide for a model of another structure: guide = AutoASVI(model)."
            )
        self._check_shape(msg, site)
        family = self.guide._family_of[site.address]
        parameters = {
            name: self._subsampled(self._parameter(site, name), site, parameter)
            for name, parameter in self.guide._declared[site.address].items()
        }
        msg["fn"] = family.update(msg["fn"], parameters, site)
        _keep_plate_scale_only(msg)

    def visit_other(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate":
            self._plate_sizes[msg["name"]] = msg["args"][0]
        elif msg["type"] == "deterministic" and self.frame.is_root:
            self.deterministic[msg["name"]] = msg["value"]
            msg["stop"] = True

    def reports(self, msg: dict[str, Any]) -> bool:
        return msg["type"] != "sample" or msg["name"] not in self.observed

    def _report(self, site: dict[str, Any]) -> None:
        if site["type"] == "deterministic" and self.frame.is_root:
            self.deterministic[site["name"]] = site["value"]
        else:
            super()._report(site)

    def _hide(self, msg: dict[str, Any]) -> None:
        if not self.frame.is_root:
            return  # bodies report only what `reports` lets through
        if msg["value"] is None and msg["kwargs"].get("rng_key") is None:
            msg["kwargs"]["rng_key"] = numpyro.prng_key()
        msg["stop"] = True

    def _check_shape(self, msg: dict[str, Any], site: Site) -> None:
        now = list(msg["fn"].batch_shape)
        for frame in msg["cond_indep_stack"]:
            now[frame.dim] = self._plate_sizes.get(frame.name, frame.size)
        then = site.full_batch_shape + site.event_shape
        if (shape := tuple(now) + msg["fn"].event_shape) != then:
            raise SiteError(
                site.name,
                f"it has shape {shape} now and had {then} when the guide was set up",
                advice=_OTHER_SIZE,
            )

    # ------------------------------------------------------------------------- its parameters

    def _parameter(self, site: Site, name: str) -> jax.Array:
        """This run's value of a parameter, plates at full size."""
        if self.frame.is_root:
            return self._declare(site, name)
        return self.frame.threaded[_key(site, name)]

    def _declare(self, site: Site, name: str) -> jax.Array:
        parameter = self.guide._declared[site.address][name]

        def initial(key: jax.Array) -> jax.Array:
            # One key, so that all sites start from the same draw of the prior.
            if self._start_key is None:
                self._start_key = key
            return self.guide.initial_value(site, name, self._start_key, self.args, self.kwargs)

        with outer_handlers(self):
            return numpyro.param(
                self.guide.parameter_name(site, name),
                initial,
                constraint=parameter.constraint,
            )

    def _subsampled(self, value: jax.Array, site: Site, parameter: Parameter) -> jax.Array:
        if all(plate.size == plate.subsample_size for plate in site.plates):
            return value
        event_dim = len(parameter.shape) - len(site.full_batch_shape)
        return numpyro.subsample(value, event_dim=event_dim)

    def thread(self, path: tuple[str, ...], length: int, reverse: bool) -> dict[str, jax.Array]:
        depth = sum(part.startswith("scan") for part in path) - 1
        for site in self.program.in_block(path):
            if site.steps[depth] != length:
                raise SiteError(
                    site.name,
                    f"its scan has {length} steps now and had {site.steps[depth]} when the guide "
                    "was set up",
                    advice=_OTHER_SIZE,
                )
        return self._within(path)

    def thread_branch(self, path: tuple[str, ...]) -> dict[str, jax.Array]:
        return self._within(path)

    def _within(self, path: tuple[str, ...]) -> dict[str, jax.Array]:
        """The parameters of all latent sites in a block, declared out here or passed on inwards."""
        return {
            _key(site, name): self._parameter(site, name)
            for site in self.program.in_block(path)
            for name in self.guide._declared[site.address]
        }


# -------------------------------------------------------------------------------- small helpers


def _key(site: Site, name: str) -> str:
    return f"{site.address}|{name}"


def _as_patterns(family: Family | Mapping[str, Family] | None) -> dict[str, Family]:
    if family is None:
        return {}
    if isinstance(family, Family):
        return {"*": family}
    if isinstance(family, Mapping) and all(isinstance(f, Family) for f in family.values()):
        return dict(family)
    raise FamilyError(
        f"family={family!r} is neither a family nor a dict of them.\n"
        "Write family=asvi.families.MeanField(), or family={'theta*': asvi.families.MeanField()}."
    )


def _keep_plate_scale_only(msg: dict[str, Any]) -> None:
    """Undo ``handlers.scale`` at a latent site: it tempers the model's density, not the guide's."""
    by_hand = msg.get("plate_to_scale", {}).get(None)
    if by_hand is not None and msg["scale"] is not None:
        msg["scale"] = msg["scale"] / by_hand


def _abstract_surrogate(family: Family, site: Site, declared: dict[str, Parameter]) -> Distribution:
    """The family's surrogate in shapes alone; raise if its shapes are not the site's."""
    batch, full = site.batch_shape, site.full_batch_shape

    def make(prior: Distribution) -> Distribution:
        parameters = {}
        for name, parameter in declared.items():
            shape = batch + parameter.shape[len(full) :]
            transform = biject_to(parameter.constraint)
            parameters[name] = transform(jnp.zeros(transform.inverse_shape(shape)))
        return family.update(prior, parameters, site)

    surrogate = jax.eval_shape(make, site.distribution)
    if surrogate.shape() != batch + site.event_shape:
        raise FamilyError(
            f"site {site.name!r}: {type(family).__name__} gave a surrogate of shape "
            f"{surrogate.shape()}, the site has shape {batch + site.event_shape}.\n"
            "`update` must keep the prior's batch and event shape."
        )
    return surrogate


def _refuse_reversed(program: Program) -> None:
    for path in sorted(program.reversed_scans):
        for site in program.in_block(path):
            raise SiteError(
                site.name,
                "it is latent under `scan(..., reverse=True)`, where NumPyro's own handlers give "
                "values back in the wrong order (Predictive, replay, substitute)",
                "xs = jax.tree.map(lambda x: x[::-1], xs)\n"
                "carry, ys = scan(body, init, xs)            # forward over reversed inputs\n"
                "ys = jax.tree.map(lambda y: y[::-1], ys)",
            )


def _hint_at_scan(program: Program) -> None:
    groups: dict[tuple[str, str], list[str]] = {}
    for site in program.latent:
        if not site.block:
            stem = re.sub(r"\d+", "#", site.name)
            groups.setdefault((stem, type(site.distribution).__name__), []).append(site.name)
    for (stem, kind), names in groups.items():
        if "#" in stem and len(names) >= _LONG_LOOP:
            warnings.warn(
                f"the model draws {len(names)} sites like {names[0]!r} ({kind}) in a Python loop; "
                "compile time grows with each of them. numpyro.contrib.control_flow.scan compiles "
                "the step once, whatever the length. If the loop must stay, see "
                "docs/control_flow.md for compiler options that cut its compile time.",
                stacklevel=find_caller(),
            )


def _warn_of_jumps(program: Program) -> None:
    """A branch taken on a continuous latent: the density jumps where path gradients cannot see."""
    discrete = {site.name for site in program.latent if site.is_discrete}
    for path, parents in program.parents.items():
        if not path.rsplit("/", 1)[-1].startswith("cond") or path in program.addresses:
            continue
        for name in parents:
            if name not in discrete:
                warnings.warn(
                    f"site {name!r} is continuous and decides the branch of a `cond`: the density "
                    "jumps where the branch changes, and reparameterised gradients do not see the "
                    "jump. The ELBO is right, its gradient is biased. Let a discrete or observed "
                    "quantity decide the branch, or blend the branches smoothly: "
                    f"w = jax.nn.sigmoid({name} / width).",
                    stacklevel=find_caller(),
                )


def find_caller() -> int:
    """Stack level of the first frame outside this package and the libraries that call it."""
    from numpyro.util import find_stack_level

    return find_stack_level()
