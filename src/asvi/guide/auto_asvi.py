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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import Distribution, biject_to
from numpyro.infer.autoguide import AutoGuide
from numpyro.util import not_jax_tracer

from asvi.density.bound_model import BoundModel
from asvi.density.noise_space import NoiseSpace
from asvi.errors import FamilyError, SiteError
from asvi.families.convex import ConvexUpdate
from asvi.families.guide_protocol import Guide, SiteRow
from asvi.families.parameter import Parameter, Role
from asvi.families.protocol import AnyFamily, Family, JointFamily
from asvi.families.sampling import SamplingGuide
from asvi.guide.edges import Edges, trace_edges
from asvi.guide.loss_guard import guard_loss
from asvi.guide.noise_space import GuideSpace
from asvi.guide.surrogate_run import SurrogateRun
from asvi.program.dependence.terms import Dependence, find_plate_crossings
from asvi.program.improper import Improper, find_improper
from asvi.program.input_check import InputCheck
from asvi.program.model_warnings import check_reversed_scans, discontinuous_sites, warn_long_loops
from asvi.program.program import Program
from asvi.program.run_trace import joint_log_density, trace_of
from asvi.program.site import Site
from asvi.program.statements.ordinary import Ordinary
from asvi.program.statements.stacked import over_steps
from asvi.program.survey import survey

__all__ = ["AutoASVI", "autoguide"]


def autoguide(
    model: Callable,
    *,
    family: Family | JointFamily | Mapping[str, Family] | None = None,
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
    if isinstance(family, AnyFamily):
        joint = family.guide(Ordinary(model), prefix)
        if joint is not None:
            return joint
    sites: Any = family
    return AutoASVI(model, family=sites, prefix=prefix)


class AutoASVI(Guide, SamplingGuide, AutoGuide):
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
        self.encodings: list[Any] = []  # what makes parameters of sites from the data
        self.score_sites: frozenset[str] = frozenset()  # continuous sites that decide a branch
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
        guard_loss(program, self._surrogates, self._losses_seen)
        return self._run(*args, **kwargs)[0]

    def _run(self, *args, **kwargs) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        with handlers.trace() as trace, SurrogateRun(self, args, kwargs) as reading:
            self.model(*args, **kwargs)
        latent = {name: m["value"] for name, m in trace.items() if m["type"] == "sample"}
        return latent, reading.deterministic

    # --------------------------------------------------------- what is asked of guides of all kinds

    has_path_gradients = True
    by_site = True

    def set_up(self, bound: BoundModel, check: InputCheck | None) -> None:
        if check is not None:
            self._input_check = check
        args, kwargs = bound.arguments
        self._setup_prototype(*args, check_input=check is not None, **kwargs)

    def trust_losses(self) -> None:
        self._losses_seen.add("unknown")

    def start_priors(self) -> dict[str, Any]:
        """As they were met in the set-up, which are forgotten: other data may come."""
        found = dict(self._starts.get("prior_mean", {}))
        self._starts.clear()
        return found

    def log_density(
        self, params: dict[str, Any], values: dict[str, Any], args: tuple, kwargs: dict[str, Any]
    ) -> jax.Array:
        drawn = trace_of(self, jax.random.key(0), params, values, args, kwargs)
        return joint_log_density(drawn)

    def noise_space(self, bound: BoundModel) -> NoiseSpace | None:
        """Where every site's family has the parameters that a Gaussian is written into."""
        for site in map(bound.program.with_parents, bound.program.latent):
            if not self.family_of(site).holds_gaussian(site, self.declared(site)):
                return None
        return NoiseSpace.of(bound)

    def edges(self, space: NoiseSpace) -> Edges:
        """Who hears whom, number by number."""
        return trace_edges(self, space.bound, space)

    def guide_space(self, bound: BoundModel) -> GuideSpace | None:
        """The guide's own noise, in one vector; None where it is not all that draws are made of."""
        return GuideSpace.of(self, bound)

    def explain_site(self, params: Mapping[str, Any], site: Site) -> SiteRow:
        weights = {
            str(parameter.leaf): float(np.mean(params[self.parameter_name(site, name)]))
            for name, parameter in sorted(self.declared(site).items())
            if parameter.role is Role.PRIOR_WEIGHT
        }
        return SiteRow(site.name, self.family_of(site).name, (), weights)

    def prior_shares(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {
            self.parameter_name(site, str(parameter.leaf)).removeprefix(f"{self.prefix}/"): (
                np.asarray(params[self.parameter_name(site, name)])
            )
            for site in self.program.latent
            for name, parameter in self.declared(site).items()
            if parameter.role is Role.PRIOR_WEIGHT
        }

    def couples(self, parent: Site, child: Site) -> bool:
        """A site follows its parents, and what it hears, and no others."""
        for first, then in ((parent, child), (child, parent)):
            inputs = self.contexts.get(then.address)
            if inputs is not None and first.address in inputs.shifting:
                return True
            if first.name in then.parents and self.family_of(then).follows_parents(then):
                return True
        return False

    @property
    def dropped(self) -> tuple[tuple[str, str], ...]:
        names = {site.address: site.name for site in self.program.sites}
        return tuple(
            (names[other], names[address])
            for address, inputs in self.contexts.items()
            for other in inputs.dropped
        )

    # ---------------------------------------------------------------------------- its set-up

    def _setup_prototype(self, *args: Any, check_input: bool = True, **kwargs: Any) -> None:
        look = Program.of if check_input else Program.unchecked
        program = look(self.model, *args, **kwargs)
        check_reversed_scans(program)
        family_of = {site.address: self._choose(site) for site in program.latent}
        self._check_patterns(program)
        declared, surrogates = {}, {}
        contexts = self._inputs(program, family_of)
        encodings = self._from_data(program, family_of, args, kwargs)
        for site in map(program.with_parents, program.latent):
            family, address = family_of[site.address], site.address
            encoding = next((e for e in encodings if address in e.heads), None)
            if encoding is not None:
                own = declared[address] = encoding.declare(site)
                own = {**own, **encoding.as_declared(site)}
            else:
                declared[address] = family.declare_with(site, contexts.get(address))
                # In shapes a moved surrogate is the family's own, unmoved.
                own = family.declare(site)
            surrogates[address] = _abstract_surrogate(family, site, own)
        self._starts.clear()
        if check_input:
            self._check_input(program, args, kwargs)
            self.improper = find_improper(self.model, program, args, kwargs)
        self._remember(args, kwargs)
        warn_long_loops(program)
        self.program, self._family_of = program, family_of
        self._declared, self._surrogates = declared, surrogates
        self.contexts, self.encodings = contexts, encodings
        self.score_sites = discontinuous_sites(program)
        self._check_names()
        self.dependence = self._dependence(program, args, kwargs)
        self.prototype_trace = {site.name: site for site in program.sites}

    def _dependence(self, program: Program, args: tuple, kwargs: dict) -> Dependence | None:
        """Who depends on sites without reparameterised draws; None where there are none."""
        hard = {s.name for s in program.latent if not self._surrogates[s.address].has_rsample}
        sources = frozenset(hard | self.score_sites)
        if not sources:
            return None
        local = find_plate_crossings(program, self.model, self._run, args, kwargs, sources)
        return Dependence(program, sources, local)

    def _inputs(self, program: Program, family_of: dict[str, Family]) -> dict[str, Any]:
        """What the sites hear of earlier sites' noise, by address."""
        found: dict[str, Any] = {}
        for family, sites in _by_family(program, family_of):
            found |= family.inputs(program, [program.with_parents(s) for s in sites])
        return found

    def _from_data(
        self, program: Program, family_of: dict[str, Family], args: tuple, kwargs: dict[str, Any]
    ) -> list[Any]:
        """What makes parameters from the data, in the order of the program's sites."""
        found: list[Any] = []
        for family, some in _by_family(program, family_of):
            label = f"encoder{len(found) + 1}" if found else "encoder"
            sites = [program.with_parents(site) for site in some]
            made = family.from_data(program, sites, label, self.model, args, kwargs)
            found += [] if made is None else [made]
        return found

    def _check_input(self, program: Program, args: tuple, kwargs: dict[str, Any]) -> None:
        """Look at every number that is known; see :class:`~asvi.program.input_check.InputCheck`."""
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
        branches = [key.branch for key in site.bodies if key.branch]
        label = f"{site.name}[{','.join(branches)}]" if branches else site.name
        return f"{self.prefix}/{label}/{name}"

    def declared(self, site: Site) -> dict[str, Parameter]:
        """The parameters of a latent site, by its family's own names."""
        return self._declared[site.address]

    def family_of(self, site: Site) -> Family:
        """The family of a latent site."""
        return self._family_of[site.address]

    def parameters(self) -> dict[str, Parameter]:
        """All parameters by their full names.

        Names of sites are the user's, so nothing can be told by the text of a full name.
        """
        program: Program = self.program
        found = {
            self.parameter_name(site, name): replace(
                parameter, plates=tuple(p.name for p in site.plates), address=site.address
            )
            for site in program.latent
            for name, parameter in self._declared[site.address].items()
        }
        for encoding in self.encodings:
            asked = encoding.parameters().items()
            found |= {f"{self.prefix}/{name}": parameter for name, parameter in asked}
        return found

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
        start = self._family_of[site.address].start
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
    if isinstance(family, JointFamily):
        raise FamilyError(
            f"{type(family).__name__} is a family of the whole model, not of its sites.\n"
            f"Write asvi.autoguide(model, family={family!r})."
        )
    raise FamilyError(
        f"family={family!r} is neither a family nor a dict of them.\n"
        "Write family=asvi.families.MeanField(), or family={'theta*': asvi.families.MeanField()}."
    )


def _by_family(
    program: Program, family_of: Mapping[str, Family]
) -> Iterator[tuple[Family, list[Site]]]:
    """Families with their latent sites, in the order of the sites; one object is one family."""
    seen: list[Family] = []
    for family in family_of.values():
        if not any(family is other for other in seen):
            seen.append(family)
            yield family, [s for s in program.latent if family_of[s.address] is family]


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
