"""Takes a model with masked priors; gives the latent numbers that nothing says anything about.

``dist.Normal(0, 10).mask(False)`` is a flat prior: the posterior is the likelihood's. Where no
datum informs a number either, there is no posterior: any value is as good as any other. Such
numbers, as those of an imputed ``obs_mask`` where data are there, are given the prior that the mask
took away, so that draws of them are draws from it; all else is as without them.

A number is informed where a term of the density that counts depends on it: that of a datum or of a
factor, or the prior of another latent number that is informed itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to, constraints
from numpyro.util import not_jax_tracer

from asvi.errors import DataWarning, SiteError, warn_user
from asvi.program.arguments import arrays_in
from asvi.program.control_flow.handlers import without_handlers
from asvi.program.program import Program
from asvi.program.run_trace import log_densities, trace_of
from asvi.program.settings import ImproperSettings
from asvi.program.site import Site
from asvi.program.statements.flat_prior import asked_support, is_flat
from asvi.program.statements.masks import complete_distribution, counted_part, is_masked
from asvi.program.survey import survey
from asvi.program.unwrapping import bare_constraint

__all__ = ["Improper", "describe_improper", "find_improper", "has_masked_latents", "no_posterior"]

_BOUNDED = tuple(
    x if isinstance(x, type) else type(x)
    for x in (
        constraints.unit_interval,
        constraints.interval,
        constraints.open_interval,
        constraints.circular,
        constraints.simplex,
        constraints.l1_ball,
        constraints.sphere,
        constraints.corr_cholesky,
        constraints.corr_matrix,
        constraints.boolean,
        constraints.integer_interval,
        constraints.multinomial,
    )
)


@dataclass(frozen=True)
class Improper:
    """Numbers of one site that have no posterior: ``count`` of ``size``."""

    where: Any
    """In the shape of the site's value; a single True for all that masks take out."""
    steps: int
    count: int
    size: int


def has_masked_latents(program: Program) -> bool:
    """Whether a latent site's prior may be masked out."""
    return any(_is_masked(site) for site in program.latent)


def _is_masked(site: Site) -> bool:
    return is_masked(site.distribution) and not is_flat(site.distribution)


def _refuse_uninformed(program: Program) -> None:
    """Raise where a flat prior meets no datum: there is no posterior to be fitted."""
    for site in program.latent:
        if is_flat(site.distribution) and site.name not in _reached(program):
            raise no_posterior(site)


def no_posterior(site: Site) -> SiteError:
    """The error for a flat prior that the data leave flat."""
    return SiteError(
        site.name,
        "its prior is flat (ImproperUniform), and the data do not make its posterior proper",
        f'numpyro.sample("{site.name}", {_proper_prior(site)})   # a proper prior, as wide as you '
        "like",
    )


def _proper_prior(site: Site) -> str:
    """A distribution over the site's support, of its shape, as it is written in a model."""
    kind, low, high = asked_support(site.distribution)
    batch = () if site.plates else site.batch_shape
    shape = _expanded(batch, site.event_shape)
    if kind == "real":
        return f"dist.Normal(0.0, 10.0){shape}"
    if kind == "simplex":
        return f"dist.Dirichlet(jnp.ones({site.event_shape[-1]})){_expanded(batch, ())}"
    if low is not None and high is not None:
        return f"dist.Uniform({low}, {high}){shape}"
    if kind in ("positive", "nonnegative", "softplus positive"):
        return f"dist.HalfNormal(10.0){shape}"
    if low is not None or high is not None:
        moved = f"{high}, -1.0" if low is None else f"{low}, 1.0"
        base, transform = (
            f"dist.HalfNormal(10.0){shape}",
            f"dist.transforms.AffineTransform({moved})",
        )
    else:
        free = biject_to(site.support).inverse_shape(batch + site.event_shape)
        base = f"dist.Normal(0.0, 1.0){_expanded(free[: len(batch)], free[len(batch) :])}"
        transform = f"dist.biject_to(constraints.{kind.replace(' ', '_')})"
    return f"dist.TransformedDistribution({base}, {transform})"


def _expanded(batch: tuple[int, ...], event: tuple[int, ...]) -> str:
    """What is written after a distribution of one number so that it has this shape."""
    expanded = f".expand({list(batch + event)})" if batch + event else ""
    return expanded + (f".to_event({len(event)})" if event else "")


def describe_improper(improper: dict[str, Improper]) -> tuple[str, ...]:
    """What a reader of the result has to know of these."""
    return tuple(
        f"site {name!r}: {'all' if x.count == x.size else x.count} of its {x.size} numbers have "
        "no posterior (a mask takes their prior out, and no datum informs them); they are drawn "
        "from the prior without its mask"
        if x.size > 1
        else f"site {name!r} has no posterior (a mask takes its prior out, and no datum informs "
        "it); it is drawn from the prior without its mask"
        for name, x in improper.items()
    )


def find_improper(
    model: Callable,
    program: Program,
    args: tuple,
    kwargs: dict[str, Any],
    settings: ImproperSettings = ImproperSettings(),
) -> dict[str, Improper]:
    """By site name; nothing where it cannot be known, as among tracers."""
    _refuse_uninformed(program)
    if not has_masked_latents(program):
        return {}
    if not all(not_jax_tracer(x) for _, x in arrays_in(args, kwargs)):
        return {}
    runs = _PriorRuns(model, program, args, kwargs, settings)
    masked = runs.masked()
    informed = runs.informed()
    wanted = {
        name: where
        for name, site in runs.sites.items()
        if _is_masked(site)
        and not _is_bounded(site.support)
        and (where := masked[name] & ~informed[name]).any()
    }
    put = runs.completed(wanted)
    result = {}
    for name, where in wanted.items():
        site = runs.sites[name]
        subsampled = any(plate.size != plate.subsample_size for plate in site.plates)
        done = put[name] & masked[name]
        every = bool((done == masked[name]).all())
        # Which rows a minibatch takes is another thing each time.
        usable = every or not subsampled
        if not usable or (done != where).any():
            _warn(name)
        if usable and done.any():
            found = np.asarray(True) if every else done
            steps = 0 if every else len(site.steps)
            result[name] = Improper(found, steps, int(done.sum()), done.size)
    return result


class _PriorRuns:
    """A model's density at draws from its prior, whatever masks say of it."""

    def __init__(
        self,
        model: Callable,
        program: Program,
        args: tuple,
        kwargs: dict[str, Any],
        settings: ImproperSettings,
    ):
        self.program = program
        self.sites = {site.name: site for site in program.latent}
        self.call = model, args, kwargs
        run = survey(model, args, kwargs)

        def drawn(key: jax.Array) -> dict[str, Any]:
            return {name: value for name, value in run(key)[1].items() if name in self.sites}

        keys = jax.random.split(jax.random.key(0), settings.draws)
        self.values = jax.jit(jax.vmap(drawn))(keys)

    def met_at(self, values: dict[str, Any]) -> dict[str, Any]:
        model, args, kwargs = self.call
        with without_handlers():  # a guide is set up under the handlers of whoever calls it
            met = trace_of(model, jax.random.key(0), {}, values, args, kwargs)
        return {name: msg for name, msg in met.items() if msg["type"] == "sample"}

    def masked(self) -> dict[str, np.ndarray]:
        """Which numbers of each latent site masks take out at every draw."""

        def seen(values: dict[str, Any]) -> dict[str, jax.Array]:
            met = self.met_at(values)
            return {name: counted_part(met[name]["fn"]) for name in self.sites}

        found = jax.jit(jax.vmap(seen))(self.values)
        return {name: ~np.asarray(x).any(0) for name, x in found.items()}

    def informed(self) -> dict[str, np.ndarray]:
        """Which numbers of each latent site some term depends on that counts."""
        discrete = {
            n: x for n, x in self.values.items() if not jnp.issubdtype(x.dtype, jnp.floating)
        }
        smooth = {n: x for n, x in self.values.items() if n not in discrete}

        def terms(smooth, discrete, informed) -> jax.Array:
            total = jnp.zeros(())
            for name, msg in self.met_at({**smooth, **discrete}).items():
                density = log_densities(msg)
                if name in self.sites:  # a prior counts where its own value is informed
                    known = informed[name]
                    for _ in self.sites[name].event_shape:
                        known = jnp.any(known, -1)
                    density = jnp.where(known, density, 0.0)
                total = total + jnp.sum(density)
            return total

        slopes = jax.jit(jax.vmap(jax.grad(terms), (0, 0, None)))
        # Of discrete values there are no slopes: the structure of the program has to do.
        reached = _reached(self.program) if discrete else set()
        informed = {n: np.full(x.shape[1:], n in reached) for n, x in self.values.items()}
        while True:
            found = slopes(smooth, discrete, informed)
            grown = {n: informed[n] | np.any(np.asarray(x) != 0, 0) for n, x in found.items()}
            if all((grown[n] == informed[n]).all() for n in grown):
                return informed
            informed |= grown

    def completed(self, where: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Which numbers count where these terms are put in place."""
        if not where:
            return {}

        def counts(values: dict[str, Any]) -> dict[str, jax.Array]:
            met = self.met_at(values)
            return {
                name: counted_part(complete_distribution(met[name]["fn"], w))
                for name, w in where.items()
            }

        first = jax.tree.map(lambda x: x[0], self.values)
        return {name: np.asarray(x) for name, x in jax.jit(counts)(first).items()}


def _warn(name: str) -> None:
    warn_user(
        f"site {name!r}: a mask takes its prior out, and no datum informs some of its numbers: "
        "their posterior is improper, and what is fitted of them means nothing.\n"
        "Give them a prior, as wide as you like, or draw them at a site of their own.",
        DataWarning,
    )


def _reached(program: Program) -> set[str]:
    """Names of latent sites that terms of data depend on, by the structure of the program."""
    kinds = {site.address: site for site in program.sites}
    reached: set[str] = set()
    while True:
        grown = {
            parent
            for address, parents in program.parents.items()
            if address in kinds
            for parent in parents
            if kinds[address].kind != "latent"
            or (kinds[address].name in reached and kinds[address].name != parent)
        }
        if grown <= reached:
            return reached
        reached |= grown


def _is_bounded(support: Any) -> bool:
    """Whether a flat density over it can be a distribution."""
    return isinstance(bare_constraint(support), _BOUNDED)
