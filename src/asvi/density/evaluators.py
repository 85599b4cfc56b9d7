"""Takes a recorded run of a model; gives looks at points of its noise: values, slopes, curvature.

Columns of the Hessian are products with directions, ``ways``. Small models are looked at by NumPy,
others by a compiled program (their values by NumPy, too, where it knows how).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.density.numpy_backend import NumpyFunction
from asvi.density.traced_density import PRIOR_MOMENTS, DensityProgram, TracedDensity
from asvi.program import compiling
from asvi.program.checks.failures import differentiating

__all__ = ["CompiledEvaluator", "NumpyEvaluator", "SlopeEvaluator"]

Found = list[np.ndarray]

TOGETHER, ALL = 64, 512  # points that are looked at in one go, and in one call
CALL = 5e5  # numbers that NumPy makes in the time that a call takes whatever its size
OFTEN = 6e8  # numbers that NumPy has made in the time that a compiler takes
TRIED = 1e8  # numbers that NumPy makes before the compiler is asked, which may not be needed at all
ROOM = 3_500_000  # numbers of a call that NumPy has made, many times, before the compiler is done


@dataclass
class _Evaluator:
    """What is looked at: ``most`` points in one call, in the precision of ``data``."""

    recorded: TracedDensity
    directions: np.ndarray  # (ways, numbers)
    batch_size: int
    data: tuple[list[Any], dict[str, Any]]  # constants and parameters
    _spent: dict[str, float] = field(
        default_factory=lambda: {"slopes": 0.0, "curvature": 0.0}, init=False, repr=False
    )
    _given: dict[int, Any] = field(default_factory=dict, init=False, repr=False)

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        return self.recorded.program.kept((name, self.batch_size, len(self.directions)), make)

    def parts(self, points: np.ndarray) -> list[np.ndarray]:
        """As many points as are looked at in one call, and so on."""
        return [points[k : k + self.batch_size] for k in range(0, len(points), self.batch_size)]

    def sites(self, points: np.ndarray, *centring: np.ndarray) -> dict[str, np.ndarray]:
        """Values of sites at points (points, numbers), (points, ...) each; see `VOLUME`."""
        program = self.recorded.program
        # As many as make a call worth its while.
        batch_size = int(np.clip(CALL // max(1.0, self.recorded.work), TOGETHER, ALL))
        run = self._together("values of sites", program.values, batch_size, once=True)
        found = []
        for k in range(0, len(points), batch_size):
            some = points[k : k + batch_size]
            rows = np.resize(some, (batch_size, points.shape[1]))  # one program serves any number
            values = self._with_data(run, centring)(rows)
            found.append({n: np.asarray(x)[: len(some)] for n, x in values.items()})
        return {n: np.concatenate([values[n] for values in found]) for n in found[0]}

    def slopes(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        """Values (points,) and slopes (points, numbers)."""
        program, count = self.recorded.program, len(points)
        # By what this fit has asked for, and no clock: the same call does the same again.
        self._spent["slopes"] += CALL + count * self.recorded.work
        small = program.is_plain and count * self.recorded.work < ROOM
        if small and self._spent["slopes"] < OFTEN:
            run = self._in_numpy("slopes together", jax.value_and_grad(program.density), count)
            if run is not None:
                found = self._with_data(run, centring)(points)
                return [np.asarray(x, float) for x in found]
        run = program.kept("slopes in a loop", lambda: compiling.Compiled(_in_parts(program)))
        run = self._with_data(run, centring)
        found = []
        for k in range(0, count, ALL):
            some = points[k : k + ALL]
            rows = np.zeros((ALL, self.recorded.size))
            rows[: len(some)] = some
            found.append([np.asarray(x, float)[: len(some)] for x in run(rows, len(some))])
        return [np.concatenate(parts) for parts in zip(*found, strict=True)]

    def _with_data(self, run: Any, centring: Sequence[np.ndarray]) -> Any:
        """``run`` as a function of points, the data where it has them at hand."""
        known, given = self._given.get(id(run), ((), None))
        if given is None or any(x is not y for x, y in zip(known, centring, strict=True)):
            given = run.given(*centring, *self.data)
            self._given[id(run)] = centring, given
        return given

    def _together(self, name: str, one: Callable, count: int, once: bool = False) -> Callable:
        """``one`` at ``count`` points: by NumPy where that is small, else compiled."""
        program = self.recorded.program
        small = program.is_plain and count * self.recorded.work < ROOM
        run = self._in_numpy(name, one, count) if small else None
        if run is not None:
            return run
        return program.kept((name, count), lambda: compiling.Compiled(_at_points(one), once=once))

    def _in_numpy(self, name: str, one: Callable, count: int) -> NumpyFunction | None:
        """``one`` at ``count`` points by NumPy; None where only the compiler knows how."""

        def make() -> NumpyFunction | None:
            blank, points = np.zeros(self.recorded.size), np.zeros((count, self.recorded.size))
            with suppress(NotImplementedError):  # an operation that only the compiler knows
                return NumpyFunction(_at_points(one), points, blank, blank, *self.data, varying=1)
            return None

        return self.recorded.program.kept((name, count, "by NumPy"), make)

    def padded(self, points: np.ndarray) -> np.ndarray:
        if len(points) == self.batch_size:
            return points
        found = np.zeros((self.batch_size, self.recorded.size))
        found[: len(points)] = points
        return found


@dataclass
class SlopeEvaluator(_Evaluator):
    """Looks at values and slopes alone."""

    @cached_property
    def uncentred(self) -> tuple[np.ndarray, np.ndarray]:
        """Centring and anchor of numbers that are not centred."""
        return np.zeros(self.recorded.size), np.zeros(self.recorded.size)

    def values(self, points: np.ndarray) -> np.ndarray:
        """Values (points,)."""
        return self.slopes(points, *self.uncentred)[0]  # less to compile than values alone


@dataclass
class NumpyEvaluator(_Evaluator):
    """Looks by NumPy: columns are forward derivatives of slopes, one way each."""

    def __post_init__(self) -> None:
        shape = len(self.directions), self.batch_size, self.recorded.size
        blank = np.zeros(self.recorded.size)
        inputs = np.zeros(shape), blank, blank, *self.data
        program = partial(
            NumpyFunction, _slopes(self.recorded.program), *inputs, moving=1, varying=1
        )
        self.run: NumpyFunction = self.kept("slopes", program)

    def derivatives(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        """Values (points,), mean slope (numbers,) and mean columns (ways, numbers)."""
        values, slope, columns = [], 0.0, 0.0
        run = self._with_data(self.run, centring)
        for some in self.parts(points):
            (value, slopes), (_, moved) = run.along(
                (self._rows(some),), (self.directions[:, None],)
            )
            values.append(value[0, : len(some)])
            slope = slope + np.sum(slopes[0, : len(some)], 0)
            columns = columns + np.sum(moved[:, : len(some)], 1)
        return [np.concatenate(values), slope / len(points), columns / len(points)]

    def slopes(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        if len(points) > self.batch_size:
            return super().slopes(points, *centring)
        value, slope = self._with_data(self.run, centring)(self._rows(points))
        return [value[0, : len(points)], slope[0, : len(points)]]

    def values(self, points: np.ndarray, *centring: np.ndarray) -> np.ndarray:
        """Values (points,)."""
        run = self._with_data(self.run, centring)
        return np.concatenate(
            [run(self._rows(some))[0][0, : len(some)] for some in self.parts(points)]
        )

    def prior_moments(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        """Location, scale and width of each number's prior (points, numbers)."""
        found = [self.recorded.run(x, *centring, *self.data)[1] for x in points]
        return [np.stack([one[name] for one in found]) for name in PRIOR_MOMENTS]

    def _rows(self, points: np.ndarray) -> np.ndarray:
        # One point is as good as many of the same, and one way as good as all.
        return (points if len(points) == 1 else self.padded(points))[None]


@dataclass
class CompiledEvaluator(_Evaluator):
    """Looks by a compiled program, which is compiled beside what else goes on.

    Single points, as on a path of Newton's, are looked at by NumPy where that takes no longer than
    a call, and so are a few more: where the mode's Gaussian is the posterior, the compiler is not
    asked for anything.
    """

    at_once: int = field(kw_only=True)  # columns that are had at a time

    def __post_init__(self) -> None:
        points, blank = (
            np.zeros((self.batch_size, self.recorded.size)),
            np.zeros(self.recorded.size),
        )
        make = partial(_one_by_one, self.recorded.program, self.at_once)
        self.run = self.kept("curvature", lambda: compiling.Compiled(make()))
        self.at_one = self.kept("curvature at one", self._at_one)
        if self.at_one is None:
            self.run.begin(points, 1, self.directions, blank, blank, *self.data, urgent=True)
        prior_moments = _told(self.recorded.program)
        self.run_told = self.kept("told", lambda: self._plain(prior_moments, points, blank, blank))

    def _at_one(self) -> NumpyFunction | None:
        """Density, slope and columns at one point by NumPy; None where the compiler is better."""
        program = self.recorded.program
        dear = len(self.directions) * self.recorded.work > CALL or self.recorded.dtype != np.float64
        if dear or not program.is_plain or program.has_own_slopes:
            return None
        blank = np.zeros(self.recorded.size)
        inputs = np.zeros((len(self.directions), 1, len(blank))), blank, blank, *self.data
        with suppress(NotImplementedError):  # an operation that only the compiler knows
            return NumpyFunction(_slopes(program), *inputs, moving=1, varying=1)
        return None

    def _affords(self, count: int) -> bool:
        """Whether so many points are looked at, too, before the compiler is asked."""
        self._spent["curvature"] += count * (CALL + len(self.directions) * self.recorded.work)
        return self._spent["curvature"] < TRIED

    def _plain(self, function: Callable, *inputs: Any) -> Callable:
        try:
            return NumpyFunction(function, *inputs, *self.data, varying=1)
        except NotImplementedError:  # an operation that only the compiler knows
            return compiling.Compiled(function)

    def derivatives(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        """Values (points,), mean slope (numbers,) and mean columns (ways, numbers)."""
        count = len(points)
        if self.at_one is not None and (count == 1 or self._affords(count)):
            run, directions = self._with_data(self.at_one, centring), (self.directions[:, None],)
            looks = [run.along((x[None, None],), directions) for x in points]
            values = np.array([value[0, 0] for (value, _), _ in looks])
            slopes = [slope[0, 0] for (_, slope), _ in looks]
            columns = [moved[:, 0] for _, (_, moved) in looks]
            return [values, np.mean(slopes, 0), np.mean(columns, 0)]
        found = self.run(self.padded(points), count, self.directions, *centring, *self.data)
        value, slope, columns = (np.asarray(x, float) for x in found)
        return [value[:count], slope, columns]

    def values(self, points: np.ndarray, *centring: np.ndarray) -> np.ndarray:
        """Values (points,)."""
        return self._told(points, centring)[0]

    def prior_moments(self, points: np.ndarray, *centring: np.ndarray) -> Found:
        """Location, scale and width of each number's prior (points, numbers)."""
        return self._told(points, centring)[1:]

    def _told(self, points: np.ndarray, centring: Any) -> Found:
        run = self._with_data(self.run_told, centring)
        parts = [
            [np.asarray(x)[: len(some)] for x in run(self.padded(some))]
            for some in self.parts(points)
        ]
        return [np.concatenate(xs).astype(float) for xs in zip(*parts, strict=True)]


# ----------------------------------------------------------- programs of points, ..., data


def _told(recorded: DensityProgram) -> Callable:
    """Log density, location, scale and width at each of the points (points, numbers)."""
    return _at_points(recorded.all_told)


def _at_points(one: Callable) -> Callable:
    """``one`` at each of the points (points, numbers)."""
    return lambda points, *rest: jax.vmap(lambda x: one(x, *rest))(points)


def _in_parts(recorded: DensityProgram) -> Callable:
    """Values and slopes at the first ``count`` of ``ALL`` points, a part at a time.

    One program serves any number of points. On a CPU parts of a few dozen are done in less time
    than all points at once, whose numbers do not stay where it has them at hand.
    """
    together = TOGETHER if jax.default_backend() == "cpu" else ALL
    one = jax.value_and_grad(recorded.density)

    def look(points, count, *rest):
        def part(k, found):
            begin = k * together
            some = jax.lax.dynamic_slice_in_dim(points, begin, together)
            seen = jax.vmap(lambda x: one(x, *rest))(some)
            place = jax.lax.dynamic_update_slice_in_dim
            return tuple(place(x, y, begin, 0) for x, y in zip(found, seen))

        return jax.lax.fori_loop(0, -(-count // together), part, (points[:, 0], points))

    return look


def _slopes(recorded: DensityProgram) -> Callable:
    """Density and slope at points (ways, points, numbers)."""

    def look(points, *rest):
        def total(points):
            density = jax.vmap(jax.vmap(lambda vector: recorded.density(vector, *rest)))(points)
            return jnp.sum(density), density

        slope, density = jax.grad(total, has_aux=True)(points)
        return density, slope

    return look


def _one_by_one(recorded: DensityProgram, at_once: int) -> Callable:
    """Values, mean slope and mean columns.

    One program serves any number of points, in a loop whose length is an input, ``count``.
    """

    def look(points, count, directions, *rest):
        def slope_of(vector):
            with differentiating():
                value, slope = jax.value_and_grad(lambda x: recorded.density(x, *rest))(vector)
            return slope, (value, slope)

        def curve_at(vector):
            if at_once < len(directions):
                _, curve, seen = jax.linearize(slope_of, vector, has_aux=True)
                return jax.lax.map(curve, directions, batch_size=at_once), seen
            # Less to trace and to compile.
            return jax.vmap(
                lambda way: jax.jvp(slope_of, (vector,), (way,), has_aux=True)[1:],
                out_axes=(0, None),
            )(directions)

        def one(i, found):
            try:
                columns, (value, slope) = curve_at(points[i])
            except TypeError as failure:
                if "custom_vjp" not in str(failure):
                    raise
                raise NotImplementedError("a slope of the model's own has no slope") from failure
            values, slopes, hessians = found
            return values.at[i].set(value), slopes + slope / count, hessians + columns / count

        begin = points[:, 0] * 0, points[0] * 0, jnp.zeros(directions.shape, points.dtype)
        return jax.lax.fori_loop(0, count, one, begin)

    return look
