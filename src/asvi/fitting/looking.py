"""Takes a recorded run of a model; gives looks at points of its noise: values, slopes, curvature.

Columns of the Hessian are products with directions, ``ways``. Small models are looked at by NumPy,
others by a compiled program (their values by NumPy, too, where it knows how).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.fitting.problem import Problem
from asvi.fitting.recording import TOLD, Recorded
from asvi.in_numpy import InNumpy

__all__ = ["Compiled", "Computed"]

Found = list[np.ndarray]


@dataclass
class _Look:
    """What is looked at: ``most`` points in one call, in the precision of ``data``."""

    problem: Problem
    recorded: Recorded
    ways: np.ndarray  # (ways, numbers)
    most: int
    data: tuple[list[Any], dict[str, Any]]  # arrays and parameters

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        return self.problem.kept((name, str(self.recorded.dtype)), make)

    def parts(self, points: np.ndarray) -> list[np.ndarray]:
        """As many points as are looked at in one call, and so on."""
        return [points[k : k + self.most] for k in range(0, len(points), self.most)]

    def padded(self, points: np.ndarray) -> np.ndarray:
        if len(points) == self.most:
            return points
        found = np.zeros((self.most, self.recorded.size))
        found[: len(points)] = points
        return found


@dataclass
class Computed(_Look):
    """Looks by NumPy: columns are forward derivatives of slopes, one way each."""

    def __post_init__(self) -> None:
        shape = len(self.ways), self.most, self.recorded.size
        blank = np.zeros(self.recorded.size)
        inputs = np.zeros(shape), blank, blank, *self.data
        program = partial(InNumpy, _slopes(self.recorded), *inputs, moving=1)
        self.run: InNumpy = self.kept("slopes", program)

    def curved(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        """Values, mean slope, mean columns, and what is told of each number."""
        parts = [self._curved(some, centring) for some in self.parts(points)]
        value, slope, columns, *told = (
            xs[0] if len(xs) == 1 else np.concatenate(xs) for xs in zip(*parts, strict=True)
        )
        return [value, slope.mean(0), columns.mean(0), *told]

    def _curved(self, points: np.ndarray, centring: Any) -> Found:
        inputs = (self._rows(points), *centring, *self.data)
        (value, slope, *told), (_, columns, *_) = self.run.along(inputs, (self.ways[:, None],))
        count = len(points)
        columns = np.swapaxes(columns, 0, 1)[:count]
        return [value[0, :count], slope[0, :count], columns, *(x[0, :count] for x in told)]

    def plain(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        """Values, and what is told of each number."""
        value, _, *told = self.run(self._rows(points), *centring, *self.data)
        return [x[0, : len(points)] for x in (value, *told)]

    def _rows(self, points: np.ndarray) -> np.ndarray:
        # One point is as good as many of the same, and one way as good as all.
        return (points if len(points) == 1 else self.padded(points))[None]


@dataclass
class Compiled(_Look):
    """Looks by a compiled program, which is compiled beside what else goes on."""

    at_once: int  # columns that are had at a time

    def __post_init__(self) -> None:
        points, blank = np.zeros((self.most, self.recorded.size)), np.zeros(self.recorded.size)
        inputs = points, 1, 1, self.ways, blank, blank, *self.data
        make = partial(_one_by_one, self.recorded, self.at_once)
        self.run = self.kept("curvature", lambda: self.problem.ahead(make(), inputs, urgent=True))
        values = partial(InNumpy, _values(self.recorded), points, blank, blank, *self.data)
        try:
            self.values: Any = self.kept("values", values)
        except NotImplementedError:
            self.values = None  # an operation that only the compiler knows

    def curved(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        return self._look(points, 1, centring)

    def plain(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        if self.values is None:
            value, _slope, _columns, *told = self._look(points, 0, centring)
            return [value, *told]
        rows = points if len(points) == 1 else self.padded(points)
        found = self.values(rows, *centring, *self.data)
        return [np.asarray(x[: len(points)], float) for x in found]

    def _look(self, points: np.ndarray, curved: int, centring: Any) -> Found:
        count = len(points)
        found = self.run(self.padded(points), count, curved, self.ways, *centring, *self.data)
        value, slope, columns, *told = (np.asarray(x, float) for x in found)
        return [value[:count], slope, columns, *(x[:count] for x in told)]


# ----------------------------------------------------------- programs of points, ..., data


def _values(recorded: Recorded) -> Callable:
    """Log density, location, scale and width at each of the points (points, numbers)."""

    def look(points, *rest):
        density, told = jax.vmap(lambda vector: recorded.density(vector, *rest))(points)
        return density, *(told[name] for name in TOLD)

    return look


def _slopes(recorded: Recorded) -> Callable:
    """Density, slope, location, scale and width at points (ways, points, numbers)."""

    def look(points, *rest):
        def total(points):
            one = jax.vmap(jax.vmap(lambda vector: recorded.density(vector, *rest)))
            density, told = one(points)
            return jnp.sum(density), (density, *(told[name] for name in TOLD))

        slope, (density, *told) = jax.grad(total, has_aux=True)(points)
        return density, slope, *told

    return look


def _one_by_one(recorded: Recorded, at_once: int) -> Callable:
    """Values, mean slope, mean columns, location, scale and width.

    One program serves any number of points, in a loop whose length is an input, ``count``; where
    ``curved`` is 0 there are no columns.
    """

    def look(points, count, curved, ways, *rest):
        def slope_of(vector):
            def density(vector):
                value, told = recorded.density(vector, *rest)
                return value, (value, told)

            slope, seen = jax.grad(density, has_aux=True)(vector)
            return slope, (slope, *seen)

        def one(i, found):
            _, curve, (slope, seen, told) = jax.linearize(slope_of, points[i], has_aux=True)
            value, slopes, hessians, *others = found

            def add(_, hessians):
                if at_once == len(ways):
                    columns = jax.vmap(curve)(ways)
                else:
                    columns = jax.lax.map(curve, ways, batch_size=at_once)
                return hessians + columns / count

            return (
                value.at[i].set(seen),
                slopes + slope / count,
                jax.lax.fori_loop(0, curved, add, hessians),  # once, or not at all
                *(x.at[i].set(told[name]) for name, x in zip(TOLD, others, strict=True)),
            )

        rows, vector = jnp.zeros_like(points), jnp.zeros_like(points[0])
        begin = (rows[:, 0], vector, jnp.zeros(ways.shape, points.dtype), *[rows] * len(TOLD))
        return jax.lax.fori_loop(0, count, one, begin)

    return look
