"""Takes a task that is Gaussian given its scales; gives its evidence and moments by quadrature.

Given the scales, every latent is Gaussian and integrates in closed form; what is left is an
integral over one or two logarithms of scales, by the trapezoidal rule, which converges faster than
any power of the spacing for smooth integrands that vanish at both ends. The error stated is the
difference to the same rule at twice the spacing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Moments = dict[str, np.ndarray]
Conditional = Callable[..., tuple[np.ndarray, Moments, Moments]]


def log_normal_density(x: np.ndarray, mean: Any, variance: Any) -> np.ndarray:
    return -0.5 * (np.log(2 * np.pi * variance) + (x - mean) ** 2 / variance)


def integrate(
    axes: list[np.ndarray], log_prior: Callable, conditional: Conditional
) -> dict[str, Any]:
    """Evidence and moments from a grid of scales.

    ``conditional(*grid)`` gives log p(y | grid), and the means and variances of all sites
    given the grid's values.
    """
    grid = [g.ravel() for g in np.meshgrid(*axes, indexing="ij")]
    log_likelihood, means, variances = conditional(*grid)
    log_joint = log_prior(*grid) + log_likelihood
    shape = tuple(len(a) for a in axes)
    spacing = np.prod([a[1] - a[0] for a in axes])

    def total(values: np.ndarray, spacing: float) -> float:
        top = values.max()
        return float(top + np.log(np.sum(np.exp(values - top)) * spacing))

    evidence = total(log_joint, spacing)
    every_other = log_joint.reshape(shape)[tuple(slice(None, None, 2) for _ in axes)]
    coarse = total(every_other.ravel(), spacing * 2 ** len(axes))
    weight = np.exp(log_joint - log_joint.max())
    weight /= weight.sum()
    mean = {k: np.tensordot(weight, v, 1) for k, v in means.items()}
    variance = {k: np.tensordot(weight, variances[k] + (means[k] - mean[k]) ** 2, 1) for k in means}
    edges = [np.isin(np.arange(n), (0, n - 1)) for n in shape]
    at_edge = np.zeros(shape, bool)
    for axis, edge in enumerate(edges):
        at_edge |= np.expand_dims(edge, [i for i in range(len(shape)) if i != axis])
    return {
        "log_evidence": evidence,
        "log_evidence_error": abs(evidence - coarse),
        "mass_at_edge": float(weight[at_edge.ravel()].sum()),
        "mean": mean,
        "sd": {k: np.sqrt(v) for k, v in variance.items()},
    }


# ------------------------------------------------------------------------------------- Brownian


def smooth_walk(
    y: np.ndarray, observed: np.ndarray, innovation: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kalman filter and smoother of a random walk from 0, for many pairs of variances at once."""
    m, v = np.zeros_like(innovation), np.zeros_like(innovation)
    log_evidence = np.zeros_like(innovation)
    filtered = []
    for t in range(len(y)):
        v = v + innovation
        if observed[t]:
            s = v + noise
            log_evidence += log_normal_density(y[t], m, s)
            gain = v / s
            # noise * gain instead of v * (1 - gain): no cancellation where noise is tiny.
            m, v = m + gain * (y[t] - m), noise * gain
        filtered.append((m, v))
    means, variances = [m], [v]
    for m_t, v_t in filtered[-2::-1]:
        ahead = v_t + innovation
        gain = v_t / ahead
        m, v = m_t + gain * (m - m_t), innovation * gain + gain**2 * v
        means.append(m)
        variances.append(v)
    return log_evidence, np.stack(means[::-1], -1), np.stack(variances[::-1], -1)


def brownian(y: np.ndarray, observed: np.ndarray) -> dict[str, Any]:
    log_evidence, mean, variance = smooth_walk(
        y.astype(float), observed, np.array([0.1**2]), np.array([0.15**2])
    )
    return {
        "log_evidence": float(log_evidence[0]),
        "log_evidence_error": 0.0,
        "method": "closed form",
        "mean": {"x": mean[0]},
        "sd": {"x": np.sqrt(variance[0])},
    }


def brownian_global(
    y: np.ndarray, observed: np.ndarray, spacing: float = 0.05, reach: float = 14.0
) -> dict[str, Any]:
    axis = np.arange(-reach, reach, spacing)

    def log_prior(a, b):
        return log_normal_density(a, 0.0, 4.0) + log_normal_density(b, 0.0, 4.0)

    def conditional(a, b):
        log_likelihood, mean, variance = smooth_walk(
            y.astype(float), observed, np.exp(2 * a), np.exp(2 * b)
        )
        means = {"x": mean, "innovation_scale": np.exp(a), "observation_scale": np.exp(b)}
        zero = np.zeros_like(a)
        return (
            log_likelihood,
            means,
            {"x": variance, "innovation_scale": zero, "observation_scale": zero},
        )

    return {**integrate([axis, axis], log_prior, conditional), "method": "quadrature"}


# --------------------------------------------------------------------------------- hierarchical


def eight_schools(sigma: np.ndarray, y: np.ndarray, spacing: float = 0.01) -> dict[str, Any]:
    """log τ on a grid; μ and then θ integrate in closed form."""
    sigma, y = sigma.astype(float), y.astype(float)

    def conditional(log_tau):
        tau2 = np.exp(2 * log_tau)[:, None]
        precision = 1 / (tau2 + sigma**2)
        v_mu = 1 / (1 / 100 + precision.sum(1))
        m_mu = v_mu * (precision * y).sum(1)
        log_likelihood = log_normal_density(y, 0.0, tau2 + sigma**2).sum(1)
        log_likelihood += 0.5 * np.log(v_mu / 100) + 0.5 * m_mu**2 / v_mu
        shrink = tau2 / (tau2 + sigma**2)
        m_theta = shrink * y + (1 - shrink) * m_mu[:, None]
        v_theta = shrink * sigma**2 + (1 - shrink) ** 2 * v_mu[:, None]
        return (
            log_likelihood,
            {"mu": m_mu, "log_tau": log_tau, "theta": m_theta},
            {"mu": v_mu, "log_tau": np.zeros_like(log_tau), "theta": v_theta},
        )

    found = integrate(
        [np.arange(-6.0, 14.0, spacing)],
        lambda log_tau: log_normal_density(log_tau, 5.0, 1.0),
        conditional,
    )
    return {**found, "method": "quadrature"}


def radon(
    features: np.ndarray, county: np.ndarray, y: np.ndarray, points: tuple[int, int] = (241, 81)
) -> dict[str, Any]:
    """log τ and log σ on a grid; μ, θ and w are jointly Gaussian given them."""
    features, y = features.astype(float), y.astype(float)
    counties, k = 85, features.shape[1]
    # Columns: one indicator per county (θ), then the features (w); μ is the last unknown.
    design = np.zeros((len(y), counties + k + 1))
    design[np.arange(len(y)), county] = 1.0
    design[:, counties : counties + k] = features
    gram, moment = design.T @ design, design.T @ y

    def prior_precision(tau: float) -> np.ndarray:
        p = np.zeros((counties + k + 1,) * 2)
        p[range(counties), range(counties)] = tau**-2
        p[:counties, -1] = p[-1, :counties] = -(tau**-2)
        p[-1, -1] = 1 + counties * tau**-2
        p[range(counties, counties + k), range(counties, counties + k)] = 1.0
        return p

    def one(log_tau: float, log_sigma: float):
        tau, sigma = np.exp(log_tau), np.exp(log_sigma)
        precision = prior_precision(tau) + gram / sigma**2
        factor = np.linalg.cholesky(precision)
        inverse = np.linalg.inv(precision)
        mean = inverse @ moment / sigma**2
        log_likelihood = (
            -0.5 * len(y) * np.log(2 * np.pi * sigma**2)
            - 0.5 * (y @ y) / sigma**2
            + 0.5 * mean @ moment / sigma**2
            - counties * log_tau  # half the log determinant of the prior precision
            - np.log(np.diag(factor)).sum()
        )
        return log_likelihood, mean, np.diag(inverse)

    def conditional(log_tau, log_sigma):
        results = [one(a, b) for a, b in zip(log_tau, log_sigma, strict=True)]
        log_likelihood, mean, variance = (np.array(x) for x in zip(*results, strict=True))

        def split(x):
            theta, w, mu = np.split(x, [counties, counties + k], -1)
            return {"theta": theta, "w": w, "mu": mu[:, 0]}

        zero = np.zeros_like(log_tau)
        return (
            log_likelihood,
            {**split(mean), "tau": np.exp(log_tau), "sigma": np.exp(log_sigma)},
            {**split(variance), "tau": zero, "sigma": zero},
        )

    def log_prior(log_tau, log_sigma):
        tau, sigma = np.exp(log_tau), np.exp(log_sigma)
        half = np.log(2.0) + log_normal_density(tau, 0.0, 1.0) + log_tau
        return half + np.log(2.0) + log_normal_density(sigma, 0.0, 1.0) + log_sigma

    axes = [np.linspace(-12.0, 1.0, points[0]), np.linspace(-0.55, 0.0, points[1])]
    return {**integrate(axes, log_prior, conditional), "method": "quadrature"}
