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

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions import Distribution, biject_to
from numpyro.infer.autoguide import AutoGuide
from numpyro.util import not_jax_tracer

from asvi.advice import hint_at_scan, jumps, refuse_reversed_scans
from asvi.dependence import Dependence, meetings
from asvi.drawing import DrawingGuide
from asvi.encoding import encodings_of
from asvi.errors import FamilyError, SiteError
from asvi.families import Amortized, ContextFamily, ConvexUpdate, Family, Parameter, WholeFamily
from asvi.improper import Improper, find_improper
from asvi.input_check import InputCheck
from asvi.losses import check_loss
from asvi.ordinary import Ordinary
from asvi.program import Program, Site, survey
from asvi.reading import SurrogateReading
from asvi.stacked import over_steps

__all__ = ["AutoASVI", "autoguide"]


def autoguide(
    model: Callable,
    *,
    family: Family | WholeFamily | Mapping[str, Family] | None = None,
    prefix: str = "auto",
) -> AutoGuide:
    """The guide of any family: :class:`AutoASVI` for families of sites, or a joint one.

    >>> import numpyro, numpyro.distributions as dist
    >>> from asvi.families import ConvexUpdate, MultivariateNormal
    >>> model = lambda: numpyro.sample("x", dist.Normal(0.0, 1.0))
    >>> type(autoguide(model, family=ConvexUpdate())).__name__
    'AutoASVI'
    >>> type(autoguide(model, family=MultivariateNormal())).__name__
    'AutoMultivariateNormal'
    """
    if isinstance(family, WholeFamily):
        return family.guide(Ordinary(model), prefix)
    return AutoASVI(model, family=family, prefix=prefix)


class AutoASVI(DrawingGuide, AutoGuide):
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
        self.contexts: dict[str, Any] = {}  # what each site listens to, by address
        self.encodings: list[Any] = []  # the encoders of amortised families
        self.jumps: frozenset[str] = frozenset()  # continuous sites that decide a branch
        self.dependence: Dependence | None = None  # of sites without reparameterised draws
        self.improper: dict[str, Improper] = {}  # latent numbers without a posterior, by site
        self._starts: dict[str, dict[str, Distribution]] = {}
        self._input_check = InputCheck(model)
        self._losses_seen: set[str] = set()

    # ---------------------------------------------------------------------------- as a guide

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, jax.Array]:
        """Draw all latent sites; gives their values by name."""
        if self.program is None:
            self._setup_prototype(*args, **kwargs)
        program: Program = self.program
        check_loss(program, self._surrogates, self._losses_seen)
        return self._run(*args, **kwargs)[0]

    def _run(self, *args, **kwargs) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        with handlers.trace() as trace, SurrogateReading(self, args, kwargs) as reading:
            self.model(*args, **kwargs)
        latent = {name: m["value"] for name, m in trace.items() if m["type"] == "sample"}
        return latent, reading.deterministic

    # ---------------------------------------------------------------------------- its set-up

    def _setup_prototype(self, *args: Any, check_input: bool = True, **kwargs: Any) -> None:
        look = Program.of if check_input else Program.unchecked
        program = look(self.model, *args, **kwargs)
        refuse_reversed_scans(program)
        family_of = {site.address: self._choose(site) for site in program.latent}
        self._check_patterns(program)
        declared, surrogates = {}, {}
        contexts = _contexts(program, family_of)
        encodings = encodings_of(program, family_of, self.model, args, kwargs)
        heads = {a: heads for encoding in encodings for a, heads in encoding.heads.items()}
        for site in map(program.with_parents, program.latent):
            family, context = family_of[site.address], contexts.get(site.address)
            if isinstance(family, ContextFamily):
                declared[site.address] = family.declare_in(site, context)
                # In shapes a moved surrogate is the family's own, unmoved.
                own = family.declare(site)
            elif isinstance(family, Amortized) and site.address in heads:
                given = heads[site.address]
                declared[site.address] = family.declare_shared(site, given)
                own = {**declared[site.address], **_as_declared(site, given)}
            else:
                own = declared[site.address] = family.declare(site)
            surrogates[site.address] = _abstract_surrogate(family, site, own)
        self._starts.clear()
        if check_input:
            self._check_input(program, args, kwargs)
            self.improper = find_improper(self.model, program, args, kwargs)
        self._remember(args, kwargs)
        hint_at_scan(program)
        self.program, self._family_of = program, family_of
        self._declared, self._surrogates = declared, surrogates
        self.contexts, self.jumps, self.encodings = contexts, jumps(program), encodings
        self._check_names()
        self.dependence = self._dependence(program, args, kwargs)
        self.prototype_trace = {site.name: site for site in program.sites}

    def _dependence(self, program: Program, args: tuple, kwargs: dict) -> Dependence | None:
        """Who depends on sites without reparameterised draws; None where there are none."""
        hard = {s.name for s in program.latent if not self._surrogates[s.address].has_rsample}
        sources = frozenset(hard | self.jumps)
        if not sources:
            return None
        local = meetings(program, self.model, self._run, args, kwargs, sources)
        return Dependence(program, sources, local)

    def _check_input(self, program: Program, args: tuple, kwargs: dict[str, Any]) -> None:
        """Look at every number that is known; see :class:`~asvi.input_check.InputCheck`."""
        found = self._input_check(args, kwargs)
        latent = {site.address for site in program.latent}
        priors = {address: fn for address, fn in found.items() if address in latent}
        if all(not_jax_tracer(x) for x in jax.tree.leaves(priors)):
            self._starts["prior_mean"] = priors

    def _choose(self, site: Site) -> Family:
        for pattern, family in self.families.items():
            if _fits(site.name, pattern):
                return family
        return ConvexUpdate()

    def _check_patterns(self, program: Program) -> None:
        names = [site.name for site in program.latent]
        for pattern in self.families:
            if not any(_fits(name, pattern) for name in names):
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

    def parameter_roles(self) -> dict[str, str]:
        """What each parameter of the guide is, by its full name: what its site calls it.

        Names of sites are the user's, so nothing can be told by the text of a full name.
        """
        program: Program = self.program
        roles = {
            self.parameter_name(site, name): name
            for site in program.latent
            for name in self._declared[site.address]
        }
        for encoding in self.encodings:
            for name, role in encoding.asked().items():
                roles[f"{self.prefix}/{name}"] = role
        return roles

    def _check_names(self) -> None:
        """Raise where two parameters would have one name."""
        program: Program = self.program
        owners: dict[str, str] = dict.fromkeys(program.trained, "the model's own parameter")
        for site in program.latent:
            for name in self._declared[site.address]:
                full = self.parameter_name(site, name)
                if full in owners:
                    raise SiteError(
                        site.name,
                        f"its parameter {full!r} would have the name of {owners[full]}",
                        f"asvi.AutoASVI(model, prefix={self.prefix + '2'!r})   # or another name "
                        "for the site",
                    )
                owners[full] = f"one of site {site.name!r} (at {site.address})"

    def initial_value(
        self,
        site: Site,
        name: str,
        key: jax.Array,
        args: tuple,
        kwargs: dict[str, Any],
        priors: dict[str, Any] | None = None,
    ) -> jax.Array:
        """Where a parameter starts: shape ``site.steps + parameter.shape``.

        ``priors`` keeps what one run of the model said, for the other parameters of the same run.
        """
        parameter = self._declared[site.address][name]
        steps = len(site.steps)
        if parameter.initial is None:
            transform = biject_to(parameter.constraint)
            shape = site.steps + parameter.shape
            return transform(jnp.zeros(transform.inverse_shape(shape)))
        start = getattr(self._family_of[site.address], "start", "prior_mean")
        start = "prior_draw" if start == "prior_draw" else "prior_mean"
        priors = {} if priors is None else priors
        if start not in priors:
            priors[start] = self._prior_at(start, key, args, kwargs)
        prior = priors[start][site.address]
        keys = jax.random.split(key, site.steps) if steps else key
        return over_steps(parameter.initial, steps)(keys, prior)

    def priors_at_start(
        self, key: jax.Array, args: tuple, kwargs: dict[str, Any]
    ) -> dict[str, Distribution]:
        """The sites' priors where amortised families start, by address."""
        return self._prior_at("prior_mean", key, args, kwargs)

    def _prior_at(self, start, key, args, kwargs) -> dict[str, Distribution]:
        if start in self._starts:
            return self._starts[start]
        return survey(self.model, args, kwargs, start)(key)[0]


# -------------------------------------------------------------------------------- small helpers


def _fits(name: str, pattern: str) -> bool:
    """Whether a pattern is this name, or fits it: a name may have brackets of its own."""
    return name == pattern or fnmatchcase(name, pattern)


def _as_patterns(family: Family | Mapping[str, Family] | None) -> dict[str, Family]:
    if family is None:
        return {}
    if isinstance(family, Family):
        return {"*": family}
    if isinstance(family, Mapping) and all(isinstance(f, Family) for f in family.values()):
        return dict(family)
    if isinstance(family, WholeFamily):
        raise FamilyError(
            f"{type(family).__name__} is a family of the whole model, not of its sites.\n"
            f"Write asvi.autoguide(model, family={family!r})."
        )
    raise FamilyError(
        f"family={family!r} is neither a family nor a dict of them.\n"
        "Write family=asvi.families.MeanField(), or family={'theta*': asvi.families.MeanField()}."
    )


def _contexts(program: Program, family_of: dict[str, Family]) -> dict[str, Any]:
    """What the sites of families that listen to others listen to, by address."""
    found: dict[str, Any] = {}
    listening = [f for f in family_of.values() if isinstance(f, ContextFamily)]
    for k, family in enumerate(listening):
        if any(family is other for other in listening[:k]):
            continue
        sites = [s for s in program.latent if family_of[s.address] is family]
        found |= family.contexts(program, [program.with_parents(s) for s in sites])
    return found


def _as_declared(site: Site, heads: Mapping[str, Any]) -> dict[str, Parameter]:
    """What an encoder gives to a site, as if it were declared for each point."""
    batch = len(site.full_batch_shape)
    return {
        name: Parameter(site.full_batch_shape + head.shape[batch - 1 :], head.constraint)
        for name, head in heads.items()
    }


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
