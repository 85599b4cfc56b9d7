"""Takes a program; gives, for each site, the earlier noise that its coupled surrogate listens to.

Sources are chosen by what they cost, one number per edge between two latent numbers:

- *globals*: low-dimensional sites outside all plates and scans steer λ and α of what comes after
  them;
- *dense*: every number of an earlier site shifts every number of this one;
- *member*: in a plate, the few numbers of the same member steer its scale and, in curves, its
  shift;
- *aligned*: sites in the same plates shift each other member by member;
- *lookback*: in a scan, the noise of the last steps shifts this one;
- *within*: the numbers of one site shift each other, in order.

Neighbours in the moralised graph come first; what no longer fits under ``max_edges`` is left out
and named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import NamedTuple

from asvi.density.block_structure import find_blocks, has_long_chain
from asvi.density.settings import BlockSettings
from asvi.families.coupled.settings import CouplingSettings
from asvi.program.addresses import BodyPath
from asvi.program.program import Program
from asvi.program.site import Site

__all__ = ["Inputs", "ResidualSpec", "choose_inputs", "moral_edges"]

Shape = tuple[int, ...]


class ResidualSpec(NamedTuple):
    """What a site can give to others: numbers of this shape in one run, plates at full size.

    Noise that is warpable can be moved by others. That of a discrete site cannot; it is its value.
    """

    shape: Shape
    is_warpable: bool = True
    is_discrete: bool = False

    @property
    def is_published(self) -> bool:
        return self.is_warpable or self.is_discrete


@dataclass(frozen=True)
class Inputs:
    """What one site listens to; addresses in program order."""

    shape: Shape = ()
    """Shape of the site's noise in one run of its body, plates at full size."""
    is_warpable: bool = True
    globals: tuple[str, ...] = ()
    member: tuple[str, ...] = ()
    dense: tuple[str, ...] = ()
    aligned: tuple[str, ...] = ()
    lookback: int = 0
    """Steps of a scan."""
    lookback_sources: tuple[str, ...] = ()
    within: int = 0
    """Size of the blocks of numbers that shift each other; 0 for none."""
    fixed_coupling: bool = False
    """Whether there is a second, fixed coupling, to hold a curvature that was found beforehand."""
    has_curves: bool = False
    """Whether globals steer it by curves of their noise, and have splines themselves."""
    has_warp: bool = True
    """Whether its noise may be skewed, and bent and stretched by others."""
    dropped: tuple[str, ...] = ()
    member_size: int = 0
    """Numbers that each member of a plate is given by ``member``."""
    sizes: tuple[tuple[str, int], ...] = ()
    """Numbers that each dense, global or aligned source gives."""

    @property
    def shifting(self) -> tuple[str, ...]:
        """Addresses of the sites whose noise shifts this one."""
        return (*self.dense, *self.aligned, *self.lookback_sources) if self.is_warpable else ()

    @property
    def sources(self) -> tuple[str, ...]:
        """Addresses of all sites that it listens to."""
        return (*self.globals, *self.member, *self.dense, *self.aligned, *self.lookback_sources)

    def size(self, sources: tuple[str, ...]) -> int:
        known = dict(self.sizes)
        return sum(known[name] for name in sources)

    @property
    def lookback_size(self) -> int:
        return self.lookback * self.size(self.lookback_sources)

    def with_size(self, address: str, size: int) -> Inputs:
        """The same, with the count of numbers that a source gives."""
        kept = tuple(pair for pair in self.sizes if pair[0] != address)
        return replace(self, sizes=(*kept, (address, size)))


def choose_inputs(
    program: Program,
    residuals: dict[str, ResidualSpec],
    settings: CouplingSettings = CouplingSettings(),
    blocks: BlockSettings = BlockSettings(),
) -> dict[str, Inputs]:
    """Inputs of the sites in ``residuals``, by address, in program order."""
    sites = [site for site in program.latent if site.address in residuals]
    chooser = _Chooser(program, sites, residuals, settings, blocks)
    return {site.address: chooser.choose(i, site) for i, site in enumerate(sites)}


class _Chooser:
    def __init__(
        self,
        program: Program,
        sites: list[Site],
        residuals: dict[str, ResidualSpec],
        settings: CouplingSettings,
        blocks: BlockSettings,
    ):
        self.sites, self.residuals, self.settings = sites, residuals, settings
        self.shapes = shapes = {address: spec.shape for address, spec in residuals.items()}
        self.near = {frozenset(edge) for edge in moral_edges(program)}
        numbers = sum(prod(site.steps) * prod(shapes[site.address]) for site in sites)
        # Large models may always have a few edges per number: cost stays linear in their size.
        self.least = self.budget = max(settings.max_edges, settings.edges_per_number * numbers)
        whole = {site.address: site.steps + shapes[site.address] for site in sites}
        is_small = numbers <= blocks.max_dense_numbers
        self.has_curves = is_small and not has_long_chain(sites, whole, blocks)
        self.has_warp = numbers <= settings.max_warped_numbers
        all_warpable = all(spec.is_warpable for spec in residuals.values())
        structure = find_blocks(sites, whole, blocks) if all_warpable else None
        self.fixed_coupling = structure is not None
        if structure is not None and structure.groups and settings.max_edges:
            # What groups have in common couples them to it, and through it: no edge is as good.
            across = len(structure.core) * (structure.size - len(structure.core))
            most = min(across + settings.max_edges, settings.max_block_edges)
            self.budget = max(self.budget, most)
        self.spent = 0

    def take(self, edges: int, most: float | None = None) -> bool:
        """Whether so many edges are left; if so, they are spent."""
        if self.spent + edges > (self.budget if most is None else most):
            return False
        self.spent += edges
        return True

    def choose(self, i: int, site: Site) -> Inputs:
        shape = self.shapes[site.address]
        runs, numbers = prod(site.steps), prod(shape)
        inputs = Inputs(
            shape,
            self.residuals[site.address].is_warpable,
            fixed_coupling=self.fixed_coupling,
            has_curves=self.has_curves,
            has_warp=self.has_warp,
        )
        inputs = self._add_globals(inputs, i, site)
        if not inputs.is_warpable:
            return inputs
        inputs = self._add_member(inputs, i, site)
        inputs = self._add_within(inputs, site, runs, numbers)
        inputs = self._add_lookback(inputs, site, runs, numbers)
        earlier = [s for s in self._published(self.sites[:i]) if _is_in_reach(s, site)]
        earlier.sort(key=lambda other: frozenset((other.name, site.name)) not in self.near)
        for other in earlier:
            inputs = self._add_source(inputs, site, other, runs * numbers)
        order = {s.address: k for k, s in enumerate(self.sites)}
        return replace(inputs, dense=tuple(sorted(inputs.dense, key=order.__getitem__)))

    def _published(self, sites: list[Site]) -> list[Site]:
        return [site for site in sites if self.residuals[site.address].is_published]

    def _add_globals(self, inputs: Inputs, i: int, site: Site) -> Inputs:
        left, found = self.settings.max_globals, []
        earlier = self._published(self.sites[:i])
        candidates = [s for s in earlier if not s.plates and not s.bodies]
        candidates.sort(key=lambda s: frozenset((s.name, site.name)) not in self.near)
        for other in candidates:
            size = prod(self.shapes[other.address])
            if size <= left:
                left -= size
                found.append(other.address)
                inputs = inputs.with_size(other.address, size)
        return replace(inputs, globals=tuple(found))

    def _add_member(self, inputs: Inputs, i: int, site: Site) -> Inputs:
        left, found = self.settings.max_member if self.has_warp else 0, []
        for other in self._published(self.sites[:i]):
            size = _aligned_size(site, other, self.shapes[other.address])
            if size is not None and size <= left and self.residuals[other.address].is_warpable:
                left -= size
                found.append(other.address)
                inputs = replace(inputs, member_size=inputs.member_size + size)
        return replace(inputs, member=tuple(found))

    def _add_within(self, inputs: Inputs, site: Site, runs: int, numbers: int) -> Inputs:
        most = self.settings.max_own_share * self.least
        if numbers > 1 and not _is_subsampled(site) and self.take(runs * numbers**2, most):
            return replace(inputs, within=numbers)
        event = prod(inputs.shape[len(site.full_batch_shape) :])
        if event > 1 and self.take(runs * numbers * event, most):
            return replace(inputs, within=event)
        return replace(inputs, dropped=(site.address,)) if numbers > 1 else inputs

    def _add_lookback(self, inputs: Inputs, site: Site, runs: int, numbers: int) -> Inputs:
        if not site.steps or _is_subsampled(site) or site.bodies[-1].kind != "scan":
            return inputs
        length = site.steps[-1]
        asked = self.settings.window
        longest = length - 1 if asked is None else min(asked, length - 1)
        within = [s for s in self.sites if s.bodies == site.bodies and not _is_subsampled(s)]
        sources = [s.address for s in self._published(within)]
        step = sum(prod(self.shapes[a]) for a in sources)
        share = self.settings.max_own_share * self.least / max(1, len(sources))
        lookback = int(min(longest, share // max(1, runs * numbers * step)))
        if lookback < 1 or not self.take(runs * numbers * step * lookback):
            return inputs
        for address in sources:
            inputs = inputs.with_size(address, prod(self.shapes[address]))
        return replace(inputs, lookback=lookback, lookback_sources=tuple(sources))

    def _add_source(self, inputs: Inputs, site: Site, other: Site, numbers: int) -> Inputs:
        # A scan that has ended gives the noise of all its steps.
        ended = len(_bodies_left(other, site))
        over = other.steps[len(other.steps) - ended :]
        size = prod(over) * prod(self.shapes[other.address])
        if not _is_subsampled(other) and self.take(numbers * size):
            inputs = inputs.with_size(other.address, size)
            return replace(inputs, dense=(*inputs.dense, other.address))
        rest = _aligned_size(site, other, self.shapes[other.address])
        if rest is not None and not over and self.take(numbers * rest):
            inputs = inputs.with_size(other.address, rest)
            return replace(inputs, aligned=(*inputs.aligned, other.address))
        return replace(inputs, dropped=(*inputs.dropped, other.address))


def _is_subsampled(site: Site) -> bool:
    return any(plate.size != plate.subsample_size for plate in site.plates)


def _bodies_left(other: Site, site: Site) -> BodyPath:
    """The bodies around ``other`` that are not around ``site``."""
    common = 0
    for mine, its in zip(site.bodies, other.bodies, strict=False):
        if mine != its:
            break
        common += 1
    return other.bodies[common:]


def _is_in_reach(other: Site, site: Site) -> bool:
    """Whether ``site`` can listen to ``other``, which comes earlier.

    Branches keep their noise to themselves; a scan that has ended does not.
    """
    return all(part.kind == "scan" for part in _bodies_left(other, site))


def _aligned_size(site: Site, other: Site, shape: Shape) -> int | None:
    """Numbers that ``other`` gives to each member of the plates, where ``site`` has the same."""
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
