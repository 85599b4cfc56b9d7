"""Takes a model's density over its noise; gives a function of points: value, slope and Hessian.

Columns of the Hessian are had by products with directions. A model that is all core has as many as
numbers; one in blocks (:mod:`asvi.density.block_structure`) has one for each number of the core,
and one for each number of a block, for all blocks at once. A last one, at random in the blocks,
shows whether they meet after all: its product with the Hessian has then more in it than each
block's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from asvi.density.arrowhead import Arrowhead
from asvi.density.block_structure import BlockStructure
from asvi.density.evaluators import CompiledEvaluator, NumpyEvaluator, averaged_draws
from asvi.density.known_derivatives import NoDerivative
from asvi.density.noise_space import NoiseSpace
from asvi.density.refusal import Refusal
from asvi.density.settings import DensitySettings
from asvi.density.traced_density import TracedDensity

__all__ = [
    "BlockDensity",
    "BlocksMeet",
    "MeanDerivatives",
    "block_density",
    "precision",
]


class BlocksMeet(Exception):
    """Blocks depend on each other directly, in a model that is small enough to do without."""


@dataclass
class MeanDerivatives:
    """What the log density is at some points."""

    value: np.ndarray  # (points,)
    slope: np.ndarray  # mean gradient
    hessian: Arrowhead  # mean Hessian


@contextmanager
def precision(double: bool) -> Iterator[None]:
    """What is recorded and run within has twice the digits, if ``double``, and one thread."""
    # Several threads on matrices this small wait for each other, and for the compiler's.
    with jax.enable_x64(True) if double else nullcontext(), threadpool_limits(1):
        yield


@dataclass(frozen=True)
class BlockDensity:
    """A model's density over its numbers: an evaluator at points, and what a point costs."""

    evaluator: NumpyEvaluator | CompiledEvaluator
    structure: BlockStructure
    directions: np.ndarray
    cost: float
    centring: np.ndarray  # (numbers,), see `asvi.density.noncentering`
    anchor: np.ndarray
    settings: DensitySettings = field(default_factory=DensitySettings)

    @property
    def averaged_draws(self) -> int:
        """Draws that are averaged over, in pairs."""
        return averaged_draws(self.structure.size, self.settings.evaluator)

    @property
    def may_be_dense(self) -> bool:
        """Whether a Hessian without blocks is to be had."""
        return self.structure.size <= self.settings.blocks.max_dense_numbers

    def is_fine(self) -> bool:
        """Whether nothing is wrong with the data, as far as it can tell."""
        return self.evaluator.density.is_fine(self.evaluator.data[1])

    def __call__(self, points: np.ndarray) -> MeanDerivatives | None:
        """What is seen at points (points, numbers); None where something is not finite.

        Where blocks meet after all it gives None, too, or raises :class:`BlocksMeet`.
        """
        value, slope, columns = self.evaluator.derivatives(points, self.centring, self.anchor)
        if not all(np.isfinite(a).all() for a in (value, slope, columns)):
            return None
        hessian = _assemble(self.structure, columns)
        if self.structure.groups:
            settings = self.settings.evaluator
            lost = _lost_nats(hessian, self.directions[-1], columns[-1])
            if self.may_be_dense and lost > settings.max_leak_nat:
                raise BlocksMeet
            if lost > settings.max_block_leak**2 / 4 * self.structure.size:
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


def block_density(
    space: NoiseSpace,
    params: dict[str, Any],
    double: bool,
    settings: DensitySettings | None = None,
) -> BlockDensity | Refusal:
    """The density as it is over the noise, without centring.

    Settings are those of the model, unless others are given. It is refused where types are written
    into a model that is to run in double precision, and where its density has no curvature.
    """
    settings = settings or space.bound.settings
    density = space.bound.kept(
        ("density", double, settings),
        lambda: TracedDensity.build(space, params, double, settings.evaluator),
    )
    if isinstance(density, Refusal):
        return density
    directions, blank = _directions(space.structure), np.zeros(space.size)
    cost = float(len(directions)) * _breadth(density)
    try:
        with precision(double):
            evaluator = _evaluator(density, directions, params, double, settings)
    except NoDerivative as failure:
        return Refusal(str(failure))
    return BlockDensity(evaluator, space.structure, directions, cost, blank, blank, settings)


def _breadth(density: TracedDensity) -> int:
    """Numbers that a point has to do with: its own, and the data."""
    return density.size + max((np.size(x) for x in density.consts), default=0)


def _evaluator(
    density: TracedDensity,
    directions: np.ndarray,
    params: dict[str, Any],
    double: bool,
    settings: DensitySettings,
) -> NumpyEvaluator | CompiledEvaluator:
    """By NumPy, where it is done before the compiler is, else compiled."""
    own, breadth = settings.evaluator, _breadth(density)
    data = density.consts, density.typed(params)
    cost, draws = float(len(directions)) * breadth, averaged_draws(density.size, own)
    if double and cost < own.max_numpy_cost and density.is_plain:
        few = int(np.clip(own.numpy_batch_cost // cost, own.min_points, draws))
        evaluator = NumpyEvaluator.build(density, directions, few, data, own)
        if evaluator is not None:
            return evaluator
    at_once = max(1, min(len(directions), own.max_parallel_numbers // breadth))
    return CompiledEvaluator(
        density, directions, draws, data, settings=own, columns_at_once=at_once
    )


def _directions(structure: BlockStructure) -> np.ndarray:
    """Along which columns of the Hessian are had, (directions, numbers)."""
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
    # The core's share would hide that of blocks: raw predictors make it a million times as large.
    last = np.random.default_rng(3).choice([-1.0, 1.0], (1, structure.size))
    last[:, structure.core] = 0.0
    return np.concatenate([directions, last])


def _assemble(structure: BlockStructure, columns: np.ndarray) -> Arrowhead:
    """The Hessian, from its products with all directions."""
    core = columns[: len(structure.core)]
    down, blocks, begin = [], [], len(structure.core)
    for group in structure.groups:
        # (core, members, b) and (b of the column, members, b of the row)
        down.append(np.moveaxis(core[:, group], 0, 2))
        blocks.append(np.moveaxis(columns[begin : begin + group.shape[1]][:, group], 0, 2))
        begin += group.shape[1]
    right = tuple(np.swapaxes(x, 1, 2) for x in down)
    return Arrowhead(
        structure, core[:, structure.core], tuple(down), right, tuple(blocks)
    ).symmetric()


def _lost_nats(hessian: Arrowhead, direction: np.ndarray, found: np.ndarray) -> float:
    """Nats that a Gaussian loses without what is between blocks, by its product with one direction.

    With a diagonal of 1 and entries E beside it, :math:`-\\tfrac12\\log|I + E|` is about a quarter
    of the sum of the squares of E, and that is what a product with random signs has on average.
    """
    missed = np.abs((hessian @ direction[:, None])[:, 0] - found)
    unit = np.maximum(np.abs(hessian.diagonal()), 1.0)  # the noise has a precision of 1 by itself
    local = np.concatenate([np.ravel(group) for group in hessian.structure.groups])
    return float(np.sum((missed / unit)[local] ** 2) / 4)
