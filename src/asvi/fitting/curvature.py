"""Takes a model's density over its noise; gives a function of points: value, slope and Hessian.

Columns of the Hessian are had by products with directions. A model that is all core has as many as
numbers; one in cells (:mod:`asvi.families.cells`) has one for each number of the core, and one for
each number of a cell, for all cells at once. A last one, at random, shows whether cells meet after
all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.families.cells import Cells
from asvi.fitting.arrow import Arrow
from asvi.fitting.noise_space import NoiseSpace

__all__ = ["Curvature", "Seen", "curvature", "draws_of"]

MOST, LEAST = 64, 16  # points that are looked at in one call, and as few as there may be draws
NUMBERS = 640_000  # of all draws: large models have fewer
LEAK = 0.1  # share of a product with the Hessian that cells may have among each other
WIDEST = 2**22  # numbers that are worked on at once


@dataclass
class Seen:
    """What the log density is at some points."""

    value: np.ndarray  # (points,)
    slope: np.ndarray  # mean gradient
    hessian: Arrow  # mean Hessian
    loc: np.ndarray  # (points, numbers): each number's prior location, scale and width
    scale: np.ndarray
    width: np.ndarray


def draws_of(size: int) -> int:
    """Draws of this many numbers that are averaged over, in pairs."""
    return 2 * int(np.clip(NUMBERS // (2 * size), LEAST // 2, MOST // 2))


def _widened(x: Any) -> Any:
    x = np.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.asarray(x.astype(np.float64))
    return jnp.asarray(x.astype(np.int64) if jnp.issubdtype(x.dtype, jnp.integer) else x)


@dataclass(frozen=True)
class Curvature:
    """A model's density over its numbers: a program that looks at points, and what it costs."""

    compiled: Callable
    cells: Cells
    ways: np.ndarray
    cost: float
    centring: np.ndarray  # (numbers,), see `asvi.families.numbers`
    anchor: np.ndarray

    def __call__(self, points: np.ndarray) -> Seen | None:
        """What is seen at points (points, numbers); None where something is not finite.

        Where cells meet after all it gives None, too.
        """
        value, slope, columns, *rest = self._run(points, 1)
        if not all(np.isfinite(a).all() for a in (value, slope, columns, *rest)):
            return None
        hessian = _assembled(self.cells, columns)
        if self.cells.groups and not _holds(hessian, self.ways[-1], columns[-1]):
            return None
        return Seen(value, slope, hessian, *rest)

    def at(self, points: np.ndarray) -> tuple[np.ndarray, ...]:
        """Values (points,) and each number's location, scale and width (points, numbers)."""
        most = draws_of(self.cells.size)
        parts = [self._run(points[k : k + most], 0) for k in range(0, len(points), most)]
        values, _, _, *rest = (np.concatenate(xs) for xs in zip(*parts, strict=True))
        return values, *rest

    def _run(self, points: np.ndarray, curved: int) -> list[np.ndarray]:
        count = len(points)
        padded = np.zeros((draws_of(self.cells.size), self.cells.size), points.dtype)
        padded[:count] = points
        found = self.compiled(padded, count, curved, self.ways, self.centring, self.anchor)
        value, slope, columns, *rest = (np.asarray(a, float) for a in found)
        return [value[:count], slope, columns, *(a[:count] for a in rest)]


def curvature(
    space: NoiseSpace, arrays: list[Any], params: dict[str, Any], double: bool
) -> Curvature:
    """The density as it is over the noise, without centring.

    One program serves any number of points, in a loop whose length is an input.
    """
    if double:
        arrays, params = jax.tree.map(_widened, (arrays, params))
    cells, ways = space.cells, _directions(space.cells)
    sizes = [np.size(x) for x in jax.tree.leaves(arrays)]
    breadth = space.size + max(sizes, default=0)
    told = ("loc", "scale", "width")
    # Derivatives of a scan are dear, and so is a second copy of the model to the compiler.
    in_steps = any(site.steps for site in space.sites.values())
    at_once = max(1, min(len(ways), WIDEST // breadth))

    def look(points, count, curved, ways, centring, anchor, arrays, params):
        @jax.jit
        def run(vector):
            seen = space.run(vector, params, arrays, centring, anchor)
            return seen["log_density"], seen

        def plain(_, found):
            seen = jax.vmap(lambda vector: run(vector)[1])(points)
            return (seen["log_density"], *found[1:3], *(seen[name] for name in told))

        def slope_of(vector):
            slope, seen = jax.grad(run, has_aux=True)(vector)
            return slope, (slope, seen)

        def one(i, found):
            _, curve, (slope, seen) = jax.linearize(slope_of, points[i], has_aux=True)
            value, slopes, hessians, *rest = found

            def add(_, hessians):
                if at_once == len(ways):
                    columns = jax.vmap(curve)(ways)
                else:
                    columns = jax.lax.map(curve, ways, batch_size=at_once)
                return hessians + columns / count

            return (
                value.at[i].set(seen["log_density"]),
                slopes + slope / count,
                jax.lax.fori_loop(0, curved, add, hessians),  # once, or not at all
                *(x.at[i].set(seen[name]) for name, x in zip(told, rest, strict=True)),
            )

        rows, vector = jnp.zeros_like(points), jnp.zeros_like(points[0])
        begin = (rows[:, 0], vector, jnp.zeros(ways.shape, points.dtype), *[rows] * len(told))
        if not in_steps:
            return jax.lax.fori_loop(0, count, one, begin)
        found = jax.lax.fori_loop(0, 1 - curved, plain, begin)
        return jax.lax.fori_loop(0, count * curved, one, found)

    blank = np.zeros(space.size)
    points = np.zeros((draws_of(space.size), space.size))
    name, inputs = ("curvature", double), (points, 1, 1, ways, blank, blank, arrays, params)
    space.problem.compile_ahead(name, lambda: look, *inputs, urgent=True)
    compiled = space.problem.jit(name, lambda: look)
    return Curvature(
        lambda *inputs: compiled(*inputs, arrays, params),
        cells,
        ways,
        float(len(ways)) * breadth,
        blank,
        blank,
    )


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
    return np.concatenate([ways, np.random.default_rng(3).choice([-1.0, 1.0], (1, cells.size))])


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


def _holds(hessian: Arrow, way: np.ndarray, found: np.ndarray) -> bool:
    """Whether the Hessian is this one, by its product with one direction."""
    missed = np.linalg.norm((hessian @ way[:, None])[:, 0] - found)
    return bool(missed <= LEAK * np.linalg.norm(found))
