"""Takes latent sites; gives their numbers as a core and blocks that meet through the core alone.

A Hessian over n latent numbers has n² entries. In a model of many groups most of them are 0: given
what all groups share, the numbers of one group know nothing of another's. *Blocks* are the groups,
which plates name; the *core* is the rest. Whether a model keeps to it, no plate says (an
observation may belong to two groups): who computes a Hessian this way must look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from asvi.density.settings import BlockSettings
from asvi.program.addresses import BodyPath
from asvi.program.site import Site

__all__ = ["BlockStructure", "find_blocks", "find_small_blocks", "has_long_chain"]


@dataclass(frozen=True)
class BlockStructure:
    """Indices of latent numbers in the order of the program: each is in the core or in a block."""

    core: np.ndarray  # (core,)
    groups: tuple[np.ndarray, ...] = ()  # each (members, numbers of a block)

    @property
    def size(self) -> int:
        return len(self.core) + sum(group.size for group in self.groups)

    def is_like(self, other: BlockStructure) -> bool:
        """Whether the same numbers stand in the core, and in the same blocks."""
        ours, theirs = (self.core, *self.groups), (other.core, *other.groups)
        return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))

    @cached_property
    def in_core(self) -> np.ndarray:
        """The place of each number in the core, (numbers,); -1 where it is in a block."""
        place = np.full(self.size, -1)
        place[self.core] = np.arange(len(self.core))
        return place

    @cached_property
    def in_groups(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each group, the member of each number, -1 for none, and its place there."""
        found = []
        for group in self.groups:
            member, place = np.full(self.size, -1), np.zeros(self.size, int)
            member[group], place[group] = np.arange(len(group))[:, None], np.arange(group.shape[1])
            found.append((member, place))
        return found


def find_blocks(
    sites: Sequence[Site],
    shapes: Mapping[str, tuple[int, ...]],
    settings: BlockSettings = BlockSettings(),
) -> BlockStructure | None:
    """Core and blocks of these sites, whose noise has these shapes by address, scans included.

    Small models are all core. None where too many numbers would be in it, in branches, where a
    plate is seen in parts, and for long chains: over the noise of a chain everything meets.

    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> from asvi.program import Program
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0, 1))
    ...     with numpyro.plate("group", 1000):
    ...         a = numpyro.sample("a", dist.Normal(mu, 1))
    ...         b = numpyro.sample("b", dist.Normal(mu, 1))
    ...         numpyro.sample("y", dist.Normal(a + b, 1), obs=y)
    >>> sites = Program.of(model, jnp.zeros(1000)).latent
    >>> structure = find_blocks(sites, {site.address: site.shape for site in sites})
    >>> len(structure.core), [group.shape for group in structure.groups]
    (1, [(1000, 2)])
    """
    numbers, begin = {}, 0
    for site in sites:
        shape = shapes[site.address]
        numbers[site.address] = np.arange(begin, begin + prod(shape)).reshape(shape)
        begin += prod(shape)
    if any(_is_out_of_place(site) for site in sites) or has_long_chain(sites, shapes, settings):
        return None
    if begin <= settings.max_dense_numbers:
        return BlockStructure(np.arange(begin))
    if begin > settings.max_numbers:
        return None
    groups = _groups(sites, numbers, begin, settings)
    if groups is None:
        return None
    local = np.concatenate([np.ravel(group) for group in groups] or [np.zeros(0, int)])
    core = np.setdiff1d(np.arange(begin), local)
    too_many = len(core) * len(local) > settings.max_cross_entries
    if len(core) > settings.max_shared_numbers or too_many:
        return None
    return BlockStructure(core, tuple(groups))


def _groups(
    sites: Sequence[Site], numbers: dict[str, np.ndarray], size: int, settings: BlockSettings
) -> list[np.ndarray] | None:
    """Indices of each group of blocks, but for small groups; None where they are no blocks."""
    apart = [site for site in sites if not site.bodies and numbers[site.address].ndim]
    apart.sort(key=lambda site: numbers[site.address].size)
    in_core = size - sum(numbers[site.address].size for site in apart)
    small = settings.small_shared_numbers
    while apart and in_core + numbers[apart[0].address].size <= small:
        in_core += numbers[apart.pop(0).address].size
    found = []
    for together in _sharing_plates(apart):
        group = _grouped(together, numbers)
        if group is None or group.shape[1] > settings.max_block_numbers:
            return None
        found.append(group)
    return found


def find_small_blocks(
    sites: Sequence[Site],
    shapes: Mapping[str, tuple[int, ...]],
    apart: bool = True,
    settings: BlockSettings = BlockSettings(),
) -> BlockStructure | None:
    """The same, where nobody needs a look-back: blocks in smaller models, longer chains.

    Without ``apart``, or where the core would be no smaller, small models are all core.
    """
    longer = replace(settings, max_chain_numbers=settings.max_dense_numbers)
    smaller = replace(longer, max_dense_numbers=settings.small_shared_numbers)
    whole = find_blocks(sites, shapes, longer)
    found = find_blocks(sites, shapes, smaller) if apart else None
    if whole is not None and (found is None or 2 * len(found.core) > whole.size):
        return whole
    return found


def has_long_chain(
    sites: Sequence[Site],
    shapes: Mapping[str, tuple[int, ...]],
    settings: BlockSettings = BlockSettings(),
) -> bool:
    """Whether a scan has more numbers than a Gaussian over its noise may have."""
    numbers: dict[BodyPath, int] = {}
    for site in sites:
        if site.steps:
            numbers[site.bodies] = numbers.get(site.bodies, 0) + prod(shapes[site.address])
    return any(count > settings.max_chain_numbers for count in numbers.values())


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
    """Indices (members, numbers of a block): members of the plates that all of these sites are in.

    Without plates, each batch of a site is a block, or each number.
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
    return np.concatenate(parts, 1)
