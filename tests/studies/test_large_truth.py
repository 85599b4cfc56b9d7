"""The exact evidence of the benchmarks of many groups and of long chains."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import halfnorm, multivariate_normal

from benchmarks import long_chains
from benchmarks.large import EACH, PRIOR, data, given_scales, truth


def test_groups_and_their_mean_are_integrated_out():
    groups, tau, sigma = 12, 0.7, 1.1
    y = data(groups).astype(float)
    within = np.kron(np.eye(groups), np.ones((EACH, EACH)))
    covariance = PRIOR["mu"] ** 2 + tau**2 * within + sigma**2 * np.eye(y.size)
    expected = multivariate_normal(np.zeros(y.size), covariance).logpdf(y.ravel())
    found, centre, precision = given_scales(y, tau, sigma)
    assert abs(found - expected) < 1e-8
    inverse = np.linalg.inv(covariance - PRIOR["mu"] ** 2)
    assert abs(precision - (inverse.sum() + PRIOR["mu"] ** -2)) < 1e-8
    assert abs(centre - inverse.sum(0) @ y.ravel() / precision) < 1e-8


def test_few_groups_are_refused():
    with pytest.raises(ValueError, match="too few"):
        truth(data(20))


def test_the_walk_is_integrated_out():
    y = long_chains.data(9).astype(float)
    time, step, noise = np.arange(1.0, 10.0), np.array([0.4, 0.1]), np.array([0.7, 1.2])
    for s, n, found in zip(step, noise, long_chains.log_joint(y, step, noise), strict=True):
        covariance = s**2 * np.minimum.outer(time, time) + n**2 * np.eye(9)
        prior = halfnorm.logpdf(s) + halfnorm.logpdf(n)
        expected = multivariate_normal(np.zeros(9), covariance).logpdf(y) + prior
        assert abs(found - expected) < 1e-8
