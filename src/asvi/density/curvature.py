"""Takes a model's density over its noise; gives a function of points: value, slope and Hessian.

Columns of the Hessian are had by products with directions. A model that is all core has as many as
numbers; one in cells (:mod:`asvi.density.block_structure`) has one for each number of the core, and
one for each number of a cell, for all cells at once. A last one, at random in the cells, shows
whether they meet after all: its product with the Hessian has then more in it than each cell's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from asvi.density.arrowhead import Arrowhead
from asvi.density.block_structure import LARGEST_DENSE, BlockStructure
from asvi.density.evaluators import CompiledEvaluator, NumpyEvaluator
from asvi.density.noise_space import NoiseSpace
from asvi.density.traced_density import TracedDensity

__all__ = [
    "BlockDensity",
    "BlocksMeet",
    "MeanDerivatives",
    "averaged_draws",
    "block_density",
    "precision",
]

MOST, LEAST = 64, 16  # points that are looked at in one call, and as few as there may be draws
NUMBERS = 640_000  # of all draws: large models have fewer
LEAK = 0.1  # of a cell's own curvature, that cells may have among each other: the root mean square
LOST = 0.05  # nats that may be lost so where a matrix without cells is to be had
WIDEST = 2**22  # numbers that are worked on at once
SMALL = 25_000  # cost of a look at a point below which NumPy is done before the compiler is
ROOM = 100_000  # and cost of as many points as NumPy looks at in one go


class BlocksMeet(Exception):
    """Groups depend on each other directly, in a model that is small enough to do without cells."""


@dataclass
class MeanDerivatives:
    """What the log density is at some points."""

    value: np.ndarray  # (points,)
    slope: np.ndarray  # mean gradient
    hessian: Arrowhead  # mean Hessian


def averaged_draws(size: int) -> int:
    """Draws of this many numbers that are averaged over, in pairs."""
    return 2 * int(np.clip(NUMBERS // (2 * size), LEAST // 2, MOST // 2))


@contextmanager
def precision(double: bool) -> Iterator[None]:
    """What is recorded and run within has twice the digits, if ``double``, and one thread."""
    # Several threads on matrices this small wait for each other, and for the compiler's.
    with jax.enable_x64(True) if double else nullcontext(), threadpool_limits(1):
        yield


@dataclass(frozen=True)
class BlockDensity:
    """A model's density over its numbers: programs that look at points, and what that costs."""

    evaluator: NumpyEvaluator | CompiledEvaluator
    structure: BlockStructure
    directions: np.ndarray
    cost: float
    centring: np.ndarray  # (numbers,), see `asvi.density.noncentering`
    anchor: np.ndarray

    def is_fine(self) -> bool:
        """Whether nothing is wrong with the data, as far as it can tell."""
        return self.evaluator.recorded.is_fine(self.evaluator.data[1])

    def __call__(self, points: np.ndarray) -> MeanDerivatives | None:
        """What is seen at points (points, numbers); None where something is not finite.

        Where cells meet after all it gives None, too, or raises :class:`BlocksMeet`.
        """
        value, slope, columns = self.evaluator.derivatives(points, self.centring, self.anchor)
        if not all(np.isfinite(a).all() for a in (value, slope, columns)):
            return None
        hessian = _assembled(self.structure, columns)
        if self.structure.groups:
            lost = _lost(hessian, self.directions[-1], columns[-1])
            if self.structure.size <= LARGEST_DENSE and lost > LOST:
                raise BlocksMeet
            if lost > LEAK**2 / 4 * self.structure.size:
                return None
        return MeanDerivatives(value, slope, hessian)

    def values(self, points: np.ndarray) -> np.ndarray:
        """Values at points (points, numbers)."""
        return self.evaluator.values(points, self.centring, self.anchor)

    def slopes(self, points: np.ndarray) -> list[np.ndarray]:
        """Values (points,) and slopes (points, numbers) at points (points, numbers)."""
        return self.evaluator.slopes(points, self.centring, self.anchor)

    def sites(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """Values of sites at points (points, numbers), (points, ...) each; see `VOLUME`."""
        return self.evaluator.sites(points, self.centring, self.anchor)

    def prior_moments(self, points: np.ndarray) -> list[np.ndarray]:
        """Location, scale and width of each number's prior at points, (points, numbers) each."""
        return self.evaluator.prior_moments(points, self.centring, self.anchor)


def block_density(space: NoiseSpace, params: dict[str, Any], double: bool) -> BlockDensity:
    """The density as it is over the noise, without centring."""
    directions = _directions(space.structure)
    recorded = space.bound.kept(("recorded", double), lambda: TracedDensity(space, params, double))
    params = recorded.typed(params)
    breadth = space.size + max((np.size(x) for x in recorded.consts), default=0)
    cost, blank = float(len(directions)) * breadth, np.zeros(space.size)
    about, data = (recorded, directions), (recorded.consts, params)
    most, evaluator = averaged_draws(space.size), None
    with precision(double):
        if double and cost < SMALL and recorded.is_plain:
            few = int(np.clip(ROOM // cost, LEAST, most))
            with suppress(NotImplementedError):  # an operation that only the compiler knows
                evaluator = NumpyEvaluator(*about, few, data)
        if evaluator is None:
            evaluator = CompiledEvaluator(
                *about, most, data, at_once=max(1, min(len(directions), WIDEST // breadth))
            )
    return BlockDensity(evaluator, space.structure, directions, cost, blank, blank)


def _directions(structure: BlockStructure) -> np.ndarray:
    """Along which the Hessian is looked at, (directions, numbers)."""
    directions = np.zeros(
        (len(structure.core) + sum(g.shape[1] for g in structure.groups), structure.size)
    )
    directions[np.arange(len(structure.core)), structure.core] = 1.0
    begin = len(structure.core)
    for group in structure.groups:
        directions[begin + np.arange(group.shape[1]), group] = 1.0
        begin += group.shape[1]
    if not structure.groups:
        return directions
    # The core's share would hide that of cells: raw predictors make it a million times as large.
    last = np.random.default_rng(3).choice([-1.0, 1.0], (1, structure.size))
    last[:, structure.core] = 0.0
    return np.concatenate([directions, last])


def _assembled(structure: BlockStructure, columns: np.ndarray) -> Arrowhead:
    """The Hessian, from its products with all directions."""
    core = columns[: len(structure.core)]
    down, blocks, begin = [], [], len(structure.core)
    for group in structure.groups:
        # (core, cells, b) and (b of the column, cells, b of the row)
        down.append(np.moveaxis(core[:, group], 0, 2))
        blocks.append(np.moveaxis(columns[begin : begin + group.shape[1]][:, group], 0, 2))
        begin += group.shape[1]
    right = tuple(np.swapaxes(x, 1, 2) for x in down)
    return Arrowhead(
        structure, core[:, structure.core], tuple(down), right, tuple(blocks)
    ).symmetric()


def _lost(hessian: Arrowhead, way: np.ndarray, found: np.ndarray) -> float:
    """Nats that a Gaussian loses without what is between cells, by the product with one direction.

    With a diagonal of 1 and entries E beside it, :math:`-\\tfrac12\\log|I + E|` is about a quarter
    of the sum of the squares of E, and that is what a product with random signs has on average.
    """
    missed = np.abs((hessian @ way[:, None])[:, 0] - found)
    unit = np.maximum(np.abs(hessian.diagonal()), 1.0)  # the noise has a precision of 1 by itself
    local = np.concatenate([np.ravel(group) for group in hessian.structure.groups])
    return float(np.sum((missed / unit)[local] ** 2) / 4)
