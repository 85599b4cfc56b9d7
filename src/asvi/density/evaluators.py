"""Takes a recorded density; gives its values, slopes and curvature at points of the noise.

Columns of the Hessian are products with ``directions``. Small models are evaluated by NumPy, others
by a compiled program (their values by NumPy, too, where it knows how).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

from asvi.density.known_derivatives import NoDerivative, known_derivatives
from asvi.density.numpy_backend import NumpyFunction, numpy_function
from asvi.density.point_programs import (
    at_points,
    mean_derivatives,
    slopes_by_direction,
    slopes_in_parts,
)
from asvi.density.refusal import Refusal
from asvi.density.settings import EvaluatorSettings
from asvi.density.traced_density import PRIOR_MOMENTS, Space, TracedDensity
from asvi.program import compiling

__all__ = ["CompiledEvaluator", "NumpyEvaluator", "SlopeEvaluator", "averaged_draws"]

Arrays = list[np.ndarray]


def averaged_draws(size: int, settings: EvaluatorSettings = EvaluatorSettings()) -> int:
    """Draws of this many numbers that are averaged over, in pairs."""
    few, many = settings.min_points // 2, settings.max_points // 2
    return 2 * int(np.clip(settings.max_draw_numbers // (2 * size), few, many))


@dataclass
class _Evaluator:
    """What is evaluated: ``batch_size`` points in one call, in the precision of ``data``."""

    density: TracedDensity
    directions: np.ndarray  # (directions, numbers)
    batch_size: int
    data: tuple[list[Any], dict[str, Any]]  # constants and parameters
    settings: EvaluatorSettings = field(default_factory=EvaluatorSettings, kw_only=True)
    _work_done: dict[str, float] = field(
        default_factory=lambda: {"slopes": 0.0, "curvature": 0.0}, init=False, repr=False
    )
    _given: dict[int, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def size(self) -> int:
        """Numbers of a point."""
        return self.density.size

    @property
    def work(self) -> float:
        """Numbers that operations make at one point."""
        return self.density.work

    @property
    def dtype(self) -> Any:
        return self.density.dtype

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        return self.density.program.kept((name, self.batch_size, len(self.directions)), make)

    def parts(self, points: np.ndarray) -> Arrays:
        """Points of one call, and so on."""
        return [points[k : k + self.batch_size] for k in range(0, len(points), self.batch_size)]

    def sites(self, points: np.ndarray, *centring: np.ndarray) -> dict[str, np.ndarray]:
        """Values of sites at points (points, numbers), (points, ...) each; see `VOLUME`."""
        settings, one = self.settings, self.density.program.values
        # As many as make a call worth its while.
        least, most = settings.points_in_cache, settings.points_per_call
        count = int(np.clip(settings.call_work / max(1.0, self.work), least, most))
        run = self._by_numpy("values of sites", one, count)
        if run is None:
            run = self.density.program.kept(
                ("values of sites", count), lambda: compiling.Compiled(at_points(one), once=True)
            )
        found = []
        for k in range(0, len(points), count):
            some = points[k : k + count]
            rows = np.resize(some, (count, points.shape[1]))  # one program serves any number
            values = self._with_data(run, centring)(rows)
            found.append({n: np.asarray(x)[: len(some)] for n, x in values.items()})
        return {n: np.concatenate([values[n] for values in found]) for n in found[0]}

    def slopes(self, points: np.ndarray, *centring: np.ndarray) -> Arrays:
        """Values (points,) and slopes (points, numbers)."""
        program, count, settings = self.density.program, len(points), self.settings
        # By what this fit has asked for, and no clock: the same call does the same again.
        self._work_done["slopes"] += settings.call_work + count * self.work
        if self._work_done["slopes"] < settings.max_slope_work:
            one = jax.value_and_grad(program.density)
            by_numpy = self._by_numpy("slopes together", one, count)
            if by_numpy is not None:
                found = self._with_data(by_numpy, centring)(points)
                return [np.asarray(x, float) for x in found]
        run = program.kept(
            "slopes in a loop", lambda: compiling.Compiled(slopes_in_parts(program, settings))
        )
        run, most, found = self._with_data(run, centring), settings.points_per_call, []
        for k in range(0, count, most):
            some = points[k : k + most]
            rows = np.zeros((most, self.size))
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

    def _by_numpy(self, name: str, one: Callable, count: int) -> NumpyFunction | None:
        """``one`` at ``count`` points by NumPy; None where it has to be compiled."""
        program, settings = self.density.program, self.settings

        def make() -> NumpyFunction | None:
            blank, points = np.zeros(self.size), np.zeros((count, self.size))
            return numpy_function(
                at_points(one), points, blank, blank, *self.data,
                varying=1, work=count * self.work, max_work=settings.max_call_work,
                settings=settings,
            )  # fmt: skip

        return program.kept((name, count, "by NumPy"), make) if program.is_plain else None

    def padded(self, points: np.ndarray) -> np.ndarray:
        if len(points) == self.batch_size:
            return points
        found = np.zeros((self.batch_size, self.size))
        found[: len(points)] = points
        return found


@dataclass
class SlopeEvaluator(_Evaluator):
    """Evaluates values and slopes alone."""

    @classmethod
    def build(
        cls,
        space: Space,
        params: dict[str, Any],
        double: bool,
        settings: EvaluatorSettings = EvaluatorSettings(),
    ) -> SlopeEvaluator | Refusal:
        """The evaluator; refused where the density cannot be had so, or has no slopes."""
        density = TracedDensity.build(space, params, double, settings)
        if isinstance(density, Refusal):
            return density
        data = density.consts, density.typed(params)
        blank = np.zeros(space.size, density.dtype)
        try:
            with jax.enable_x64(bool(density.dtype == np.float64)), known_derivatives():
                jax.eval_shape(jax.grad(density.program.density), blank, blank, blank, *data)
        except NoDerivative as failure:
            return Refusal(str(failure))
        directions = np.zeros((0, space.size))
        return cls(density, directions, settings.points_per_call, data, settings=settings)

    @cached_property
    def uncentred(self) -> tuple[np.ndarray, np.ndarray]:
        """Centring and anchor of numbers that are not centred."""
        return np.zeros(self.size), np.zeros(self.size)

    def values(self, points: np.ndarray) -> np.ndarray:
        """Values (points,)."""
        return self.slopes(points, *self.uncentred)[0]  # less to compile than values alone


@dataclass
class NumpyEvaluator(_Evaluator):
    """Evaluates by NumPy: columns are forward derivatives of slopes, one direction each."""

    run: NumpyFunction = field(kw_only=True, repr=False)

    @classmethod
    def build(
        cls,
        density: TracedDensity,
        directions: np.ndarray,
        batch_size: int,
        data: tuple[list[Any], dict[str, Any]],
        settings: EvaluatorSettings,
    ) -> NumpyEvaluator | None:
        """The evaluator; None where it has to be compiled."""
        blank, points = np.zeros(density.size), (len(directions), batch_size, density.size)

        def make() -> NumpyFunction | None:
            return numpy_function(
                slopes_by_direction(density.program), np.zeros(points), blank, blank, *data,
                moving=1, varying=1, settings=settings,
            )  # fmt: skip

        run = density.program.kept(("slopes", batch_size, len(directions)), make)
        if run is None:
            return None
        return cls(density, directions, batch_size, data, settings=settings, run=run)

    @property
    def is_cheap(self) -> bool:
        """Whether further points cost next to nothing."""
        return self.batch_size == averaged_draws(self.size, self.settings)

    def draws_of_a_call(self, wanted: int) -> int:
        """Draws that cost no more than those that are ``wanted``: all that there is room for."""
        return self.batch_size

    def derivatives(self, points: np.ndarray, *centring: np.ndarray) -> Arrays:
        """Values (points,), mean slope (numbers,) and mean columns (directions, numbers)."""
        values, slope, columns = [], 0.0, 0.0
        run, directions = self._with_data(self.run, centring), self.directions[:, None]
        for some in self.parts(points):
            (value, slopes), (_, moved) = run.jvp((self._rows(some),), (directions,))
            values.append(value[0, : len(some)])
            slope = slope + np.sum(slopes[0, : len(some)], 0)
            columns = columns + np.sum(moved[:, : len(some)], 1)
        return [np.concatenate(values), slope / len(points), columns / len(points)]

    def slopes(self, points: np.ndarray, *centring: np.ndarray) -> Arrays:
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

    def prior_moments(self, points: np.ndarray, *centring: np.ndarray) -> Arrays:
        """Location, scale and width of each number's prior (points, numbers)."""
        found = [self.density.run(x, *centring, *self.data)[1] for x in points]
        return [np.stack([one[name] for one in found]) for name in PRIOR_MOMENTS]

    def _rows(self, points: np.ndarray) -> np.ndarray:
        # One point is as good as many of the same, and one direction as good as all.
        return (points if len(points) == 1 else self.padded(points))[None]


@dataclass
class CompiledEvaluator(_Evaluator):
    """Evaluates by a compiled program, which is compiled beside what else goes on.

    Single points, as on a path of Newton's, are evaluated by NumPy where that takes no longer than
    a call, and so are a few more: where the mode's Gaussian is the posterior, the compiler is not
    asked for anything.
    """

    columns_at_once: int = field(kw_only=True)  # that are had at a time
    is_cheap = False  # whether further points cost next to nothing

    def __post_init__(self) -> None:
        blank, points = np.zeros(self.size), np.zeros((self.batch_size, self.size))
        program = self.density.program
        self.run = self.kept(
            "curvature",
            lambda: compiling.Compiled(mean_derivatives(program, self.columns_at_once)),
        )
        self.at_one: NumpyFunction | None = self.kept("curvature at one", self._at_one)
        if self.at_one is None:
            self.run.begin(points, 1, self.directions, blank, blank, *self.data, urgent=True)
        moments = at_points(program.density_and_prior_moments)
        inputs = points, blank, blank, *self.data
        self.run_prior_moments = self.kept(
            "prior moments",
            lambda: (
                numpy_function(moments, *inputs, varying=1, settings=self.settings)
                or compiling.Compiled(moments)
            ),
        )

    def _at_one(self) -> NumpyFunction | None:
        """Density, slope and columns at one point by NumPy; None where the compiler is better."""
        program = self.density.program
        if self.dtype != np.float64 or not program.is_plain or program.has_own_slopes:
            return None
        blank = np.zeros(self.size)
        inputs = np.zeros((len(self.directions), 1, self.size)), blank, blank, *self.data
        return numpy_function(
            slopes_by_direction(program), *inputs,
            moving=1, varying=1, work=len(self.directions) * self.work,
            max_work=self.settings.call_work, settings=self.settings,
        )  # fmt: skip

    def draws_of_a_call(self, wanted: int) -> int:
        """Draws that cost no more than those that are ``wanted``: these."""
        return wanted

    def _affords(self, count: int) -> bool:
        """Whether so many points are evaluated, too, before the compiler is asked."""
        each = self.settings.call_work + len(self.directions) * self.work
        self._work_done["curvature"] += count * each
        return self._work_done["curvature"] < self.settings.max_curvature_work

    def derivatives(self, points: np.ndarray, *centring: np.ndarray) -> Arrays:
        """Values (points,), mean slope (numbers,) and mean columns (directions, numbers)."""
        count = len(points)
        if self.at_one is not None and (count == 1 or self._affords(count)):
            run, directions = self._with_data(self.at_one, centring), (self.directions[:, None],)
            each = [run.jvp((x[None, None],), directions) for x in points]
            values = np.array([value[0, 0] for (value, _), _ in each])
            slopes = [slope[0, 0] for (_, slope), _ in each]
            columns = [moved[:, 0] for _, (_, moved) in each]
            return [values, np.mean(slopes, 0), np.mean(columns, 0)]
        found = self.run(self.padded(points), count, self.directions, *centring, *self.data)
        value, slope, columns = (np.asarray(x, float) for x in found)
        return [value[:count], slope, columns]

    def values(self, points: np.ndarray, *centring: np.ndarray) -> np.ndarray:
        """Values (points,)."""
        return self._density_and_prior_moments(points, centring)[0]

    def prior_moments(self, points: np.ndarray, *centring: np.ndarray) -> Arrays:
        """Location, scale and width of each number's prior (points, numbers)."""
        return self._density_and_prior_moments(points, centring)[1:]

    def _density_and_prior_moments(self, points: np.ndarray, centring: Any) -> Arrays:
        run = self._with_data(self.run_prior_moments, centring)
        parts = [
            [np.asarray(x)[: len(some)] for x in run(self.padded(some))]
            for some in self.parts(points)
        ]
        return [np.concatenate(xs).astype(float) for xs in zip(*parts, strict=True)]
