"""Takes a whole model; gives a Gaussian over the numbers its latent values are made from.

The model turns a standard normal vector z into a draw from its prior, site by site
(:mod:`asvi.families.numbers`). The guide lets it turn a Gaussian,

.. math:: z = \\mu + A\\epsilon,\\qquad \\epsilon\\sim N(0, I),

into a draw from the posterior. At :math:`\\mu = 0, A = I` it is the prior itself, with all its
dependencies (nearly, where a prior is no normal distribution behind a map: Gamma, Dirichlet); A
holds what the data tie together. Values keep their supports, and each follows its parents as in the
model.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.scipy.linalg import solve_triangular
from numpyro import handlers
from numpyro.distributions import Delta, Normal, constraints
from numpyro.infer.autoguide import AutoGuide

from asvi.drawing import DrawingGuide
from asvi.errors import FamilyError
from asvi.families.cells import Cells, fine_cells_of
from asvi.families.noise import diagonal, noise_shape
from asvi.families.numbers import FromNumbers, joined, split_numbers
from asvi.families.whole import WholeFamily
from asvi.program import Program

__all__ = ["AutoStructuredNormal", "StructuredNormal"]

FACTOR = constraints.softplus_lower_cholesky


class StructuredNormal(WholeFamily):
    r"""A Gaussian over the program's noise, with any correlations; ``fit`` finds it in a second.

    :func:`asvi.fit` climbs by natural gradients, with nothing random in it, and writes hierarchies
    as far centred as the data ask for: number by number, :math:`c = 1 - \mathrm{Var}(z)`, given
    what sets its scale. There are no steps to wait for and little to compile, so that this is the
    family for a first look, and the default's first step. It does not hold posteriors that no
    Gaussian describes: the verdict says so, and :class:`~asvi.families.Coupled` goes further.

    :param cells: take groups that plates keep apart (of models with more than 64 latent numbers)
        as dependent through what they have in common alone. ``fit`` looks whether they are.

    Continuous latents only, outside of branches; at most 250 of them, or groups of plates.

    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, asvi
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    ...     tau = numpyro.sample("tau", dist.HalfNormal(5.0))
    ...     with numpyro.plate("group", 4):
    ...         theta = numpyro.sample("theta", dist.Normal(mu, tau))
    ...         numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)
    >>> y = jnp.array([1.0, 2.0, 4.0, 7.0])
    >>> result = asvi.fit(model, y, family=StructuredNormal(), progress=False)
    >>> bool(abs(result.posterior.mean()["mu"] - 3.4) < 0.2)
    True
    """

    def __init__(self, *, cells: bool = True):
        self.cells = cells

    def guide(self, model: Callable, prefix: str = "auto") -> AutoStructuredNormal:
        return AutoStructuredNormal(model, self, prefix)


class AutoStructuredNormal(DrawingGuide, AutoGuide):
    """The guide of :class:`StructuredNormal`; its parameters start at the prior."""

    def __init__(self, model: Callable, family: StructuredNormal, prefix: str = "auto"):
        super().__init__(model, prefix=prefix)
        self.family = family
        self.program: Any = None
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.cells: Any = None  # Cells after the first call

    # ---------------------------------------------------------------------------- as a guide

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, jax.Array]:
        """Draw all latent sites; gives their values by name."""
        if self.program is None:
            self._setup_prototype(*args, **kwargs)
        return self._run(*args, **kwargs)[0]

    def _run(self, *args, **kwargs) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        params = self._params()
        # Its density is counted with the sites, each of which is then a conditional distribution.
        unit: Any = Normal(0.0, 1.0).expand([self.cells.size]).to_event(1)
        noise: Any = numpyro.sample(
            f"_{self.prefix}_noise", unit.mask(False), infer={"is_auxiliary": True}
        )
        numbers = params["loc"] + _spread(self.cells, params, noise)
        shapes = self.shapes
        reading = FromNumbers(
            split_numbers(numbers, shapes), *(split_numbers(x, shapes) for x in _centring(params))
        )
        trace = self._model_run(reading, args, kwargs)
        density = Normal(0.0, 1.0).log_prob(noise) - jnp.log(_diagonal(self.cells, params))
        densities = split_numbers(density, shapes)
        latent = {}
        for site in self.program.latent:
            slope = jnp.sum(reading.frame.extras[f"slope|{site.address}"])
            value = trace[site.name]["value"]
            own = jnp.sum(densities[site.address]) - slope
            batch = jnp.shape(value)[: jnp.ndim(value) - len(site.event_shape)]
            shares = jnp.broadcast_to(own / max(1, prod(batch)), batch)
            made: Any = Delta(value, log_density=shares, event_dim=len(site.event_shape))
            latent[site.name] = numpyro.sample(site.name, made)
        met = {n: m["value"] for n, m in trace.items() if m["type"] == "deterministic"}
        return latent, met

    def _model_run(self, reading: FromNumbers, args: tuple, kwargs: dict[str, Any]) -> Any:
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

    def log_density_at(
        self, params: dict[str, Any], values: dict[str, Any], args: tuple, kwargs: dict[str, Any]
    ) -> jax.Array:
        """Log density of the guide at values of all latent sites."""
        own = {n: params[f"{self.prefix}/{n}"] for n in self._leaves()}
        given = {site.address: values[site.name] for site in self.program.latent}
        shapes = self.shapes
        centring = [split_numbers(x, shapes) for x in _centring(own)]
        reading = FromNumbers({}, *centring, values=given)
        with handlers.substitute(data=params):
            self._model_run(reading, args, kwargs)
        extras = reading.frame.extras
        noise = _unspread(self.cells, own, joined(extras, "number", shapes) - own["loc"])
        slope = sum(jnp.sum(extras[f"slope|{address}"]) for address in shapes)
        volume = jnp.sum(jnp.log(_diagonal(self.cells, own))) + slope
        return jnp.sum(Normal(0.0, 1.0).log_prob(noise)) - volume

    def variances(self, params: dict[str, Any]) -> dict[str, np.ndarray]:
        """Variance of each number, by site; that of the prior, not centred, is 1."""
        own = {n: np.asarray(params[f"{self.prefix}/{n}"], float) for n in self._leaves()}
        found = np.zeros(self.cells.size)
        found[self.cells.core] = np.sum(own["core"] ** 2, -1)
        for k, group in enumerate(self.cells.groups):
            found[group] = np.sum(own[f"cell{k}"] ** 2, -1) + np.sum(own[f"down{k}"] ** 2, -1)
        return split_numbers(found, self.shapes)

    # ------------------------------------------------------------------- set-up and parameters

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        self.set_program(Program.of(self.model, *args, **kwargs))
        self._remember(args, kwargs)

    def set_program(self, program: Program) -> None:
        """What the model is, where it is known already."""
        shapes = {}
        for site in program.latent:
            shape = noise_shape(site)
            if shape is None:
                raise _refusal(
                    f"site {site.name!r} is {'discrete' if site.is_discrete else 'not continuous'}"
                )
            shapes[site.address] = site.steps + shape
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
        cells = fine_cells_of(program.latent, shapes, self.family.cells)
        if cells is None:
            raise _refusal(
                "the model has branches, or more than 250 latent numbers that no plates keep apart"
            )
        self.program, self.shapes, self.cells = program, shapes, cells
        self.prototype_trace = {site.name: site for site in program.sites}

    def _leaves(self) -> dict[str, tuple[Callable[[], np.ndarray], Any]]:
        """Name, start and domain of each parameter."""
        cells: Cells = self.cells
        size, core = cells.size, len(cells.core)
        found = {
            "loc": (lambda: np.zeros(size), constraints.real),
            "core": (lambda: np.eye(core), FACTOR),
            "centring": (lambda: np.zeros(size), constraints.real),
            "anchor": (lambda: np.zeros(size), constraints.real),
        }
        for k, group in enumerate(cells.groups):
            count, width = group.shape
            found[f"down{k}"] = (lambda s=(count, width, core): np.zeros(s), constraints.real)
            found[f"cell{k}"] = (
                lambda c=count, w=width: np.broadcast_to(np.eye(w), (c, w, w)),
                FACTOR,
            )
        return found

    def domains(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and domain of each parameter, by its full name."""
        return {
            f"{self.prefix}/{name}": (np.shape(start()), constraint)
            for name, (start, constraint) in self._leaves().items()
        }

    def _params(self) -> dict[str, Any]:
        return {
            name: numpyro.param(
                f"{self.prefix}/{name}",
                lambda _key, start=start: jnp.asarray(start(), jnp.result_type(float)),
                constraint=constraint,
            )
            for name, (start, constraint) in self._leaves().items()
        }


def _refusal(why: str) -> FamilyError:
    return FamilyError(
        f"StructuredNormal is a Gaussian over all latent numbers, and {why}.\n"
        "Write instead:\n    asvi.fit(model, y)   # the default, asvi.families.Coupled()"
    )


# ------------------------------------------------------------------------------------- its matrix


def _centring(params: dict[str, Any]) -> tuple[Any, Any]:
    """How far each number is centred, and on what: found by ``fit``, not trained."""
    return jax.lax.stop_gradient(params["centring"]), jax.lax.stop_gradient(params["anchor"])


def _spread(cells: Cells, params: dict[str, Any], noise: jax.Array) -> jax.Array:
    """A times noise (n,)."""
    core = params["core"] @ noise[cells.core]
    if not cells.groups:
        return core
    found = jnp.zeros_like(noise).at[cells.core].set(core)
    for k, group in enumerate(cells.groups):
        own = jnp.einsum("cij,cj->ci", params[f"cell{k}"], noise[group])
        found = found.at[group].set(own + params[f"down{k}"] @ noise[cells.core])
    return found


def _unspread(cells: Cells, params: dict[str, Any], moved: jax.Array) -> jax.Array:
    """The noise (n,) that :func:`_spread` makes this of."""
    core = solve_triangular(params["core"], moved[cells.core], lower=True)
    if not cells.groups:
        return core
    found = jnp.zeros_like(moved).at[cells.core].set(core)
    for k, group in enumerate(cells.groups):
        rest = moved[group] - params[f"down{k}"] @ core
        solve = jax.vmap(lambda a, b: solve_triangular(a, b, lower=True))
        found = found.at[group].set(solve(params[f"cell{k}"], rest))
    return found


def _diagonal(cells: Cells, params: dict[str, Any]) -> jax.Array:
    """Diagonal of A, (n,)."""
    core = diagonal(params["core"])
    if not cells.groups:
        return core
    found = jnp.zeros(cells.size, core.dtype).at[cells.core].set(core)
    for k, group in enumerate(cells.groups):
        found = found.at[group].set(diagonal(params[f"cell{k}"]))
    return found
