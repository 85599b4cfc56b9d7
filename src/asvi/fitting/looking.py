"""Takes a recorded run of a model; gives looks at points of its noise: values, slopes, curvature.

Columns of the Hessian are products with directions, ``ways``. Small models are looked at by NumPy,
others by a compiled program (their values by NumPy, too, where it knows how).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi import compiling
from asvi.failures import differentiating
from asvi.fitting.recording import TOLD, Recorded, RecordedProgram
from asvi.in_numpy import InNumpy

__all__ = ["Compiled", "Computed"]

Found = list[np.ndarray]

TOGETHER = 64  # points whose values of sites are had in one call
CALL = 5e5  # numbers that NumPy makes in the time that a call takes whatever its size
OFTEN = 6e8  # numbers that NumPy has made in the time that a compiler takes
ROOM = 3_500_000  # numbers of a call that NumPy has made, many times, before the compiler is done


@dataclass
class _Look:
    """What is looked at: ``most`` points in one call, in the precision of ``data``."""

    recorded: Recorded
    ways: np.ndarray  # (ways, numbers)
    most: int
    data: tuple[list[Any], dict[str, Any]]  # constants and parameters
    _on_device: Any = field(default=None, init=False, repr=False)
    _spent: dict[int, float] = field(default_factory=dict, init=False, repr=False)

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        return self.recorded.program.kept((name, self.most, len(self.ways)), make)

    def parts(self, points: np.ndarray) -> list[np.ndarray]:
        """As many points as are looked at in one call, and so on."""
        return [points[k : k + self.most] for k in range(0, len(points), self.most)]

    def sites(self, points: np.ndarray, *centring: np.ndarray) -> dict[str, np.ndarray]:
        """Values of sites at points (points, numbers), (points, ...) each; see `VOLUME`."""
        program = self.recorded.program
        run = self._together("values of sites", program.values, TOGETHER, once=True)
        found = []
        for k in range(0, len(points), TOGETHER):
            some = points[k : k + TOGETHER]
            rows = np.resize(some, (TOGETHER, points.shape[1]))  # one program serves any number
            values = run(rows, *centring, *self.data)
            found.append({n: np.asarray(x)[: len(some)] for n, x in values.items()})
        return {n: np.concatenate([values[n] for values in found]) for n in found[0]}

    def slopes(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        """Values (points,) and slopes (points, numbers), all in one call."""
        one, count = jax.value_and_grad(self.recorded.program.density), len(points)
        # By what this fit has asked for, and no clock: the same call does the same again.
        spent = self._spent.get(count, 0.0) + CALL + count * self.recorded.work
        self._spent[count] = spent
        run = self._together("values and slopes", one, count, often=spent > OFTEN)
        return [np.asarray(x, float) for x in run(points, *centring, *self._placed(run))]

    def _placed(self, run: Callable) -> Any:
        """The data, where a compiled program has them at hand."""
        if not isinstance(run, compiling.Compiled):
            return self.data
        if self._on_device is None:
            self._on_device = jax.device_put(self.data)
        return self._on_device

    def _together(
        self, name: str, one: Callable, count: int, once: bool = False, often: bool = False
    ) -> Callable:
        """``one`` at ``count`` points: by NumPy where that is small, and not asked for often."""
        program, size = self.recorded.program, self.recorded.size

        def look(points, *rest):
            return jax.vmap(lambda x: one(x, *rest))(points)

        def make() -> Callable:
            if not often and program.is_plain and count * self.recorded.work < ROOM:
                with suppress(NotImplementedError):  # an operation that only the compiler knows
                    blank = np.zeros(size)
                    return InNumpy(look, np.zeros((count, size)), blank, blank, *self.data)
            return compiling.Compiled(look, once=once)

        return program.kept((name, count, often), make)

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
        program = partial(InNumpy, _slopes(self.recorded.program), *inputs, moving=1)
        self.run: InNumpy = self.kept("slopes", program)

    def curved(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        """Values (points,), mean slope (numbers,) and mean columns (ways, numbers)."""
        values, slope, columns = [], 0.0, 0.0
        for some in self.parts(points):
            inputs = (self._rows(some), *centring, *self.data)
            (value, slopes), (_, moved) = self.run.along(inputs, (self.ways[:, None],))
            values.append(value[0, : len(some)])
            slope = slope + np.sum(slopes[0, : len(some)], 0)
            columns = columns + np.sum(moved[:, : len(some)], 1)
        return [np.concatenate(values), slope / len(points), columns / len(points)]

    def values(self, points: np.ndarray, *centring: np.ndarray) -> np.ndarray:
        """Values (points,)."""
        return np.concatenate(
            [
                self.run(self._rows(some), *centring, *self.data)[0][0, : len(some)]
                for some in self.parts(points)
            ]
        )

    def told(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        """Location, scale and width of each number's prior (points, numbers)."""
        found = [self.recorded.run(x, *centring, *self.data)[1] for x in points]
        return [np.stack([one[name] for one in found]) for name in TOLD]

    def _rows(self, points: np.ndarray) -> np.ndarray:
        # One point is as good as many of the same, and one way as good as all.
        return (points if len(points) == 1 else self.padded(points))[None]


@dataclass
class Compiled(_Look):
    """Looks by a compiled program, which is compiled beside what else goes on."""

    at_once: int = field(kw_only=True)  # columns that are had at a time

    def __post_init__(self) -> None:
        points, blank = np.zeros((self.most, self.recorded.size)), np.zeros(self.recorded.size)
        inputs = points, 1, self.ways, blank, blank, *self.data
        make = partial(_one_by_one, self.recorded.program, self.at_once)
        self.run = self.kept(
            "curvature", lambda: compiling.Compiled(make()).begin(*inputs, urgent=True)
        )
        told = _told(self.recorded.program)
        self.run_told = self.kept("told", lambda: self._plain(told, points, blank, blank))

    def _plain(self, function: Callable, *inputs: Any) -> Callable:
        try:
            return InNumpy(function, *inputs, *self.data)
        except NotImplementedError:  # an operation that only the compiler knows
            return compiling.Compiled(function)

    def curved(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        """Values (points,), mean slope (numbers,) and mean columns (ways, numbers)."""
        count = len(points)
        found = self.run(self.padded(points), count, self.ways, *centring, *self.data)
        value, slope, columns = (np.asarray(x, float) for x in found)
        return [value[:count], slope, columns]

    def values(self, points: np.ndarray, *centring: np.ndarray) -> np.ndarray:
        """Values (points,)."""
        return self._told(points, centring)[0]

    def told(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        """Location, scale and width of each number's prior (points, numbers)."""
        return self._told(points, centring)[1:]

    def _told(self, points: np.ndarray, centring: Any) -> Found:
        parts = [
            [x[: len(some)] for x in self.run_told(self.padded(some), *centring, *self.data)]
            for some in self.parts(points)
        ]
        return [np.concatenate(xs).astype(float) for xs in zip(*parts, strict=True)]


# ----------------------------------------------------------- programs of points, ..., data


def _told(recorded: RecordedProgram) -> Callable:
    """Log density, location, scale and width at each of the points (points, numbers)."""
    return lambda points, *rest: jax.vmap(lambda x: recorded.all_told(x, *rest))(points)


def _slopes(recorded: RecordedProgram) -> Callable:
    """Density and slope at points (ways, points, numbers)."""

    def look(points, *rest):
        def total(points):
            density = jax.vmap(jax.vmap(lambda vector: recorded.density(vector, *rest)))(points)
            return jnp.sum(density), density

        slope, density = jax.grad(total, has_aux=True)(points)
        return density, slope

    return look


def _one_by_one(recorded: RecordedProgram, at_once: int) -> Callable:
    """Values, mean slope and mean columns.

    One program serves any number of points, in a loop whose length is an input, ``count``.
    """

    def look(points, count, ways, *rest):
        def slope_of(vector):
            with differentiating():
                value, slope = jax.value_and_grad(lambda x: recorded.density(x, *rest))(vector)
            return slope, (value, slope)

        def curve_at(vector):
            if at_once < len(ways):
                _, curve, seen = jax.linearize(slope_of, vector, has_aux=True)
                return jax.lax.map(curve, ways, batch_size=at_once), seen
            # Less to trace and to compile.
            return jax.vmap(
                lambda way: jax.jvp(slope_of, (vector,), (way,), has_aux=True)[1:],
                out_axes=(0, None),
            )(ways)

        def one(i, found):
            try:
                columns, (value, slope) = curve_at(points[i])
            except TypeError as failure:
                if "custom_vjp" not in str(failure):
                    raise
                raise NotImplementedError("a slope of the model's own has no slope") from failure
            values, slopes, hessians = found
            return values.at[i].set(value), slopes + slope / count, hessians + columns / count

        begin = points[:, 0] * 0, points[0] * 0, jnp.zeros(ways.shape, points.dtype)
        return jax.lax.fori_loop(0, count, one, begin)

    return look
