"""Takes a problem; gives the Gaussian over its noise that is nearest to the posterior.

Two ways lead there, and the better end is kept:

* a Newton path from the prior's centre to a mode. It finds location, scale and correlation of
  posteriors on which stochastic gradients take very long: raw predictors, collinear columns,
  coefficients whose scales span 10⁴; and the path of a chain;
* the prior's centre itself. Where scales of a hierarchy are unknown, the joint mode is no guide.

From either, natural gradients climb the ELBO of N(m, P⁻¹). With :math:`\\bar g` and
:math:`\\bar H` the gradient and negative Hessian of the log density, averaged over the Gaussian's
own draws, a step of length ρ is

.. math:: P \\leftarrow P + \\rho D + \\tfrac{\\rho^2}{2} D P^{-1} D,\\quad D = \\bar H - P,
   \\qquad m \\leftarrow m + \\rho P^{-1} \\bar g,

which keeps P positive definite (Lin, Schmidt and Khan 2020) and solves a Gaussian posterior in one
step. The draws are made as the guide will make them, with its edges and no others. Everything is
computed in double precision where the model allows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from asvi.families.context import LARGEST_FRAME
from asvi.fitting.noise_space import NoiseSpace
from asvi.fitting.problem import Problem
from asvi.fitting.wiring import factor, listeners, wiring

__all__ = ["Gaussian", "find_gaussian"]

NEWTON_STEPS = 100
SEVERAL, OTHERS = 100, 3  # latent numbers up to which further starts are tried, and how many
SOLVED = 1e-3  # expected gain of the next step, in nats
NARROW = 16.0  # precision, over the prior's, of the start at the prior's centre
MOST = 64  # points that are looked at in one call
CLIMB_STEPS, CLIMB_DRAWS, SETTLED, SETS = 60, MOST, 0.02, 2
REFINE_STEPS, REFINE_DRAWS = 15, MOST
SHORTEST = 1e-3  # step of a natural gradient, below which there is no way on
AFFORDABLE = 5e10  # multiply-adds that may be spent on averages of one start

Look = Callable[[np.ndarray], "Seen | None"]


@dataclass
class Seen:
    """What the log density is at some points."""

    value: np.ndarray  # (points,)
    slope: np.ndarray  # mean gradient
    hessian: np.ndarray  # mean Hessian
    loc: np.ndarray  # (points, numbers): each number's prior location and scale
    scale: np.ndarray


@dataclass
class Gaussian:
    """Mean and precision over the noise, and each number's prior location and scale at the mean."""

    mean: np.ndarray
    precision: np.ndarray
    loc: np.ndarray
    scale: np.ndarray
    elbo: float
    loc_sd: np.ndarray | float = 0.0  # how far the prior location moves with the other numbers


def find_gaussian(problem: Problem, arrays: list[Any], params: dict[str, Any]) -> Gaussian | None:
    """The Gaussian; None where the model is too large for it or will not do."""
    if not NoiseSpace.serves(problem, LARGEST_FRAME):
        return None
    space = NoiseSpace(problem)
    listening = listeners(space, wiring(problem, space, arrays))
    for double in (True, False):
        try:
            # Several threads on matrices this small wait for each other, and for the compiler's.
            with jax.enable_x64(True) if double else nullcontext(), threadpool_limits(1):
                look, cost = _look(space, arrays, params, double)
                return _best(look, space.size, listening, cost)
        except (TypeError, ValueError, NotImplementedError):
            continue  # a model whose types are written down will not run in another precision
    return None


def _widened(x: Any) -> Any:
    x = np.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.asarray(x.astype(np.float64))
    return jnp.asarray(x.astype(np.int64) if jnp.issubdtype(x.dtype, jnp.integer) else x)


def _look(
    space: NoiseSpace, arrays: list[Any], params: dict[str, Any], double: bool
) -> tuple[Look, float]:
    """A function of points, (points, numbers), None where something is not finite; and its cost.

    One program serves any number of points, in a loop whose length is an input.
    """
    if double:
        arrays, params = jax.tree.map(_widened, (arrays, params))

    def run(vector, arrays, params):
        seen = space.run(vector, params, arrays)
        return seen["log_density"], seen

    def slope_of(vector, arrays, params):
        slope, seen = jax.grad(run, has_aux=True)(vector, arrays, params)
        return slope, (slope, seen)

    def look(points, count, arrays, params):
        def one(i, found):
            hessian, (slope, seen) = jax.jacfwd(slope_of, has_aux=True)(points[i], arrays, params)
            value, slopes, hessians, loc, scale = found
            return (
                value.at[i].set(seen["log_density"]),
                slopes + slope / count,
                hessians + hessian / count,
                loc.at[i].set(seen["loc"]),
                scale.at[i].set(seen["scale"]),
            )

        rows, vector = jnp.zeros_like(points), jnp.zeros_like(points[0])
        begin = (rows[:, 0], vector, jnp.outer(vector, vector), rows, rows)
        return jax.lax.fori_loop(0, count, one, begin)

    compiled = space.problem.jit(("curvature", double), lambda: look)

    def at(points: np.ndarray) -> Seen | None:
        count = len(points)
        padded = np.zeros((MOST, space.size), points.dtype)
        padded[:count] = points
        value, slope, hessian, loc, scale = (
            np.asarray(a, float) for a in compiled(padded, count, arrays, params)
        )
        found = Seen(value[:count], slope, hessian, loc[:count], scale[:count])
        return found if all(np.isfinite(a).all() for a in vars(found).values()) else None

    sizes = [np.size(x) for x in jax.tree.leaves(arrays)]
    return at, float(space.size) * (space.size + max(sizes, default=0))


def _best(look: Look, size: int, listening: list[np.ndarray], cost: float) -> Gaussian | None:
    """The better end of the two ways."""
    starts = [np.zeros(size)]
    if size <= SEVERAL:
        # Posteriors of dynamics have false modes near the prior's centre.
        starts += list(np.random.default_rng(0).normal(size=(OTHERS, size)))
    modes = [mode for start in starts if (mode := _newton(look, start)) is not None]
    begins = sorted(modes, key=lambda mode: -mode.elbo)[:1]
    centre = look(np.zeros((1, size)))
    if centre is not None:
        begins.append(
            Gaussian(
                np.zeros(size), NARROW * np.eye(size), centre.loc[0], centre.scale[0], elbo=-np.inf
            )
        )
    steps = int(np.clip(AFFORDABLE / (30 * cost * CLIMB_DRAWS), 0, CLIMB_STEPS))
    ends = [end for begin in begins if (end := _climb(look, begin, listening, steps)) is not None]
    return max(ends, key=lambda end: end.elbo) if ends else (begins[0] if modes else None)


def _newton(look: Look, start: np.ndarray) -> Gaussian | None:
    """Newton's path from one start; None where the density or its curvature is not finite.

    The Hessian's eigenvalues are taken by their size, so that a step goes uphill, and damped until
    the density rises. The ELBO is Laplace's estimate of the log evidence.
    """
    x, damping, known = start, 0.0, look(start[None])
    if known is None:
        return None
    for _ in range(NEWTON_STEPS):
        curve, axes = np.linalg.eigh(-known.hessian)
        size = np.maximum(np.abs(curve), 1e-10 * np.abs(curve).max() + 1e-12)
        along = axes.T @ known.slope
        if 0.5 * float(np.sum(along**2 / size)) < SOLVED:
            break
        step = axes @ (along / (size + damping))
        ahead = look((x + step)[None])
        if ahead is not None and ahead.value[0] > known.value[0]:
            x, known = x + step, ahead
            damping = 0.0 if damping < 1e-3 else damping / 10
        else:
            damping = max(1.0, 10 * damping)
            if damping > 1e12:
                break
    curve, axes = np.linalg.eigh(-known.hessian)
    curve = np.clip(np.abs(curve), 1e-10 * np.abs(curve).max() + 1e-10, None)
    evidence = float(known.value[0]) - 0.5 * float(np.sum(np.log(curve / (2 * np.pi))))
    return Gaussian(x, (axes * curve) @ axes.T, known.loc[0], known.scale[0], evidence)


def _climb(look: Look, begin: Gaussian, listening: list[np.ndarray], steps: int) -> Gaussian | None:
    """Natural gradients, on fixed draws as far as they rise, then averaged over fresh ones.

    Where no step rises, or little, it may be the draws: other ones are tried. None where no draw
    of the start is possible.
    """
    rng = np.random.default_rng(1)
    size = len(begin.mean)
    mean, precision = begin.mean, begin.precision
    known, length, small, sets = None, 1.0, 0, 0
    for _ in range(steps):
        if known is None:
            fixed = _pairs(rng, CLIMB_DRAWS, size)
            known = _average(look, mean, factor(precision, listening), fixed)
            if known is None:
                return None
        elbo, slope, hessian, _ = known
        ahead = _moved(mean, precision, slope, hessian, length)
        found = None
        if ahead is not None:
            found = _average(look, ahead[0], factor(ahead[1], listening), fixed)
        if ahead is not None and found is not None and found[0] > elbo:
            small = small + 1 if found[0] - elbo < SETTLED else 0
            (mean, precision), known, length = ahead, found, min(1.0, 2 * length)
        else:
            length /= 4
        if small == 2 or length < SHORTEST:
            known, length, small, sets = None, 1.0, 0, sets + 1
            if sets == SETS:
                break
    if steps == CLIMB_STEPS:
        for k in range(REFINE_STEPS):
            draws = _pairs(rng, REFINE_DRAWS, size)
            found = _average(look, mean, factor(precision, listening), draws)
            if found is not None:
                ahead = _moved(mean, precision, found[1], found[2], 1 / (k + 2))
                mean, precision = ahead if ahead is not None else (mean, precision)
    # Ends are compared on draws that led to neither.
    held_out = _pairs(np.random.default_rng(2), REFINE_DRAWS, size)
    end = _average(look, mean, factor(precision, listening), held_out)
    centre = look(mean[None])
    if end is None or centre is None:
        return None
    return Gaussian(mean, precision, centre.loc[0], centre.scale[0], end[0], end[3])


def _pairs(rng: np.random.Generator, draws: int, size: int) -> np.ndarray:
    """Standard normal draws, each with its mirror image."""
    half = rng.normal(size=(draws // 2, size))
    return np.concatenate([half, -half])


def _average(
    look: Look, mean: np.ndarray, spread: np.ndarray, draws: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray] | None:
    """ELBO, gradient and negative Hessian, averaged over the Gaussian; spread of the locations."""
    found = look(mean + draws @ spread.T)
    if found is None:
        return None
    entropy = np.sum(np.log(np.diag(spread))) + 0.5 * len(mean) * np.log(2 * np.pi)
    elbo = entropy + np.mean(found.value + 0.5 * np.sum(draws**2, -1))
    return float(elbo), found.slope, -found.hessian, np.std(found.loc, axis=0)


def _moved(
    mean: np.ndarray, precision: np.ndarray, slope: np.ndarray, hessian: np.ndarray, length: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """One step of the natural gradient; None where numbers run out of digits."""
    change = hessian - precision
    new = precision + length * change
    new += 0.5 * length**2 * change @ np.linalg.solve(precision, change)
    new = 0.5 * (new + new.T)
    try:
        np.linalg.cholesky(new)
    except np.linalg.LinAlgError:
        return None
    return mean + length * np.linalg.solve(new, slope), new
