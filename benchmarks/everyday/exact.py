"""Takes the data of a model that is conjugate given few scales; gives its log evidence exactly.

What is left after the conjugate part is an integral over one or two scales, on a grid of their
logarithms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import betaln, gammaln
from scipy.stats import norm

from benchmarks.exact.quadrature import integrate

LogDensity = Callable[[np.ndarray], np.ndarray]


def over_scales(
    log_likelihood: Callable[..., np.ndarray],
    log_priors: list[LogDensity],
    ranges: list[tuple[float, float]],
    points: int = 200,
) -> float:
    """log of the integral of likelihood times prior over positive numbers in ``ranges``."""
    axes = [np.linspace(np.log(low), np.log(high), points) for low, high in ranges]

    def log_prior(*logs: np.ndarray) -> np.ndarray:
        # The summand after the prior's density is the Jacobian of the logarithm.
        return sum(p(np.exp(x)) + x for p, x in zip(log_priors, logs))

    def conditional(*logs: np.ndarray) -> tuple[np.ndarray, dict, dict]:
        return log_likelihood(*map(np.exp, logs)), {}, {}

    found = integrate(axes, log_prior, conditional)
    if found["mass_at_edge"] > 1e-6 or found["log_evidence_error"] > 1e-3:
        raise ValueError(f"the grid is too coarse or too small: {found}")
    return found["log_evidence"]


def linear_regression(
    design: np.ndarray, y: np.ndarray, prior_sd: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """log p(y | noise sd) for each noise sd; coefficients are independent Normal(0, prior_sd)."""
    # Singular values instead of a covariance matrix: raw columns would cost all digits.
    left, singular, _ = np.linalg.svd(design * prior_sd, full_matrices=False)
    along = left.T @ y
    rest = np.sum((y - left @ along) ** 2)
    variance = noise[..., None] ** 2 + singular**2
    inside = norm.logpdf(along, 0.0, np.sqrt(variance)).sum(-1)
    outside = len(y) - len(singular)
    return inside - 0.5 * (outside * np.log(2 * np.pi * noise**2) + rest / noise**2)


def gaussian(y: np.ndarray, mean: float, covariance: np.ndarray) -> np.ndarray:
    """log N(y; mean, covariance) for a stack of covariance matrices."""
    factor = np.linalg.cholesky(covariance)
    residual = np.broadcast_to((y - mean)[:, None], (*factor.shape[:-1], 1))
    z = np.linalg.solve(factor, residual)[..., 0]
    log_diagonal = np.log(np.diagonal(factor, axis1=-2, axis2=-1))
    return norm.logpdf(z).sum(-1) - log_diagonal.sum(-1)


def beta_binomial(
    hits: np.ndarray, at_bats: np.ndarray, a: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """log p(hits | a, b), success probabilities integrated out."""
    choose = gammaln(at_bats + 1) - gammaln(hits + 1) - gammaln(at_bats - hits + 1)
    a, b = a[..., None], b[..., None]
    return (choose + betaln(a + hits, b + at_bats - hits) - betaln(a, b)).sum(-1)


def gamma_poisson(
    counts: np.ndarray, exposure: np.ndarray, a: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """log p(counts | a, b), rates integrated out."""
    a, b = a[..., None], b[..., None]
    return (
        gammaln(a + counts)
        - gammaln(a)
        - gammaln(counts + 1)
        + a * np.log(b / (b + exposure))
        + counts * np.log(exposure / (b + exposure))
    ).sum(-1)
