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
from dataclasses import replace
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
from asvi.errors import SiteError
from asvi.families.guide_protocol import Guide, SiteRow
from asvi.families.parameter import Parameter, Role
from asvi.families.protocol import AnyFamily, Family, JointFamily
from asvi.families.sampling import SamplingGuide
from asvi.guide.edges import Edges, trace_edges
from asvi.guide.loss_guard import guard_loss
from asvi.guide.noise_space import GuideSpace
from asvi.guide.set_up import as_patterns, find_dependence, set_up_sites
from asvi.guide.surrogate_run import SurrogateRun
from asvi.program.dependence.terms import Dependence
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
    >>> from asvi.families import ConvexUpdate
    >>> from asvi.families.baselines import MultivariateNormal
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

    >>> import jax, numpyro, numpyro.distributions as dist, asvi
    >>> def model(y):
    ...     x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
    >>> guide = asvi.AutoASVI(model)
    >>> svi = numpyro.infer.SVI(model, guide, numpyro.optim.Adam(0.05), asvi.ELBO())
    >>> params = svi.get_params(svi.init(jax.random.key(0), 2.0))
    >>> guide.sample_posterior(jax.random.key(1), params, sample_shape=(5,))["x"].shape
    (5,)
    """

    def __init__(
        self,
        model: Callable,
        *,
        family: Family | Mapping[str, Family] | None = None,
        prefix: str = "auto",
    ):
        super().__init__(model, prefix=prefix)
        self.families = as_patterns(family)
        self.program: Any = None  # a Program after the first call
        self._declared: dict[str, dict[str, Parameter]] = {}
        self._family_of: dict[str, Family] = {}
        self.surrogates: dict[str, Distribution] = {}  # in shapes alone, by address
        self.inputs: dict[str, Any] = {}  # what each site listens to, by address
        self.encoders: list[Any] = []  # what makes parameters of sites from the data
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
        guard_loss(program, self.surrogates, self._losses_seen)
        return self._run(*args, **kwargs)[0]

    def _run(self, *args, **kwargs) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        with handlers.trace() as trace, SurrogateRun(self, args, kwargs) as run:
            self.model(*args, **kwargs)
        latent = {name: m["value"] for name, m in trace.items() if m["type"] == "sample"}
        return latent, run.deterministic

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
        """Who listens to whom, number by number."""
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
        """A site follows its parents, and what it listens to, and no others."""
        for first, then in ((parent, child), (child, parent)):
            inputs = self.inputs.get(then.address)
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
            for address, inputs in self.inputs.items()
            for other in inputs.dropped
        )

    # ---------------------------------------------------------------------------- its set-up

    def _setup_prototype(self, *args: Any, check_input: bool = True, **kwargs: Any) -> None:
        read = Program.of if check_input else Program.unchecked
        program = read(self.model, *args, **kwargs)
        check_reversed_scans(program)
        sites = set_up_sites(program, self.families, self.model, args, kwargs)
        self._starts.clear()
        if check_input:
            self._check_input(program, args, kwargs)
            self.improper = find_improper(self.model, program, args, kwargs)
        self._remember(args, kwargs)
        warn_long_loops(program)
        self.program, self.surrogates = program, sites.surrogates
        self._declared, self._family_of = sites.declared, sites.family_of
        self.inputs, self.encoders = sites.inputs, sites.encoders
        self.score_sites = discontinuous_sites(program)
        self._check_names()
        self.dependence = find_dependence(
            program, self.surrogates, self.score_sites, self.model, self._run, args, kwargs
        )
        self.prototype_trace = {site.name: site for site in program.sites}

    def _check_input(self, program: Program, args: tuple, kwargs: dict[str, Any]) -> None:
        """Check every number that is known; see :class:`~asvi.program.input_check.InputCheck`."""
        found = self._input_check(args, kwargs)
        latent = {site.address for site in program.latent}
        priors = {address: fn for address, fn in found.items() if address in latent}
        if all(not_jax_tracer(x) for x in jax.tree.leaves(priors)):
            self._starts["prior_mean"] = priors

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

        Names of sites are the user's, so the text of a full name says nothing.
        """
        program: Program = self.program
        found = {
            self.parameter_name(site, name): replace(
                parameter, plates=tuple(p.name for p in site.plates), address=site.address
            )
            for site in program.latent
            for name, parameter in self._declared[site.address].items()
        }
        for encoder in self.encoders:
            own = encoder.parameters().items()
            found |= {f"{self.prefix}/{name}": parameter for name, parameter in own}
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
