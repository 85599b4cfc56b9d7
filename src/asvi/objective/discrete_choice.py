r"""Takes the sites without reparameterised draws; gives how their gradients are had, and the parts.

Three ways, chosen site by site:

- *joint*: every configuration of the sites is tried, weighted by its probability under the guide:
  :math:`\sum_k q(k)\,f(k)`. Exact, at the cost of one run for each configuration.
- *parallel*: elements of a plate are independent, so all of them take the same value at once and
  each is weighted by itself: K runs for a plate of any size. It asks that all that depends on the
  site stands in the same plates.
- *score*: :math:`f(x)\,\nabla\log q(x)`, where f is the sum of those terms alone that depend on the
  site: those of the same cell of its plates, and in a scan those of later steps. A baseline, the
  mean over the other draws, takes most of the variance away without bias.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution

from asvi.density.enumeration.supports import support_of
from asvi.errors import AsviError, SiteError
from asvi.program.dependence.terms import Dependence
from asvi.program.site import Site
from asvi.program.statements.stacked import Evaluated, log_prob_at

__all__ = ["EstimatorChoice", "choose_estimators", "configurations", "cost_of", "score_of"]

LARGEST_JOINT = 64  # configurations that are enumerated without being asked
LARGEST_ASKED = 4096
LARGEST_PARALLEL = 32
WAYS = ("auto", "enumerate", "score")

EstimatorRequest = str | Mapping[str, str]


@dataclass(frozen=True)
class EstimatorChoice:
    """Names of the sites by the way in which their gradients are had, and their values."""

    joint: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    score: tuple[str, ...] = ()
    values: Mapping[str, np.ndarray] | None = None

    @property
    def enumerated(self) -> tuple[str, ...]:
        return self.joint + self.parallel


def _values(dependence: Dependence | None, name: str, fn: Distribution) -> np.ndarray | None:
    """As :func:`support_of`, of a site that may stand in both branches of a ``cond``."""
    if not isinstance(fn, Evaluated):
        return support_of(fn)
    if dependence is None:
        return None
    sites = [site for site in dependence.program.sites if site.name == name]
    found = [support_of(site.distribution) for site in sites]
    first = found[0]
    same = first is not None and all(v is not None and np.array_equal(v, first) for v in found)
    return first if same else None


def choose_estimators(
    dependence: Dependence | None,
    drawn: Mapping[str, dict[str, Any]],
    names: list[str],
    wish: EstimatorRequest,
) -> EstimatorChoice:
    """The way of each of the sites ``names`` of ``drawn``, which have no gradients of their own.

    ``dependence`` is None for a guide that is no reading of the model: nothing is known of who
    depends on whom in it.
    """
    _check_wish(wish, names)
    values = {n: _values(dependence, n, drawn[n]["fn"]) for n in names}
    sizes = {
        n: np.inf if v is None else float(len(v)) ** np.size(drawn[n]["value"])
        for n, v in values.items()
    }
    wishes = {n: wish if isinstance(wish, str) else wish.get(n, "auto") for n in names}
    asked = [n for n in names if wishes[n] == "enumerate"]
    auto = [n for n in names if wishes[n] == "auto"]
    if (
        auto
        and not asked
        and len(auto) == len(names)
        and prod(sizes[n] for n in auto) <= LARGEST_JOINT
    ):
        return EstimatorChoice(joint=tuple(names), values=values)  # type: ignore[arg-type]
    parallel: list[str] = []
    if dependence is not None:
        parallel = _parallel(dependence, [*asked, *auto], values, drawn, set(names))
    left = [n for n in [*asked, *auto] if n not in parallel]
    joint: list[str] = []
    total = 1.0
    for name in sorted(left, key=lambda n: (n not in asked, sizes[n])):
        limit = LARGEST_ASKED if name in asked else LARGEST_JOINT
        if total * sizes[name] <= limit:
            joint.append(name)
            total *= sizes[name]
        elif name in asked:
            raise _too_large(name, values[name], total * sizes[name], dependence)
    score = tuple(n for n in names if n not in joint and n not in parallel)
    joint_in_order = tuple(n for n in names if n in joint)
    return EstimatorChoice(joint_in_order, tuple(parallel), score, values)  # type: ignore[arg-type]


def _check_wish(wish: EstimatorRequest, names: list[str]) -> None:
    given = {"": wish} if isinstance(wish, str) else dict(wish)
    for name, way in given.items():
        if way not in WAYS:
            raise AsviError(
                f"discrete={way!r} is not known; choose one of {', '.join(WAYS)}, for all sites or "
                'for each: discrete={"z": "score"}.'
            )
        if name and name not in names:
            known = ", ".join(names) or "none"
            raise AsviError(
                f"discrete={{{name!r}: ...}} names no site without reparameterised draws; these "
                f"are: {known}."
            )


def _too_large(
    name: str, values: np.ndarray | None, total: float, dependence: Dependence | None
) -> SiteError:
    how_many = "infinitely many values, or a number that depends on a latent"
    if values is not None:
        count = f"{int(total):,}" if total < 1e15 else f"{total:.1e}"
        how_many = f"{count} joint configurations (at most {LARGEST_ASKED:,} are tried)"
        where = None if dependence is None else _where_cells_meet(dependence, name)
        if where is not None:
            how_many += f", and its cells cannot be tried one by one, for they meet in {where!r}"
    return SiteError(
        name,
        f"it cannot be enumerated: it has {how_many}",
        f'asvi.ELBO(num_particles=8, discrete={{"{name}": "score"}})',
        advice="The score function takes any number of values.",
    )


def _where_cells_meet(dependence: Dependence, name: str) -> str | None:
    """The first site that depends on several cells of the plates of this one."""
    mine = {plate.name for plate in dependence.program[name].plates}
    for address, local in dependence.reached(name).items():
        if mine - local:
            return dependence.program.site_at(address).name
    return None


def _parallel(
    dependence: Dependence,
    names: list[str],
    values: Mapping[str, np.ndarray | None],
    drawn: Mapping[str, dict[str, Any]],
    hard: set[str],
) -> list[str]:
    """Sites that can be enumerated cell by cell of their plates: the largest group of like plates.

    No other site of ``hard`` may depend on one of the group.
    """
    groups: dict[frozenset[Any], list[str]] = {}
    for name in names:
        site = dependence.program[name]
        if values[name] is None or site.bodies or site.event_shape or not site.plates:
            continue
        if len(site.plates) != sum(n > 1 for n in site.batch_shape):
            continue  # batch axes without a plate: nothing says that they are independent
        if _is_local(dependence, site):
            key = frozenset((p.name, p.dim) for p in site.plates)
            groups.setdefault(key, []).append(name)
    usable = []
    for group in groups.values():
        reached = {n: dependence.names_reached(n) & hard for n in group}
        while bad := [n for n in group if not reached[n] <= set(group)]:
            group = [n for n in group if n not in bad]
        while prod(len(values[n]) for n in group) > LARGEST_PARALLEL:  # type: ignore[arg-type]
            largest = max(group, key=lambda n: len(values[n]))  # type: ignore[arg-type]
            group = [n for n in group if largest not in reached[n]]
        usable.append(group)
    best = max(usable, key=lambda g: sum(np.size(drawn[n]["value"]) for n in g), default=[])
    return [name for name in drawn if name in best]


def _is_local(dependence: Dependence, site: Site) -> bool:
    """Whether all that depends on the site stands in its plates, cell by cell."""
    mine = frozenset(p.name for p in site.plates)
    dims = {(p.name, p.dim) for p in site.plates}
    for address, local in dependence.reached(site.name).items():
        other = dependence.program.site_at(address)
        if other.bodies or local != mine or not dims <= {(p.name, p.dim) for p in other.plates}:
            return False
    return True


# ------------------------------------------------------------------------------------ enumeration


def configurations(
    names: tuple[str, ...], values: Mapping[str, np.ndarray], drawn: Mapping[str, Any], whole: bool
) -> dict[str, np.ndarray]:
    """Values of the sites in every configuration, each (configurations, *shape of the site).

    ``whole`` tries every combination of elements; without it all elements take the same value.
    """
    if not names:
        return {}
    counts = [np.size(drawn[n]["value"]) if whole else 1 for n in names]
    each = [values[n] for n, count in zip(names, counts, strict=True) for _ in range(count)]
    table = np.array(list(itertools.product(*each))).reshape(-1, sum(counts))
    found, begin = {}, 0
    for name, count in zip(names, counts, strict=True):
        shape = jnp.shape(drawn[name]["value"])
        part = table[:, begin : begin + count]
        dtype = jnp.result_type(drawn[name]["value"])
        found[name] = np.broadcast_to(
            part.reshape((-1, *shape) if whole else (-1,) + (1,) * len(shape)), (len(table), *shape)
        ).astype(dtype)
        begin += count
    return found


# ---------------------------------------------------------------------------------------- scores


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
        total = total + _reduced(terms[other.name], other, site, later, reached[other.address])
    return total


def _reduced(
    term: jax.Array, other: Site, site: Site, later: bool, local: frozenset[str]
) -> jax.Array:
    """A term of ``other`` summed to the axes of ``site``; in a shared scan over later steps."""
    shared = _shared_scans(other, site)
    batch = jnp.ndim(term) - len(other.steps)
    term = jnp.sum(term, tuple(range(shared, len(other.steps))))
    # Axes of plates, cell by cell, go where the site has them; all others are summed.
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
        term = _suffix(term, shared, later)
    extra = (1,) * (len(site.steps) - shared)
    width = len(site.batch_shape)
    return term.reshape(
        term.shape[:shared] + extra + tuple(sizes.get(d, 1) for d in range(-width, 0))
    )


def _shared_scans(a: Site, b: Site) -> int:
    count = 0
    for x, y in zip(a.bodies, b.bodies, strict=False):
        if x != y:
            break
        count += x.kind == "scan"
    return count


def _suffix(term: jax.Array, axes: int, inclusive: bool) -> jax.Array:
    """Sums over this and later steps, steps of nested scans in the order in which they run."""
    flat = term.reshape((-1, *term.shape[axes:]))
    sums = jnp.flip(jnp.cumsum(jnp.flip(flat, 0), 0), 0)
    return (sums if inclusive else sums - flat).reshape(term.shape)
