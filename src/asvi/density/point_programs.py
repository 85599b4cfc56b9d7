"""Takes a recorded density; gives functions of points, ..., data: to be compiled, or for NumPy."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from asvi.density.known_derivatives import known_derivatives
from asvi.density.settings import EvaluatorSettings
from asvi.density.traced_density import DensityProgram
from asvi.program.checks.failures import differentiating

__all__ = ["at_points", "mean_derivatives", "slopes_by_direction", "slopes_in_parts"]


def at_points(one: Callable) -> Callable:
    """``one`` at each of the points (points, numbers)."""
    return lambda points, *rest: jax.vmap(lambda x: one(x, *rest))(points)


def slopes_in_parts(program: DensityProgram, settings: EvaluatorSettings) -> Callable:
    """Values and slopes at the first ``count`` of all points, a part at a time.

    One program serves any number of points. On a CPU parts of a few dozen are done in less time
    than all points at once, whose numbers do not stay where it has them at hand.
    """
    is_cpu = jax.default_backend() == "cpu"
    together = settings.points_in_cache if is_cpu else settings.points_per_call
    one = jax.value_and_grad(program.density)

    def evaluate(points, count, *rest):
        def part(k, found):
            begin = k * together
            some = jax.lax.dynamic_slice_in_dim(points, begin, together)
            seen = jax.vmap(lambda x: one(x, *rest))(some)
            place = jax.lax.dynamic_update_slice_in_dim
            return tuple(place(x, y, begin, 0) for x, y in zip(found, seen))

        return jax.lax.fori_loop(0, -(-count // together), part, (points[:, 0], points))

    return evaluate


def slopes_by_direction(program: DensityProgram) -> Callable:
    """Density and slope at points (directions, points, numbers)."""

    def evaluate(points, *rest):
        def total(points):
            density = jax.vmap(jax.vmap(lambda vector: program.density(vector, *rest)))(points)
            return jnp.sum(density), density

        slope, density = jax.grad(total, has_aux=True)(points)
        return density, slope

    return evaluate


def mean_derivatives(program: DensityProgram, columns_at_once: int) -> Callable:
    """Values, mean slope and mean columns.

    One program serves any number of points, in a loop whose length is an input, ``count``.
    """

    def evaluate(points, count, directions, *rest):
        def slope_of(vector):
            with differentiating():
                value, slope = jax.value_and_grad(lambda x: program.density(x, *rest))(vector)
            return slope, (value, slope)

        def curve_at(vector):
            if columns_at_once < len(directions):
                _, curve, seen = jax.linearize(slope_of, vector, has_aux=True)
                return jax.lax.map(curve, directions, batch_size=columns_at_once), seen
            # Less to trace and to compile.
            return jax.vmap(
                lambda way: jax.jvp(slope_of, (vector,), (way,), has_aux=True)[1:],
                out_axes=(0, None),
            )(directions)

        def one(i, found):
            columns, (value, slope) = curve_at(points[i])
            values, slopes, hessians = found
            return values.at[i].set(value), slopes + slope / count, hessians + columns / count

        begin = points[:, 0] * 0, points[0] * 0, jnp.zeros(directions.shape, points.dtype)
        with known_derivatives():
            return jax.lax.fori_loop(0, count, one, begin)

    return evaluate
