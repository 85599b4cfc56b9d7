"""Takes normal noise; gives quantiles of priors there, and the way back, and their slopes.

As :mod:`asvi.distributions.prior_quantiles` has them, by the functions of SciPy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy.special import erf, erfc, erfinv, log_ndtr, ndtr, ndtri

__all__ = ["noise_of", "quantile_at", "slope_of_noise", "slope_of_quantile"]

#: constant of the formula
_ROOT_TWO, _HALF_PI, _LOG_ROOT_TWO_PI = float(np.sqrt(2)), float(np.pi / 2), 0.9189385332046727

#: From the probability below, and from that above with the noise: at most 1/2.
_QUANTILES: dict[str, tuple[Callable, Callable]] = {
    "half_normal": (lambda p: _ROOT_TWO * erfinv(p), lambda p, z: -ndtri(p / 2)),
    "half_cauchy": (lambda p: np.tan(_HALF_PI * p), lambda p, z: 1 / np.tan(_HALF_PI * p)),
    "exponential": (lambda p: -np.log1p(-p), lambda p, z: -log_ndtr(-np.maximum(z, 0))),
    "uniform": (lambda p: p, lambda p, z: 1 - np.maximum(p, np.finfo(p.dtype).eps)),
}

#: Probabilities below and above a quantile.
_PROBABILITIES: dict[str, tuple[Callable, Callable]] = {
    "half_normal": (lambda u: erf(u / _ROOT_TWO), lambda u: erfc(u / _ROOT_TWO)),
    "half_cauchy": (
        lambda u: np.arctan(u) / _HALF_PI,
        lambda u: np.arctan2(u.dtype.type(1), u) / _HALF_PI,
    ),
    "exponential": (lambda u: -np.expm1(-u), lambda u: np.exp(-u)),
    "uniform": (lambda u: u, lambda u: 1 - u),
}

_LOG_DENSITIES: dict[str, Callable] = {
    "half_normal": lambda u: -0.22579135264472738 - np.square(u) / 2,
    "half_cauchy": lambda u: -0.4515827052894548 - np.log1p(np.square(u)),
    "exponential": lambda u: -u,
    "uniform": lambda u: 0.0,
}


def quantile_at(eqn: Any) -> Callable:
    return _quantile(eqn.params["kind"])


@cache
def _quantile(kind: str) -> Callable:
    from_lower, from_upper = _QUANTILES[kind]

    def apply(z: Any) -> Any:
        tail = ndtr(-np.abs(z))
        return np.where(z <= 0, from_lower(tail), from_upper(tail, z))

    return apply


def noise_of(eqn: Any) -> Callable:
    return _noise(eqn.params["kind"])


@cache
def _noise(kind: str) -> Callable:
    below, above = _PROBABILITIES[kind]

    def apply(u: Any) -> Any:
        lower = below(u)
        least = np.where(lower <= 0.5, lower, above(u))
        score = ndtri(np.minimum(np.maximum(least, np.finfo(u.dtype).tiny), u.dtype.type(0.5)))
        return np.where(lower <= 0.5, score, -score)

    return apply


def slope_of_quantile(eqn: Any, do: Callable) -> Callable:
    log_density = _LOG_DENSITIES[eqn.params["kind"]]
    return lambda xs, ds, u: (
        ds[0] * np.exp(-np.square(xs[0]) / 2 - _LOG_ROOT_TWO_PI - log_density(u))
    )


def slope_of_noise(eqn: Any, do: Callable) -> Callable:
    log_density = _LOG_DENSITIES[eqn.params["kind"]]
    return lambda xs, ds, z: (
        ds[0] * np.exp(np.square(z) / 2 + _LOG_ROOT_TWO_PI + log_density(xs[0]))
    )
