"""Takes a problem; gives a mode of its density, in its noise, and the curvature there.

A Newton path from the prior's centre: at each step the Hessian's eigenvalues are taken by their
size, so that the step goes uphill, and damped until the density rises. It finds location, scale
and correlation of posteriors on which stochastic gradients take very long: raw predictors,
collinear columns, coefficients whose scales span 10⁴; and the path of a chain. (Where scales of a
hierarchy are unknown, the joint mode is no guide; the other starts then win the race.) Everything
is computed in double precision where the model allows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.families.context import LARGEST_FRAME
from asvi.fitting.noise_space import NoiseSpace
from asvi.fitting.problem import Problem

__all__ = ["Mode", "find_mode"]

STEPS = 100
SEVERAL, OTHERS = 100, 3  # latent numbers up to which further starts are tried, and how many
SOLVED = 1e-3  # expected gain of the next step, in nats


@dataclass
class Mode:
    """A mode: numbers, the precision there, and each number's prior location and scale at it."""

    numbers: np.ndarray
    precision: np.ndarray
    loc: np.ndarray
    scale: np.ndarray
    log_evidence: float
    """Laplace's estimate, by which modes are compared."""


def find_mode(problem: Problem, arrays: list[Any], params: dict[str, Any]) -> Mode | None:
    """A mode in the noise; None where the model is too large for it or will not do."""
    if not NoiseSpace.serves(problem, LARGEST_FRAME):
        return None
    space = NoiseSpace(problem)
    for double in (True, False):
        try:
            with jax.enable_x64(True) if double else nullcontext():
                return _climb(space, arrays, params, double)
        except (TypeError, ValueError, NotImplementedError):
            continue  # a model whose types are written down will not run in another precision
    return None


def _widened(x: Any) -> Any:
    x = np.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.asarray(x, jnp.float64)
    return jnp.asarray(x, jnp.int64) if jnp.issubdtype(x.dtype, jnp.integer) else jnp.asarray(x)


def _climb(space: NoiseSpace, arrays: list[Any], params: dict[str, Any], double: bool):
    """The best of several Newton paths."""
    if double:
        arrays, params = jax.tree.map(_widened, (arrays, params))

    def run(vector, arrays, params):
        seen = space.run(vector, params, arrays)
        return seen["log_density"], seen

    def slope_of(vector, arrays, params):
        slope, seen = jax.grad(run, has_aux=True)(vector, arrays, params)
        return slope, (slope, seen)

    def look(vector, arrays, params):
        hessian, (slope, seen) = jax.jacfwd(slope_of, has_aux=True)(vector, arrays, params)
        return seen["log_density"], slope, hessian, seen["loc"], seen["scale"]

    compiled = space.problem.jit(("curvature", double), lambda: look)

    def at(x: np.ndarray) -> list[np.ndarray] | None:
        found = [np.asarray(a, float) for a in compiled(jnp.asarray(x), arrays, params)]
        return found if all(np.isfinite(a).all() for a in found) else None

    starts = [np.zeros(space.size)]
    if space.size <= SEVERAL:
        # Posteriors of dynamics have false modes near the prior's centre.
        starts += list(np.random.default_rng(0).normal(size=(OTHERS, space.size)))
    found = [mode for start in starts if (mode := _path(at, start)) is not None]
    return max(found, key=lambda mode: mode.log_evidence) if found else None


def _path(at: Callable[[np.ndarray], list[np.ndarray] | None], start: np.ndarray) -> Mode | None:
    """Newton's path from one start; None where the density or its curvature is not finite."""
    x, damping, known = start, 0.0, at(start)
    if known is None:
        return None
    for _ in range(STEPS):
        value, slope, hessian = known[:3]
        curve, axes = np.linalg.eigh(-hessian)
        size = np.maximum(np.abs(curve), 1e-10 * np.abs(curve).max() + 1e-12)
        along = axes.T @ slope
        if 0.5 * float(np.sum(along**2 / size)) < SOLVED:
            break
        step = axes @ (along / (size + damping))
        ahead = at(x + step)
        if ahead is not None and ahead[0] > value:
            x, known = x + step, ahead
            damping = 0.0 if damping < 1e-3 else damping / 10
        else:
            damping = max(1.0, 10 * damping)
            if damping > 1e12:
                break
    value, _, hessian, loc, scale = known
    curve, axes = np.linalg.eigh(-hessian)
    curve = np.clip(np.abs(curve), 1e-10 * np.abs(curve).max() + 1e-10, None)
    evidence = float(value) - 0.5 * float(np.sum(np.log(curve / (2 * np.pi))))
    return Mode(x, (axes * curve) @ axes.T, loc, scale, evidence)
