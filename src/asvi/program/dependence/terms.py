"""Takes a program; gives which terms depend on a discrete site, plate by plate.

A plate says that its members are independent. What stands in the plate may break that
(``total = z.sum()``, a partner's index, ``jnp.roll``), and so may a factor or a guide's family: a
cost that is summed member by member would then be wrong in silence. So the run of guide and model
that the ELBO makes is traced, and each log density is followed back to the members on which it
depends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from asvi.program.control_flow.handlers import without_handlers
from asvi.program.dependence.alignment import LOST, Aligned, alignment
from asvi.program.program import Program
from asvi.program.run_trace import is_random, log_densities, trace_of
from asvi.program.site import Site

__all__ = ["Dependence", "find_plate_crossings"]

#: Plates in which a site (second name) depends on a source (first name) member by member; nothing
#: where it does not depend on it.
Crossings = Mapping[tuple[str, str], frozenset[str]]


class Dependence:
    """Who depends on the sites without reparameterised draws, in a guide that reads the program.

    :param sources: the names of these sites.
    :param local: what :func:`find_plate_crossings` found of them.
    """

    def __init__(self, program: Program, sources: frozenset[str], local: Crossings):
        self.program, self.sources, self.local = program, sources, local
        self._known: dict[str, dict[str, frozenset[str]]] = {}

    def reached(self, name: str) -> dict[str, frozenset[str]]:
        """Sites, by address, that depend on the one called ``name``, itself included.

        With each comes the set of plates in which a member depends on the same member alone.
        """
        if name not in self._known:
            self._known[name] = self._reach(name)
        return self._known[name]

    def names_reached(self, name: str) -> set[str]:
        """The same sites' names."""
        return {self.program.site_at(address).name for address in self.reached(name)}

    def _reach(self, name: str) -> dict[str, frozenset[str]]:
        own = [site for site in self.program.sites if site.name == name]
        found = {site.address: _plates(site) for site in own}
        while True:
            before = dict(found)
            for site in self.program.sites:
                for address in before:
                    source = self.program.site_at(address)
                    if not self._depends(site, source.name):
                        continue
                    local = self.local.get((source.name, site.name), frozenset())
                    local = local & before[address]
                    found[site.address] = found.get(site.address, local) & local
            if found == before:
                return found

    def _depends(self, site: Site, source: str) -> bool:
        """Whether ``site`` depends on ``source`` otherwise than through another source."""
        if source not in self.sources:
            return False  # what depends on it is among what depends on those above it
        if (source, site.name) in self.local:
            return True
        # A draw may depend on what its density does not show.
        program = self.program
        deciding = map(program.deciding, site.decisions)
        parents = {*program.parents[site.address], *(name for names in deciding for name in names)}
        return site.kind == "latent" and source in parents


def _plates(site: Site) -> frozenset[str]:
    return frozenset(plate.name for plate in site.plates)


# ---------------------------------------------------------------------------- which members meet


def find_plate_crossings(
    program: Program,
    model: Callable,
    guide: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    sources: frozenset[str],
) -> Crossings:
    """In which plates the log densities of model and guide depend on the sources member by member.

    ``guide`` is run as a model is. The sources have given values, and the others are drawn from
    what the guide makes of these, as in the ELBO.
    """
    key = jax.random.key(0)

    def densities(values: dict[str, Any]) -> dict[tuple[str, str], jax.Array]:
        with without_handlers():
            drawn = trace_of(guide, key, {}, values, args, kwargs)
            given = {name: m["value"] for name, m in drawn.items() if is_random(m)}
            met = trace_of(model, key, {}, given, args, kwargs)
        return {
            (side, name): log_densities(site)
            for side, trace in (("guide", drawn), ("model", met))
            for name, site in trace.items()
            if site["type"] == "sample"
        }

    sites: dict[str, list[Site]] = {}
    for site in program.sites:
        sites.setdefault(site.name, []).append(site)
    values = {name: program.values[name] for name in sorted(sources)}
    axes = {name: tuple(_axes(sites[name], x.ndim).values()) for name, x in values.items()}
    found: dict[tuple[str, str], frozenset[str]] = {}
    for (_side, name), (aligned, shape) in alignment(densities, values, axes).items():
        places = _axes(sites[name], len(shape), events=False)
        for source in {source for source, _ in aligned}:
            local = _plates_kept(aligned, source, sites[source], places, values[source].ndim)
            found[source, name] = found.get((source, name), local) & local
    return found


def _axes(sites: list[Site], ndim: int, events: bool = True) -> dict[str, int]:
    """Where the plates are in an array of a site, by name; sites of two branches must agree."""
    found = []
    for site in sites:
        inner = len(site.event_shape) if events else 0
        found.append({plate.name: ndim - inner + plate.dim for plate in site.plates})
    return {p: a for p, a in found[0].items() if a >= 0 and all(f.get(p) == a for f in found)}


def _plates_kept(
    aligned: Aligned, source: str, sites: list[Site], places: dict[str, int], ndim: int
) -> frozenset[str]:
    """Plates whose axis in the source is where the plate is in what depends on it."""
    single = {p.name for p in sites[0].plates if p.subsample_size == 1}  # no two members
    return frozenset(
        plate
        for plate, axis in _axes(sites, ndim).items()
        if plate in places
        and (plate in single or aligned.get((source, axis), LOST) == places[plate])
    )
