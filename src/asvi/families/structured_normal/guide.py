"""Takes a whole model; gives a Gaussian over the numbers its latent values are made from.

The model turns a standard normal vector z into a draw from its prior, site by site
(:mod:`asvi.density.noncentering`). The guide lets it turn a Gaussian,

.. math:: z = \\mu + A\\epsilon,\\qquad \\epsilon\\sim N(0, I),

into a draw from the posterior. At :math:`\\mu = 0, A = I` it is the prior itself, with all its
dependencies (nearly, where a prior is no normal distribution behind a map: Gamma, Dirichlet); A
holds what the data tie together. Values keep their supports, and each follows its parents as in the
model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.distributions import Delta, Normal, constraints
from numpyro.infer.autoguide import AutoGuide

from asvi.density.arrowhead import Arrowhead
from asvi.density.block_structure import BlockStructure, find_small_blocks
from asvi.density.bound_model import BoundModel
from asvi.density.enumeration import Enumerated, NotEnumerable, enumerate_sites
from asvi.density.noise_space import NoiseSpace
from asvi.density.noncentering import BLANK, RunFromNoise, join_numbers, split_numbers
from asvi.density.settings import DensitySettings
from asvi.distributions.standardize import noise_shape
from asvi.errors import NotHeldError
from asvi.families.guide_protocol import Guide, SiteRow
from asvi.families.parameter import Parameter
from asvi.families.sampling import SamplingGuide
from asvi.families.structured_normal.factor import diagonal_of, noise_of, spread
from asvi.program.control_flow.handlers import without_handlers
from asvi.program.input_check import InputCheck
from asvi.program.program import Program
from asvi.program.run_trace import trace_of
from asvi.program.site import Site

__all__ = ["AutoStructuredNormal"]

FACTOR = constraints.softplus_lower_cholesky
EXACT = "exact, given the others"  # what is done with discrete sites


class AutoStructuredNormal(Guide, SamplingGuide, AutoGuide):
    """The guide of ``StructuredNormal``; its parameters start at the prior."""

    def __init__(self, model: Callable, family: Any, prefix: str = "auto"):
        super().__init__(model, prefix=prefix)
        self.family = family
        self.program: Any = None
        self.density_settings = DensitySettings()
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.structure: Any = None  # a BlockStructure after the first call
        self._enumerated: tuple[list[Any], Enumerated | None] = ([], None)

    # ---------------------------------------------------------------------------- as a guide

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, jax.Array]:
        """Draw all latent sites; gives their values by name."""
        if self.program is None:
            self._setup_prototype(*args, **kwargs)
        return self._run(*args, **kwargs)[0]

    def _run(self, *args, **kwargs) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        params = self._params()
        # Its density is counted with the sites, each of which is then a conditional distribution.
        unit: Any = Normal(0.0, 1.0).expand([self.structure.size]).to_event(1)
        noise: Any = numpyro.sample(
            f"_{self.prefix}_noise", unit.mask(False), infer={"is_auxiliary": True}
        )
        numbers = params["loc"] + spread(self.structure, params, noise)
        shapes = self.shapes
        centring = (split_numbers(x, shapes) for x in _centring(params))
        fixed = self.fixed(args, kwargs)
        reading = RunFromNoise(split_numbers(numbers, shapes), *centring, fixed=fixed)
        trace = self._model_run(reading, args, kwargs)
        density = Normal(0.0, 1.0).log_prob(noise) - jnp.log(diagonal_of(self.structure, params))
        densities = split_numbers(density, shapes)
        found, log_q = {}, {}
        for site in self.numbered:
            slope = jnp.sum(reading.body.outputs["slope", site.address])
            found[site.name] = trace[site.name]["value"]
            log_q[site.name] = jnp.sum(densities[site.address]) - slope
        summing = self.enumerated(args, kwargs)
        if summing is not None:
            _, kept = summing.summed(self.model, found, {}, args, kwargs)
            key = numpyro.prng_key()
            uniform = jax.random.uniform(jax.random.key(0) if key is None else key, (summing.size,))
            drawn, log_prob = summing.drawn(kept, uniform)
            found |= drawn
            log_q |= {name: log_prob / len(drawn) for name in drawn}
        latent = {}
        for site in self.program.latent:
            value = found[site.name]
            batch = jnp.shape(value)[: jnp.ndim(value) - len(site.event_shape)]
            shares = jnp.broadcast_to(log_q[site.name] / max(1, prod(batch)), batch)
            made: Any = Delta(value, log_density=shares, event_dim=len(site.event_shape))
            latent[site.name] = numpyro.sample(site.name, made)
        if summing is not None:  # what depends on the discrete sites, at their values
            with without_handlers():
                trace = trace_of(self.model, jax.random.key(0), {}, latent, args, kwargs)
        met = {n: m["value"] for n, m in trace.items() if m["type"] == "deterministic"}
        return latent, met

    @property
    def numbered(self) -> list[Any]:
        """Latent sites that are made of numbers: all but discrete ones."""
        return [site for site in self.program.latent if not site.is_discrete]

    def enumerated(self, args: tuple, kwargs: dict[str, Any]) -> Enumerated | None:
        """How discrete sites are summed out at these arguments; None where there are none."""
        given = [*args, *(x for pair in sorted(kwargs.items()) for x in pair)]
        known, found = self._enumerated
        if len(known) == len(given) and all(a is b for a, b in zip(known, given, strict=True)):
            return found
        if not any(site.is_discrete for site in self.program.latent):
            return None
        return self._enumerate(Program.of(self.model, *args, **kwargs), args, kwargs)

    def _enumerate(
        self, program: Program, args: tuple, kwargs: dict[str, Any]
    ) -> Enumerated | None:
        try:
            found = enumerate_sites(program, self.model, args, kwargs, self.density_settings)
        except NotEnumerable as why:
            raise _refusal(str(why)) from why
        given = [*args, *(x for pair in sorted(kwargs.items()) for x in pair)]
        self._enumerated = given, found
        return found

    def fixed(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """A value for each discrete site, by address, of a run that asks for the others."""
        summing = self.enumerated(args, kwargs)
        if summing is None:
            return {}
        values = summing.reference()
        return {site.address: jnp.asarray(values[site.name]) for site in summing.sites}

    def _model_run(self, reading: RunFromNoise, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The model's sites; what is neither latent nor data (``y=None``) is drawn, and unused."""
        key = numpyro.prng_key()
        with (
            handlers.block(hide_fn=lambda site: site["type"] != "param"),
            handlers.trace() as trace,
            handlers.seed(rng_seed=jax.random.key(0) if key is None else key),
            reading,
        ):
            self.model(*args, **kwargs)
        return trace

    def log_density(
        self, params: dict[str, Any], values: dict[str, Any], args: tuple, kwargs: dict[str, Any]
    ) -> jax.Array:
        """Log density of the guide at values of all latent sites."""
        own = {n: params[f"{self.prefix}/{n}"] for n in self._leaves()}
        given = {site.address: values[site.name] for site in self.numbered}
        shapes = self.shapes
        centring = [split_numbers(x, shapes) for x in _centring(own)]
        reading = RunFromNoise({}, *centring, values=given, fixed=self.fixed(args, kwargs))
        with handlers.substitute(data=params):
            self._model_run(reading, args, kwargs)
        extras, found = reading.body.outputs, jnp.zeros(())
        if self.numbered:
            noise = noise_of(
                self.structure, own, join_numbers(extras, "number", shapes) - own["loc"]
            )
            slope = sum(jnp.sum(extras["slope", address]) for address in shapes)
            volume = jnp.sum(jnp.log(diagonal_of(self.structure, own))) + slope
            found = jnp.sum(Normal(0.0, 1.0).log_prob(noise)) - volume
        summing = self.enumerated(args, kwargs)
        if summing is not None:
            others = {site.name: values[site.name] for site in self.numbered}
            _, kept = summing.summed(self.model, others, {}, args, kwargs)
            found = found + summing.log_prob(kept, values)
        return found

    def variances(self, params: dict[str, Any]) -> dict[str, np.ndarray]:
        """Variance of each number, by site; that of the prior, not centred, is 1."""
        own = {n: np.asarray(params[f"{self.prefix}/{n}"], float) for n in self._leaves()}
        found = np.zeros(self.structure.size)
        found[self.structure.core] = np.sum(own["core"] ** 2, -1)
        for k, group in enumerate(self.structure.groups):
            found[group] = np.sum(own[f"cell{k}"] ** 2, -1) + np.sum(own[f"down{k}"] ** 2, -1)
        return split_numbers(found, self.shapes)

    # --------------------------------------------------------- what is asked of guides of all kinds

    checks_late = True

    def set_up(self, bound: BoundModel, check: InputCheck | None) -> None:
        """Data are looked at with the density that the search records."""
        self.density_settings = bound.settings
        self.set_program(bound.program)
        if check is not None:
            self._enumerate(bound.program, *bound.arguments)

    def noise_space(self, bound: BoundModel) -> NoiseSpace:
        args, kwargs = bound.arguments
        sites = {site.address: site for site in self.numbered}
        summing, fixed = self.enumerated(args, kwargs), self.fixed(args, kwargs)
        return NoiseSpace(bound, sites, self.shapes, self.structure, summing, fixed)

    def parameters(self) -> dict[str, Parameter]:
        return {
            f"{self.prefix}/{name}": Parameter(np.shape(start()), constraint)
            for name, (start, constraint) in self._leaves().items()
        }

    def known_parameters(self) -> dict[str, Parameter]:
        return self.parameters()

    def explain_site(self, params: Mapping[str, Any], site: Site) -> SiteRow:
        """The share of the noise's prior variance that the data left."""
        left = self.variances(dict(params)).get(site.address)
        if left is None:  # discrete sites have no noise
            return SiteRow(site.name, EXACT, (), {})
        weights = {"noise": float(np.mean(np.minimum(left, 1.0)))}
        return SiteRow(site.name, self.family.name, (), weights)

    def prior_shares(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        found = self.variances(dict(params))
        return {site.name: np.ravel(found[site.address]) for site in self.numbered}

    # ------------------------------------------------------------------- set-up and parameters

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        program = Program.of(self.model, *args, **kwargs)
        self.set_program(program)
        self._enumerate(program, args, kwargs)
        self._remember(args, kwargs)

    def set_program(self, program: Program) -> None:
        """What the model is, where it is known already."""
        shapes = {}
        for site in program.latent:
            if site.is_discrete:
                continue
            shape = noise_shape(site, drawn=False)
            if shape is None:
                raise _refusal(f"site {site.name!r} has no map from the real line")
            shapes[site.address] = site.steps + shape
        if len(shapes) < len(program.latent) and any(site.in_branch for site in program.sites):
            raise _refusal("the model has branches")
        if len(shapes) < len(program.latent) and program.trained:
            raise _refusal(f"the model has a parameter of its own, {program.trained[0]!r}")
        for scan in sorted(program.reversed_scans):
            if program.in_block(scan):
                raise _refusal(f"site {program.in_block(scan)[0].name!r} is in a reversed scan")
        for site in program.sites:
            for plate in site.plates:
                if plate.size != plate.subsample_size:
                    raise _refusal(
                        f"site {site.name!r} is in plate {plate.name!r}, of which each draw sees "
                        f"other members, {plate.subsample_size} of {plate.size}"
                    )
        numbered = [site for site in program.latent if not site.is_discrete]
        structure = find_small_blocks(
            numbered, shapes, self.family.blocks, self.density_settings.blocks
        )
        if not numbered:  # a number that nothing hangs on: the rest is as ever
            shapes, structure = {BLANK: (1,)}, BlockStructure(np.arange(1))
        if structure is None:
            raise _refusal(
                "the model has branches, or more than 250 latent numbers that no plates keep apart"
            )
        self.program, self.shapes, self.structure = program, shapes, structure
        self.prototype_trace = {site.name: site for site in program.sites}

    def _leaves(self) -> dict[str, tuple[Callable[[], np.ndarray], Any]]:
        """Name, start and domain of each parameter."""
        structure: BlockStructure = self.structure
        size, core = structure.size, len(structure.core)
        found = {
            "loc": (lambda: np.zeros(size), constraints.real),
            "core": (lambda: np.eye(core), FACTOR),
            "centring": (lambda: np.zeros(size), constraints.real),
            "anchor": (lambda: np.zeros(size), constraints.real),
        }
        for k, group in enumerate(structure.groups):
            count, width = group.shape
            found[f"down{k}"] = (lambda s=(count, width, core): np.zeros(s), constraints.real)
            found[f"cell{k}"] = (
                lambda c=count, w=width: np.broadcast_to(np.eye(w), (c, w, w)),
                FACTOR,
            )
        return found

    def params_of(
        self, mean: np.ndarray, spread: Arrowhead, centring: np.ndarray, anchor: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Parameters of the Gaussian N(mean, spread spreadᵀ) over numbers so centred."""
        values = {"loc": mean, "core": spread.core, "centring": centring, "anchor": anchor}
        for k, (down, block) in enumerate(zip(spread.down, spread.blocks, strict=True)):
            values |= {f"down{k}": down, f"cell{k}": block}
        return {f"{self.prefix}/{name}": np.asarray(x, float) for name, x in values.items()}

    def _params(self) -> dict[str, Any]:
        return {
            name: numpyro.param(
                f"{self.prefix}/{name}",
                lambda _key, start=start: jnp.asarray(start(), jnp.result_type(float)),
                constraint=constraint,
            )
            for name, (start, constraint) in self._leaves().items()
        }


def _refusal(why: str) -> NotHeldError:
    return NotHeldError(
        f"StructuredNormal is a Gaussian over all latent numbers, and {why}.\n"
        "Write instead:\n    asvi.fit(model, y)   # the default, asvi.families.Coupled()"
    )


def _centring(params: dict[str, Any]) -> tuple[Any, Any]:
    """How far each number is centred, and on what: found by ``fit``, not trained."""
    return jax.lax.stop_gradient(params["centring"]), jax.lax.stop_gradient(params["anchor"])
