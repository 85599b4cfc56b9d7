"""Takes latent sites; gives their numbers as a core and cells that meet through the core alone.

A Hessian over n latent numbers has n² entries. In a model of many groups most of them are 0: given
what all groups share, the numbers of one group know nothing of another's. *Cells* are the groups,
told by plates; the *core* is the rest. Whether a model keeps to it, no plate says (an observation
may belong to two groups): who computes a Hessian this way must look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from asvi.program.addresses import BodyPath
from asvi.program.site import Site

__all__ = ["LARGEST_DENSE", "BlockStructure", "find_blocks", "find_small_blocks", "has_long_chain"]

LARGEST_DENSE = 250  # numbers of a model, or a core: a Hessian has their square
LARGEST_CHAIN = 150  # numbers of a scan: of longer ones no window holds enough for a Gaussian
SMALL_CORE = 64  # numbers up to which small groups are taken into the core
LARGEST_CELL = 32  # numbers
LARGEST = 200_000  # numbers
LARGEST_CROSS = 4_000_000  # entries between core and cells


@dataclass(frozen=True)
class BlockStructure:
    """Indices of latent numbers in the order of the program: each is in the core or in a cell."""

    core: np.ndarray  # (core,)
    groups: tuple[np.ndarray, ...] = ()  # each (cells, numbers of a cell)

    @property
    def size(self) -> int:
        return len(self.core) + sum(group.size for group in self.groups)

    def is_like(self, other: BlockStructure) -> bool:
        """Whether the same numbers stand in the core, and in the same cells."""
        ours, theirs = (self.core, *self.groups), (other.core, *other.groups)
        return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))

    @cached_property
    def in_core(self) -> np.ndarray:
        """The place of each number in the core, (numbers,); -1 where it is in a cell."""
        place = np.full(self.size, -1)
        place[self.core] = np.arange(len(self.core))
        return place

    @cached_property
    def in_groups(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each group, the cell of each number, -1 for none, and its place there."""
        found = []
        for group in self.groups:
            cell, place = np.full(self.size, -1), np.zeros(self.size, int)
            cell[group], place[group] = np.arange(len(group))[:, None], np.arange(group.shape[1])
            found.append((cell, place))
        return found


def find_blocks(
    sites: Sequence[Site],
    shapes: Mapping[str, tuple[int, ...]],
    dense: int | None = None,
    chain: int | None = None,
) -> BlockStructure | None:
    """Core and cells of these sites, whose noise has these shapes by address, scans included.

    Models of up to ``dense`` numbers (250) are all core, and a scan may have ``chain`` (150). None
    where too many numbers would be in it, in branches, where a plate is seen in parts, and for
    long chains: over the noise of a chain everything meets.

    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> from asvi.program import Program
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0, 1))
    ...     with numpyro.plate("group", 1000):
    ...         a = numpyro.sample("a", dist.Normal(mu, 1))
    ...         b = numpyro.sample("b", dist.Normal(mu, 1))
    ...         numpyro.sample("y", dist.Normal(a + b, 1), obs=y)
    >>> sites = Program.of(model, jnp.zeros(1000)).latent
    >>> cells = find_blocks(sites, {site.address: site.shape for site in sites})
    >>> len(cells.core), [group.shape for group in cells.groups]
    (1, [(1000, 2)])
    """
    numbers, begin = {}, 0
    for site in sites:
        shape = shapes[site.address]
        numbers[site.address] = np.arange(begin, begin + prod(shape)).reshape(shape)
        begin += prod(shape)
    if any(_is_out_of_place(site) for site in sites) or has_long_chain(sites, shapes, chain):
        return None
    if begin <= (LARGEST_DENSE if dense is None else dense):
        return BlockStructure(np.arange(begin))
    if begin > LARGEST:
        return None
    apart = [site for site in sites if not site.bodies and numbers[site.address].ndim]
    apart.sort(key=lambda site: numbers[site.address].size)
    in_core = begin - sum(numbers[site.address].size for site in apart)
    while apart and in_core + numbers[apart[0].address].size <= SMALL_CORE:
        in_core += numbers[apart.pop(0).address].size
    groups = []
    for together in _sharing_plates(apart):
        group = _grouped(together, numbers)
        if group is None:
            return None
        groups.append(group)
    local = np.concatenate([np.ravel(group) for group in groups] or [np.zeros(0, int)])
    core = np.setdiff1d(np.arange(begin), local)
    if len(core) > LARGEST_DENSE or len(core) * len(local) > LARGEST_CROSS:
        return None
    return BlockStructure(core, tuple(groups))


def find_small_blocks(
    sites: Sequence[Site], shapes: Mapping[str, tuple[int, ...]], apart: bool = True
) -> BlockStructure | None:
    """The same, where nobody needs to listen by windows: cells in smaller models, longer chains.

    Without ``apart``, or where the core would be no smaller, small models are all core.
    """
    whole = find_blocks(sites, shapes, LARGEST_DENSE, LARGEST_DENSE)
    found = find_blocks(sites, shapes, SMALL_CORE, LARGEST_DENSE) if apart else None
    if whole is not None and (found is None or 2 * len(found.core) > whole.size):
        return whole
    return found


def has_long_chain(
    sites: Sequence[Site], shapes: Mapping[str, tuple[int, ...]], longest: int | None = None
) -> bool:
    """Whether a scan has more numbers than a Gaussian over its noise may have."""
    numbers: dict[BodyPath, int] = {}
    for site in sites:
        if site.steps:
            numbers[site.bodies] = numbers.get(site.bodies, 0) + prod(shapes[site.address])
    longest = LARGEST_CHAIN if longest is None else longest
    return any(count > longest for count in numbers.values())


def _is_out_of_place(site: Site) -> bool:
    """Sites in branches, and of plates that are seen in parts."""
    return site.in_branch or any(plate.size != plate.subsample_size for plate in site.plates)


def _sharing_plates(sites: list[Site]) -> list[list[Site]]:
    """Sites in lists: those that have a plate in common, by whatever way, are in one."""
    found: list[list[Site]] = []
    for site in sites:
        mine = {plate.name for plate in site.plates}
        near = [g for g in found if any(mine & {p.name for p in s.plates} for s in g)]
        found = [g for g in found if g not in near]
        found.append([s for g in near for s in g] + [site])
    return found


def _grouped(sites: list[Site], numbers: dict[str, np.ndarray]) -> np.ndarray | None:
    """Indices (cells, numbers of a cell): cells by the plates that all of these sites are in.

    Without plates, each batch of a site is a cell, or each number.
    """
    shared = [p for p in sites[0].plates if all(p in site.plates for site in sites)]
    if sites[0].plates and not shared:
        return None
    parts = []
    for site in sites:
        index, batch = numbers[site.address], len(site.full_batch_shape)
        axes = [batch + plate.dim for plate in sorted(shared, key=lambda p: p.dim)]
        if not shared:
            axes = list(range(batch or index.ndim))
        index = np.moveaxis(index, axes, range(len(axes)))
        parts.append(index.reshape((prod(index.shape[: len(axes)]), -1)))
    group = np.concatenate(parts, 1)
    return group if group.shape[1] <= LARGEST_CELL else None
