"""Takes a program; gives which terms depend on a site's value, and in which plates cell by cell.

A plate says that its cells are independent. A later statement in the same plate may break that
(``total = z.sum()``, and back into the plate): a cost that is summed cell by cell would then be
wrong in silence. So it is tried: one cell of a site is changed, and whatever changes in other cells
is noted as a *crossing*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.program import Program, Site, survey
from asvi.stacked import over_steps

__all__ = ["Crossing", "Dependence", "crossings"]

#: Changing one cell of a site (by name) changes a site (by address) in other cells of a plate.
Crossing = tuple[str, str, str]


class Dependence:
    """Who depends on whom in a guide that is a reading of the program.

    :param contexts: what each site listens to besides its parents, by address.
    :param crossed: what :func:`crossings` found; None where it is not known.
    """

    def __init__(
        self, program: Program, contexts: Mapping[str, Any], crossed: set[Crossing] | None
    ):
        self.program, self.crossed = program, crossed
        self.by_address = {site.address: site for site in program.sites}
        self._parents: dict[str, set[str]] = {}
        self._heard: dict[str, set[str]] = {}  # from every cell at once
        for site in program.sites:
            parents = set(program.parents[site.address])
            for end in range(1, len(site.block) + 1):
                parents |= set(program.parents.get("/".join(site.block[:end]), ()))
            context, far = contexts.get(site.address), set()
            if context is not None:
                everywhere = (*context.gates, *context.dense, *context.window_sources)
                far = {address.split("/")[-1] for address in everywhere}
                parents |= far | {address.split("/")[-1] for address in context.aligned}
            self._parents[site.address], self._heard[site.address] = parents, far
        self._known: dict[str, dict[str, frozenset[str]]] = {}

    def reached(self, name: str) -> dict[str, frozenset[str]]:
        """Sites, by address, that depend on the one called ``name``, itself included.

        With each comes the set of plates in which a cell depends on the same cell alone.
        """
        if name not in self._known:
            self._known[name] = self._reach(name)
        return self._known[name]

    def _reach(self, name: str) -> dict[str, frozenset[str]]:
        own = [site for site in self.program.sites if site.name == name]
        found = {site.address: _plates(site) for site in own}
        while True:
            before = dict(found)
            for site in self.program.sites:
                for address in before:
                    if self.by_address[address].name not in self._parents[site.address]:
                        continue
                    local = before[address] & self._local(self.by_address[address], site)
                    found[site.address] = found.get(site.address, local) & local
            if found == before:
                return found

    def _local(self, source: Site, site: Site) -> frozenset[str]:
        """Plates in which ``site`` depends on ``source`` cell by cell."""
        if self.crossed is None or source.name in self._heard[site.address]:
            return frozenset()
        shared = _plates(source) & _plates(site)
        return frozenset(p for p in shared if (source.name, site.address, p) not in self.crossed)


def _plates(site: Site) -> frozenset[str]:
    return frozenset(plate.name for plate in site.plates)


def crossings(
    program: Program,
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    others: frozenset[str] = frozenset(),
) -> set[Crossing]:
    """What crosses from cell to cell, among the sites that depend on a discrete one or another."""
    sources = _sources(program, others)
    if not sources:
        return set()
    run = survey(model, args, kwargs)
    key = jax.random.key(0)

    def look(values: dict[str, Any]) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        dists, drawn = run(key, values)
        found = {}
        for site in program.sites:
            if site.name in drawn and site.plates and site.kind != "factor":
                log_prob = over_steps(lambda d, v: d.log_prob(v), len(site.steps))
                value = drawn[site.name]
                found[site.address] = log_prob(dists[site.address], value)
        return found, drawn

    compiled = jax.jit(look)
    _, drawn = compiled({})
    latent = {site.name: drawn[site.name] for site in program.latent}
    base, _ = compiled(latent)
    found: set[Crossing] = set()
    for source in sources:
        for plate in source.plates:
            moved = _with_one_cell_moved(latent[source.name], source, plate.dim)
            now, _ = compiled({**latent, source.name: moved})
            for address, before in base.items():
                site = next(s for s in program.sites if s.address == address)
                if plate.name not in _plates(site) or site.name == source.name:
                    continue
                dim = next(p.dim for p in site.plates if p.name == plate.name)
                changed = ~np.isclose(before, now[address], rtol=1e-5, equal_nan=True)
                changed = np.broadcast_to(changed, site.steps + site.batch_shape)
                elsewhere = np.take(changed, range(1, changed.shape[dim]), axis=dim)
                if elsewhere.any():
                    found.add((source.name, address, plate.name))
    return found


def _sources(program: Program, others: frozenset[str]) -> list[Site]:
    """Latent sites in plates that are discrete, or one of ``others``, or depend on such a site."""
    unknown = Dependence(program, {}, None)
    reached: set[str] = set()
    for site in program.latent:
        if site.is_discrete or not site.distribution.has_rsample or site.name in others:
            reached |= set(unknown.reached(site.name))
    return [site for site in program.latent if site.address in reached and site.plates]


def _with_one_cell_moved(value: jax.Array, site: Site, dim: int) -> jax.Array:
    """Another value in the first cell of a plate; of a discrete site one that is possible."""
    axis = jnp.ndim(value) - len(site.event_shape) + dim
    first = jnp.arange(value.shape[axis]) == 0
    first = first.reshape((-1,) + (1,) * (jnp.ndim(value) - 1 - axis))
    if not site.is_discrete:
        return jnp.where(first, value + 0.1, value)
    return jnp.where(first, jnp.where(value > 0, value - 1, value + 1), value)
