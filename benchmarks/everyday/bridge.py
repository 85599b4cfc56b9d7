"""Takes an unnormalised log density and draws from it; gives the logarithm of its integral.

Bridge sampling (Meng and Wong 1996): the integral is that of a density known to be normalised,
times a ratio that draws from both estimate. The known density is a normal one. It is fitted to one
half of the draws, and meets the posterior on the other half after a warp (Meng and Schilling
2002): reflected at its centre and averaged, the posterior has no skewness left.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpyro.diagnostics import effective_sample_size
from scipy.special import logsumexp
from scipy.stats import norm

#: Log densities of many points at once: (n, d) gives (n,).
LogDensities = Callable[[np.ndarray], np.ndarray]


def log_ratio(of_draws: np.ndarray, of_proposals: np.ndarray, effective: float) -> float:
    """Log of the integral from log(p / q) at draws from p and at draws from the normalised q.

    :param effective: what the draws from p are worth in independent ones.
    """
    total = effective + len(of_proposals)
    log_p, log_q = np.log(effective / total), np.log(len(of_proposals) / total)
    found = float(np.median(of_draws))
    for _ in range(1000):
        above = logsumexp(of_proposals - np.logaddexp(log_p + of_proposals, log_q + found))
        below = logsumexp(-np.logaddexp(log_p + of_draws, log_q + found))
        new = above - np.log(len(of_proposals)) - (below - np.log(len(of_draws)))
        done, found = abs(new - found) < 1e-8, new
        if done:
            break
    return float(found)


def one_estimate(
    log_densities: LogDensities,
    fitted_on: np.ndarray,
    draws: np.ndarray,
    rng: np.random.Generator,
) -> float:
    """Log of the integral from draws (n, d) of one chain and as many of the normal law."""
    mean = fitted_on.mean(0)
    factor = np.linalg.cholesky(np.cov(fitted_on.T, ddof=1).reshape(mean.size, mean.size))
    log_volume = np.log(np.diagonal(factor)).sum()

    def log_p_over_q(z: np.ndarray) -> np.ndarray:
        shift = z @ factor.T
        sides = [log_densities(mean + shift), log_densities(mean - shift)]
        # What overflows lies in the far tails, where the density is 0.
        sides = [np.where(np.isfinite(side), side, -np.inf) for side in sides]
        both = np.logaddexp(*sides) - np.log(2.0)
        return both + log_volume - norm.logpdf(z).sum(-1)

    of_draws = log_p_over_q(np.linalg.solve(factor, (draws - mean).T).T)
    of_proposals = log_p_over_q(rng.normal(size=draws.shape))
    effective = float(effective_sample_size(of_draws[None]))
    return log_ratio(of_draws, of_proposals, min(effective, len(draws)))


def log_evidence(
    log_densities: LogDensities, draws: np.ndarray, seed: int = 0
) -> tuple[float, float]:
    """Log of the integral and its standard error, from draws (chain, draw, dimension).

    Each half of each chain gives an estimate with the normal law of all other halves; the error
    is that of their mean.
    """
    rng = np.random.default_rng(seed)
    halves = np.split(draws[:, : draws.shape[1] // 2 * 2], 2, axis=1)
    found = []
    for tested, fitted in (halves, halves[::-1]):
        fitted = fitted.reshape(-1, draws.shape[-1])
        found += [one_estimate(log_densities, fitted, chain, rng) for chain in tested]
    return float(np.mean(found)), float(np.std(found, ddof=1) / np.sqrt(len(found)))
