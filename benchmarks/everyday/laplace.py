"""Takes a log density; gives Gaussians near it: where NUTS starts, and in which coordinates.

Raw predictors make posteriors whose scales differ by millions and whose correlations are nearly 1;
no mass matrix is learned from there. A Newton path gives the scales beforehand. In a hierarchy the
mode is useless (it may be infinitely high), so the Gaussian is the one on the path that has the
best ELBO.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

LogDensity = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True)
class Gaussian:
    """x = mean + factor @ z with standard normal z."""

    mean: np.ndarray
    factor: np.ndarray
    elbo: float

    def standardised(self, log_density: LogDensity) -> LogDensity:
        """The log density of z where ``log_density`` is that of x."""
        log_volume = float(np.linalg.slogdet(self.factor)[1])
        return lambda z: log_density(self.mean + self.factor @ z) + log_volume


def curvature(hessian: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scales, eigenvectors and eigenvalues (made positive) of a scaled Hessian of -log density."""
    # Scaled to a unit diagonal first, or the digits of small eigenvalues are lost.
    scales = 1.0 / np.sqrt(np.maximum(np.abs(np.diagonal(hessian)), 1e-12))
    eigenvalues, vectors = np.linalg.eigh(scales[:, None] * hessian * scales)
    return scales, vectors, np.maximum(np.abs(eigenvalues), 1e-10)


class Compiled:
    """A log density, its derivatives and a vectorised form, compiled once for all paths."""

    def __init__(self, log_density: LogDensity):
        self.value = jax.jit(log_density)
        self.gradient = jax.jit(jax.grad(log_density))
        self.hessian = jax.jit(jax.hessian(log_density))
        self.values = jax.jit(jax.vmap(log_density))


def newton_path(
    compiled: Compiled, start: np.ndarray, seed: int = 0, iterations: int = 200
) -> Gaussian:
    """The best Gaussian along a damped Newton path from ``start``."""
    noise = np.random.default_rng(seed).normal(size=(64, start.size))
    x, height, damping = start, float(compiled.value(start)), 1.0
    best = Gaussian(x, np.eye(x.size), -np.inf)
    for _ in range(iterations):
        gradient, hessian = np.asarray(compiled.gradient(x)), np.asarray(compiled.hessian(x))
        if not (np.all(np.isfinite(gradient)) and np.all(np.isfinite(hessian))):
            break
        scales, vectors, eigenvalues = curvature(-hessian)
        factor = scales[:, None] * vectors / np.sqrt(eigenvalues)
        found = np.asarray(compiled.values(x + noise @ factor.T))
        elbo = found.mean() + np.linalg.slogdet(factor)[1]
        if np.isfinite(elbo) and elbo > best.elbo:
            best = Gaussian(x, factor, float(elbo))
        along = vectors.T @ (scales * gradient)
        while damping < 1e12:
            proposal = x + scales * (vectors @ (along / (eigenvalues + damping)))
            proposed = float(compiled.value(proposal))
            if proposed > height:
                break
            damping *= 4.0
        else:
            break
        gain, x, height, damping = proposed - height, proposal, proposed, damping / 8.0
        if gain < 1e-9 * (1.0 + abs(height)):
            break
    return best


def starts(
    log_density: LogDensity, candidates: np.ndarray, chains: int, seed: int = 0
) -> tuple[Gaussian, np.ndarray]:
    """The Gaussian to work in, and one start of each chain in its standardised coordinates.

    A path leads from every candidate. Each chain starts at the end of another one, so that chains
    which disagree would show; paths that ended 20 nats below the best have found nothing of the
    posterior and count no more.
    """
    rng, compiled = np.random.default_rng(seed), Compiled(log_density)
    finite = [x for x in candidates if np.all(np.isfinite(compiled.gradient(x)))]
    paths = sorted((newton_path(compiled, x) for x in finite), key=lambda path: -path.elbo)
    best = paths[0]
    near = [path for path in paths if path.elbo > best.elbo - 20.0]
    points = []
    for chain in range(chains):
        path, spread = near[chain % len(near)], 1.5  # wider than the posterior, as R-hat wants it
        while True:
            x = path.mean + path.factor @ (spread * rng.normal(size=path.mean.size))
            if np.isfinite(compiled.value(x)):
                break
            spread *= 0.8
        points.append(np.linalg.solve(best.factor, x - best.mean))
    return best, np.stack(points)
