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

from asvi.density.arrowhead import Arrow
from asvi.density.block_structure import LARGEST_DENSE, Cells
from asvi.density.evaluators import Compiled, Computed
from asvi.density.noise_space import NoiseSpace
from asvi.density.traced_density import Recorded

__all__ = ["CellsMeet", "Curvature", "Seen", "curvature", "draws_of", "precision"]

MOST, LEAST = 64, 16  # points that are looked at in one call, and as few as there may be draws
NUMBERS = 640_000  # of all draws: large models have fewer
LEAK = 0.1  # of a cell's own curvature, that cells may have among each other: the root mean square
LOST = 0.05  # nats that may be lost so where a matrix without cells is to be had
WIDEST = 2**22  # numbers that are worked on at once
SMALL = 25_000  # cost of a look at a point below which NumPy is done before the compiler is
ROOM = 100_000  # and cost of as many points as NumPy looks at in one go


class CellsMeet(Exception):
    """Groups depend on each other directly, in a model that is small enough to do without cells."""


@dataclass
class Seen:
    """What the log density is at some points."""

    value: np.ndarray  # (points,)
    slope: np.ndarray  # mean gradient
    hessian: Arrow  # mean Hessian


def draws_of(size: int) -> int:
    """Draws of this many numbers that are averaged over, in pairs."""
    return 2 * int(np.clip(NUMBERS // (2 * size), LEAST // 2, MOST // 2))


@contextmanager
def precision(double: bool) -> Iterator[None]:
    """What is recorded and run within has twice the digits, if ``double``, and one thread."""
    # Several threads on matrices this small wait for each other, and for the compiler's.
    with jax.enable_x64(True) if double else nullcontext(), threadpool_limits(1):
        yield


@dataclass(frozen=True)
class Curvature:
    """A model's density over its numbers: programs that look at points, and what that costs."""

    look: Computed | Compiled
    cells: Cells
    ways: np.ndarray
    cost: float
    centring: np.ndarray  # (numbers,), see `asvi.density.noncentering`
    anchor: np.ndarray

    def is_fine(self) -> bool:
        """Whether nothing is wrong with the data, as far as it can tell."""
        return self.look.recorded.is_fine(self.look.data[1])

    def __call__(self, points: np.ndarray) -> Seen | None:
        """What is seen at points (points, numbers); None where something is not finite.

        Where cells meet after all it gives None, too, or raises :class:`CellsMeet`.
        """
        value, slope, columns = self.look.curved(points, self.centring, self.anchor)
        if not all(np.isfinite(a).all() for a in (value, slope, columns)):
            return None
        hessian = _assembled(self.cells, columns)
        if self.cells.groups:
            lost = _lost(hessian, self.ways[-1], columns[-1])
            if self.cells.size <= LARGEST_DENSE and lost > LOST:
                raise CellsMeet
            if lost > LEAK**2 / 4 * self.cells.size:
                return None
        return Seen(value, slope, hessian)

    def values(self, points: np.ndarray) -> np.ndarray:
        """Values at points (points, numbers)."""
        return self.look.values(points, self.centring, self.anchor)

    def slopes(self, points: np.ndarray) -> list[np.ndarray]:
        """Values (points,) and slopes (points, numbers) at points (points, numbers)."""
        return self.look.slopes(points, self.centring, self.anchor)

    def sites(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """Values of sites at points (points, numbers), (points, ...) each; see `VOLUME`."""
        return self.look.sites(points, self.centring, self.anchor)

    def told(self, points: np.ndarray) -> list[np.ndarray]:
        """Location, scale and width of each number's prior at points, (points, numbers) each."""
        return self.look.told(points, self.centring, self.anchor)


def curvature(space: NoiseSpace, params: dict[str, Any], double: bool) -> Curvature:
    """The density as it is over the noise, without centring."""
    ways = _directions(space.cells)
    recorded = space.bound.kept(("recorded", double), lambda: Recorded(space, params, double))
    params = recorded.typed(params)
    breadth = space.size + max((np.size(x) for x in recorded.consts), default=0)
    cost, blank = float(len(ways)) * breadth, np.zeros(space.size)
    about, data = (recorded, ways), (recorded.consts, params)
    most, look = draws_of(space.size), None
    with precision(double):
        if double and cost < SMALL and recorded.is_plain:
            few = int(np.clip(ROOM // cost, LEAST, most))
            with suppress(NotImplementedError):  # an operation that only the compiler knows
                look = Computed(*about, few, data)
        if look is None:
            look = Compiled(*about, most, data, at_once=max(1, min(len(ways), WIDEST // breadth)))
    return Curvature(look, space.cells, ways, cost, blank, blank)


def _directions(cells: Cells) -> np.ndarray:
    """Along which the Hessian is looked at, (directions, numbers)."""
    ways = np.zeros((len(cells.core) + sum(g.shape[1] for g in cells.groups), cells.size))
    ways[np.arange(len(cells.core)), cells.core] = 1.0
    begin = len(cells.core)
    for group in cells.groups:
        ways[begin + np.arange(group.shape[1]), group] = 1.0
        begin += group.shape[1]
    if not cells.groups:
        return ways
    # The core's share would hide that of cells: raw predictors make it a million times as large.
    last = np.random.default_rng(3).choice([-1.0, 1.0], (1, cells.size))
    last[:, cells.core] = 0.0
    return np.concatenate([ways, last])


def _assembled(cells: Cells, columns: np.ndarray) -> Arrow:
    """The Hessian, from its products with all directions."""
    core = columns[: len(cells.core)]
    down, blocks, begin = [], [], len(cells.core)
    for group in cells.groups:
        # (core, cells, b) and (b of the column, cells, b of the row)
        down.append(np.moveaxis(core[:, group], 0, 2))
        blocks.append(np.moveaxis(columns[begin : begin + group.shape[1]][:, group], 0, 2))
        begin += group.shape[1]
    right = tuple(np.swapaxes(x, 1, 2) for x in down)
    return Arrow(cells, core[:, cells.core], tuple(down), right, tuple(blocks)).symmetric()


def _lost(hessian: Arrow, way: np.ndarray, found: np.ndarray) -> float:
    """Nats that a Gaussian loses without what is between cells, by the product with one direction.

    With a diagonal of 1 and entries E beside it, :math:`-\\tfrac12\\log|I + E|` is about a quarter
    of the sum of the squares of E, and that is what a product with random signs has on average.
    """
    missed = np.abs((hessian @ way[:, None])[:, 0] - found)
    unit = np.maximum(np.abs(hessian.diagonal()), 1.0)  # the noise has a precision of 1 by itself
    local = np.concatenate([np.ravel(group) for group in hessian.cells.groups])
    return float(np.sum((missed / unit)[local] ** 2) / 4)
