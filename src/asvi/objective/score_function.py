r"""Takes log densities and costs of draws; gives the score-function gradient of the ELBO.

It is :math:`f(x)\,\nabla\log q(x)`, where f, the *cost*, is the sum of those terms alone that
depend on the site.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.errors import PerformanceWarning, warn_user
from asvi.program.dependence.terms import Dependence
from asvi.program.site import Site
from asvi.program.statements.stacked import log_prob_at

__all__ = ["cost_of", "score_of", "score_part"]


def score_part(scores: dict[str, tuple[jax.Array, jax.Array]]) -> jax.Array:
    """Zero, with the score-function gradient of the ELBO; draws on the leading axis.

    The baseline of a draw is the mean cost of the others.
    """
    total = jnp.zeros(())
    for name, (log_q, cost) in scores.items():
        cost = jax.lax.stop_gradient(cost)
        draws = len(cost)
        if draws == 1:
            warn_user(
                f"site {name!r} has score-function gradients, which one draw gives with large "
                "variance: there is no other to compare it with.\n"
                "Write instead:\n    asvi.ELBO(num_particles=8)",
                PerformanceWarning,
            )
            advantage = cost
        else:
            advantage = (cost - jnp.mean(cost, 0)) * draws / (draws - 1)
        moving = log_q - jax.lax.stop_gradient(log_q)
        # Impossible draws count in the terms themselves; here they must not turn into NaN.
        total = total + jnp.sum(jnp.where(jnp.isfinite(log_q), moving * advantage, 0.0)) / draws
    return total


def score_of(site: dict[str, Any]) -> jax.Array:
    """log q of a drawn site, one number for each element: neither scaled nor masked."""
    return log_prob_at(site["fn"], site["value"], site["intermediates"])


def cost_of(
    name: str,
    shape: tuple[int, ...],
    dependence: Dependence | None,
    terms: Mapping[str, jax.Array],
) -> jax.Array:
    """Sum of the terms that depend on each element of a site: ``shape``, that of its log density.

    ``terms`` are log densities, one number for each element, by site name.
    """
    if dependence is None:
        return jnp.broadcast_to(sum(jnp.sum(term) for term in terms.values()), shape)
    program = dependence.program
    site = program[name]
    order = {s.address: i for i, s in enumerate(program.sites)}
    reached = dependence.reached(name)
    total = jnp.zeros(shape)
    met = set()
    for other in program.sites:
        if other.address not in reached or other.name in met or other.name not in terms:
            continue
        met.add(other.name)  # a site in both branches of a cond has one term
        later = order[other.address] >= order[site.address]
        total = total + _sum_to_axes(terms[other.name], other, site, later, reached[other.address])
    return total


def _sum_to_axes(
    term: jax.Array, other: Site, site: Site, later: bool, local: frozenset[str]
) -> jax.Array:
    """A term of ``other`` summed to the axes of ``site``; in a shared scan over later steps."""
    shared = _count_shared_scans(other, site)
    batch = jnp.ndim(term) - len(other.steps)
    term = jnp.sum(term, tuple(range(shared, len(other.steps))))
    # Axes of plates, member by member, go where the site has them; all others are summed.
    kept: dict[int, int] = {}
    for plate in other.plates:
        for mine in site.plates:
            if plate.name == mine.name and plate.name in local and -plate.dim <= batch:
                kept[shared + batch + plate.dim] = mine.dim
    axes = range(shared, shared + batch)
    term = jnp.sum(term, tuple(a for a in axes if a not in kept))
    dims = [kept[a] for a in axes if a in kept]
    order = [shared + int(i) for i in np.argsort(dims)]
    term = jnp.transpose(term, (*range(shared), *order))
    sizes = dict(zip(sorted(dims), term.shape[shared:], strict=True))
    if shared:
        term = _sum_later_steps(term, shared, later)
    extra = (1,) * (len(site.steps) - shared)
    width = len(site.batch_shape)
    return term.reshape(
        term.shape[:shared] + extra + tuple(sizes.get(d, 1) for d in range(-width, 0))
    )


def _count_shared_scans(a: Site, b: Site) -> int:
    count = 0
    for x, y in zip(a.bodies, b.bodies, strict=False):
        if x != y:
            break
        count += x.kind == "scan"
    return count


def _sum_later_steps(term: jax.Array, axes: int, inclusive: bool) -> jax.Array:
    """Sums over this and later steps, steps of nested scans in the order in which they run."""
    flat = term.reshape((-1, *term.shape[axes:]))
    sums = jnp.flip(jnp.cumsum(jnp.flip(flat, 0), 0), 0)
    return (sums if inclusive else sums - flat).reshape(term.shape)
