"""Takes a program; gives, for each site, the earlier noise that its coupled surrogate listens to.

Sources are chosen by what they cost, one number per edge between two latent numbers:

- *gates*: low-dimensional sites outside all plates and scans ("globals") steer λ and α of what
  comes after them;
- *dense*: every number of an earlier site shifts every number of this one;
- *cell*: in a plate, the few numbers of the same cell steer its scale and, in curves, its shift;
- *aligned*: sites in the same plates shift each other group by group;
- *window*: in a scan, the noise of the last steps shifts this one;
- *within*: the numbers of one site shift each other, in order.

Neighbours in the moralised graph come first; what no longer fits under ``max_edges`` is left out
and named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import NamedTuple

from asvi.density.block_structure import LARGEST_DENSE, find_blocks, has_long_chain
from asvi.program.addresses import BodyPath
from asvi.program.program import Program
from asvi.program.site import Site

__all__ = ["CouplingSettings", "Inputs", "ResidualSpec", "choose_inputs", "moral_edges"]

Shape = tuple[int, ...]
MOST_ACROSS = 100_000  # edges between what groups have in common and the groups
LARGEST_BENT = 2_000  # latent numbers: beyond, every weight per number is felt


@dataclass(frozen=True)
class CouplingSettings:
    """How much coupling is affordable."""

    max_edges: int = 20_000
    max_gates: int = 16
    max_cell: int = 4
    window: int | None = None
    """Steps of a chain that are looked back on; None: as many as fit."""


class ResidualSpec(NamedTuple):
    """What a site has to tell: numbers of this shape in one run of its body, plates at full size.

    ``moves`` where it can be moved by others. A discrete site cannot, and tells its value.
    """

    shape: Shape
    moves: bool = True
    discrete: bool = False

    @property
    def speaks(self) -> bool:
        return self.moves or self.discrete


@dataclass(frozen=True)
class Inputs:
    """What one site listens to; addresses in program order."""

    shape: Shape = ()
    """Shape of the site's noise in one run of its body, plates at full size."""
    moves: bool = True
    gates: tuple[str, ...] = ()
    cell: tuple[str, ...] = ()
    dense: tuple[str, ...] = ()
    aligned: tuple[str, ...] = ()
    window: int = 0
    window_sources: tuple[str, ...] = ()
    within: int = 0
    """Size of the blocks of numbers that shift each other; 0 for none."""
    frame: bool = False
    """Whether there is a second, fixed coupling, to hold a curvature that was found beforehand."""
    rich: bool = False
    """Whether globals steer it by curves of their noise, and have splines themselves."""
    bent: bool = True
    """Whether its noise may be skewed, and bent and stretched by others."""
    dropped: tuple[str, ...] = ()
    cell_size: int = 0
    """Numbers that each cell of a plate hears from ``cell``."""
    sizes: tuple[tuple[str, int], ...] = ()
    """Numbers that each dense, gate or aligned source gives."""

    @property
    def shifting(self) -> tuple[str, ...]:
        """Addresses of the sites whose noise shifts this one."""
        return (*self.dense, *self.aligned, *self.window_sources) if self.moves else ()

    def size(self, sources: tuple[str, ...]) -> int:
        known = dict(self.sizes)
        return sum(known[name] for name in sources)

    @property
    def window_size(self) -> int:
        return self.window * self.size(self.window_sources)


def choose_inputs(
    program: Program, noises: dict[str, ResidualSpec], limits: CouplingSettings
) -> dict[str, Inputs]:
    """Contexts of the sites in ``noises``, by address, in program order."""
    sites = [site for site in program.latent if site.address in noises]
    chooser = _Chooser(program, sites, noises, limits)
    return {site.address: chooser.choose(i, site) for i, site in enumerate(sites)}


class _Chooser:
    def __init__(
        self, program: Program, sites: list[Site], noises: dict[str, ResidualSpec], limits
    ):
        self.sites, self.noises = sites, noises
        self.shapes = shapes = {address: noise.shape for address, noise in noises.items()}
        self.near = {frozenset(edge) for edge in moral_edges(program)}
        numbers = sum(prod(site.steps) * prod(shapes[site.address]) for site in sites)
        # Large models may always have a few edges per number: cost stays linear in their size.
        self.least = self.budget = max(limits.max_edges, 6 * numbers)
        whole = {site.address: site.steps + shapes[site.address] for site in sites}
        self.rich = numbers <= LARGEST_DENSE and not has_long_chain(sites, whole)
        self.bent = numbers <= LARGEST_BENT
        structure = (
            find_blocks(sites, whole) if all(noise.moves for noise in noises.values()) else None
        )
        self.framed = structure is not None
        if structure is not None and structure.groups and limits.max_edges:
            # What cells have in common couples them to it, and through it: no edge is as good.
            across = len(structure.core) * (structure.size - len(structure.core))
            self.budget = max(self.budget, min(across + limits.max_edges, MOST_ACROSS))
        self.limits = limits
        self.spent = 0

    def afford(self, edges: int, most: float | None = None) -> bool:
        if self.spent + edges > (self.budget if most is None else most):
            return False
        self.spent += edges
        return True

    def choose(self, i: int, site: Site) -> Inputs:
        shape = self.shapes[site.address]
        runs, numbers = prod(site.steps), prod(shape)
        moves = self.noises[site.address].moves
        context = Inputs(shape, moves, frame=self.framed, rich=self.rich, bent=self.bent)
        if not moves:
            return self._gated(context, i, site)
        context = self._celled(self._gated(context, i, site), i, site, runs)
        context = self._within(context, site, runs, numbers)
        context = self._windowed(context, site, runs, numbers)
        earlier = [s for s in self._speaking(self.sites[:i]) if _reaches(s, site)]
        earlier.sort(key=lambda other: frozenset((other.name, site.name)) not in self.near)
        for other in earlier:
            context = self._listen(context, site, other, runs * numbers)
        order = {s.address: k for k, s in enumerate(self.sites)}
        return replace(context, dense=tuple(sorted(context.dense, key=order.__getitem__)))

    def _speaking(self, sites: list[Site]) -> list[Site]:
        return [site for site in sites if self.noises[site.address].speaks]

    def _gated(self, context: Inputs, i: int, site: Site) -> Inputs:
        left, gates = self.limits.max_gates, []
        earlier = self._speaking(self.sites[:i])
        candidates = [s for s in earlier if not s.plates and not s.bodies]
        candidates.sort(key=lambda s: frozenset((s.name, site.name)) not in self.near)
        for other in candidates:
            size = prod(self.shapes[other.address])
            if size <= left:
                left -= size
                gates.append(other.address)
                context = self._sized(context, other.address, size)
        return replace(context, gates=tuple(gates))

    def _celled(self, context: Inputs, i: int, site: Site, runs: int) -> Inputs:
        left, cell = self.limits.max_cell if self.bent else 0, []
        for other in self._speaking(self.sites[:i]):
            size = _aligned_size(site, other, self.shapes[other.address])
            if size is not None and size <= left and self.noises[other.address].moves:
                left -= size
                cell.append(other.address)
                context = replace(context, cell_size=context.cell_size + size)
        return replace(context, cell=tuple(cell))

    def _within(self, context: Inputs, site: Site, runs: int, numbers: int) -> Inputs:
        half = 0.5 * self.least
        if numbers > 1 and not _subsampled(site) and self.afford(runs * numbers**2, half):
            return replace(context, within=numbers)
        event = prod(context.shape[len(site.full_batch_shape) :])
        if event > 1 and self.afford(runs * numbers * event, half):
            return replace(context, within=event)
        return replace(context, dropped=(site.address,)) if numbers > 1 else context

    def _windowed(self, context: Inputs, site: Site, runs: int, numbers: int) -> Inputs:
        if not site.steps or _subsampled(site) or site.bodies[-1].kind != "scan":
            return context
        length = site.steps[-1]
        asked = self.limits.window
        longest = length - 1 if asked is None else min(asked, length - 1)
        within = [s for s in self.sites if s.bodies == site.bodies and not _subsampled(s)]
        sources = [s.address for s in self._speaking(within)]
        step = sum(prod(self.shapes[a]) for a in sources)
        share = 0.5 * self.least / max(1, len(sources))
        window = int(min(longest, share // max(1, runs * numbers * step)))
        if window < 1 or not self.afford(runs * numbers * step * window):
            return context
        for address in sources:
            context = self._sized(context, address, prod(self.shapes[address]))
        return replace(context, window=window, window_sources=tuple(sources))

    def _listen(self, context: Inputs, site: Site, other: Site, numbers: int) -> Inputs:
        # A scan that has ended gives the noise of all its steps.
        ended = len(_beyond(other, site))
        over = other.steps[len(other.steps) - ended :]
        size = prod(over) * prod(self.shapes[other.address])
        if not _subsampled(other) and self.afford(numbers * size):
            context = self._sized(context, other.address, size)
            return replace(context, dense=(*context.dense, other.address))
        rest = _aligned_size(site, other, self.shapes[other.address])
        if rest is not None and not over and self.afford(numbers * rest):
            context = self._sized(context, other.address, rest)
            return replace(context, aligned=(*context.aligned, other.address))
        return replace(context, dropped=(*context.dropped, other.address))

    @staticmethod
    def _sized(context: Inputs, address: str, size: int) -> Inputs:
        kept = tuple(pair for pair in context.sizes if pair[0] != address)
        return replace(context, sizes=(*kept, (address, size)))


def _subsampled(site: Site) -> bool:
    return any(plate.size != plate.subsample_size for plate in site.plates)


def _beyond(other: Site, site: Site) -> BodyPath:
    """The bodies around ``other`` that are not around ``site``."""
    common = 0
    for mine, its in zip(site.bodies, other.bodies, strict=False):
        if mine != its:
            break
        common += 1
    return other.bodies[common:]


def _reaches(other: Site, site: Site) -> bool:
    """Whether ``site`` can hear of ``other``, which comes earlier.

    Branches keep their noise to themselves; a scan that has ended does not.
    """
    return all(part.kind == "scan" for part in _beyond(other, site))


def _aligned_size(site: Site, other: Site, shape: Shape) -> int | None:
    """Numbers that ``other`` gives to each cell of ``site``'s plates, if they share all of them."""
    if not other.plates or other.plates != site.plates or other.bodies != site.bodies:
        return None
    if other.full_batch_shape != site.full_batch_shape:
        return None
    return prod(shape[len(other.full_batch_shape) :])


def moral_edges(program: Program) -> list[tuple[str, str]]:
    """Pairs of latent sites that are parent and child, or parents of one site.

    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     a = numpyro.sample("a", dist.Normal(0, 1))
    ...     b = numpyro.sample("b", dist.Normal(0, 1))
    ...     numpyro.sample("y", dist.Normal(a + b, 1), obs=y)
    >>> moral_edges(Program.of(model, 0.0))      # a and b explain each other away
    [('a', 'b')]
    """
    latent = [site.name for site in program.latent]
    found: dict[tuple[str, str], None] = {}
    for site in map(program.with_parents, program.sites):
        near = [name for name in latent if name in site.parents and name != site.name]
        if site.kind == "latent":
            for parent in near:
                found[_in_order(latent, parent, site.name)] = None
        for pair in combinations(near, 2):
            found[_in_order(latent, *pair)] = None
    return list(found)


def _in_order(names: list[str], a: str, b: str) -> tuple[str, str]:
    return (a, b) if names.index(a) < names.index(b) else (b, a)
