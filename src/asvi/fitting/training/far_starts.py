"""Takes a problem and a key; gives starts that no data decided: the prior, and half-way."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from asvi.families.parameter import Role
from asvi.fitting.problem import Problem
from asvi.fitting.training.state import Start
from asvi.program.site import Site

__all__ = ["far_starts", "kinds_of_far_starts", "start_half_mean_field"]


def kinds_of_far_starts(count: int) -> tuple[Start, ...]:
    """One after the other."""
    return tuple((Start.PRIOR, Start.HALF_WAY)[i % 2] for i in range(count))


def far_starts(problem: Problem, kinds: Sequence[Start], key: jax.Array) -> jax.Array:
    """Vectors at starts of these kinds, (kinds, parameters)."""
    rows = jax.vmap(problem.initial)(jax.random.split(key, len(kinds)))
    half_way = jnp.asarray([kind is Start.HALF_WAY for kind in kinds])
    moved = jax.vmap(lambda free: start_half_mean_field(problem, free))(rows)
    return jnp.where(half_way[:, None], moved, rows)


def start_half_mean_field(problem: Problem, free: jax.Array) -> jax.Array:
    """The same start, (parameters,), with the prior weights of hierarchies at 1/2.

    Chains keep theirs: away from the prior they fall into basins of their own.
    """
    program = problem.program
    sites = {site.address: program.with_parents(site) for site in program.latent}
    shapes = {site.name: site.shape for site in program.latent}

    def is_of_hierarchy(site: Site) -> bool:
        return not site.steps and all(shapes.get(p) != site.shape for p in site.parents)

    names = [
        name
        for name, p in problem.guide.parameters().items()
        if p.role is Role.PRIOR_WEIGHT and p.address is not None
        if is_of_hierarchy(sites[p.address])
    ]
    if not names:
        return free
    start = problem.vector.unflatten(free)
    start |= {name: jnp.zeros_like(start[name]) for name in names}
    return problem.vector.flatten(start)
