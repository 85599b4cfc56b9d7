"""Takes arrays; gives gamma functions and their like, with JAX's numbers where SciPy has others.

At poles, at 0, at infinities and beyond the domain there is no number that all libraries give, and
a model may well come there: its gradient is taken of all that it says, also of what a ``where``
leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.special as special

__all__ = ["betainc", "digamma", "igamma", "igammac", "lgamma", "polygamma", "trigamma"]

#: Where SciPy's zeta(s, q) is JAX's: JAX's powers of larger q are 0, and JAX's series for q < 0 is
#: another function (of which no power is a loop as long as q).
_USUAL = 1e15  #: constant of the formula


def digamma(x: Any) -> Any:
    return special.psi(x) + 0 / x  # NaN at 0


def lgamma(dtype: Any) -> Callable:
    least = np.finfo(dtype).min  # has a pole, and so has -inf
    return lambda x: special.gammaln(np.maximum(x, least))


def trigamma(x: Any) -> Any:
    return _zeta(2.0, x)


def polygamma(eqn: Any) -> Callable:
    order = getattr(eqn.invars[0], "val", None)
    if order is None:
        return _polygamma
    return (lambda _, x: trigamma(x)) if order == 1 else partial(_polygamma_of, np.asarray(order))


def _polygamma_of(order: Any, _: Any, x: Any) -> Any:
    return _polygamma(order.astype(x.dtype), x)


def _polygamma(order: Any, x: Any) -> Any:
    sign = 2 * np.fmod(order, 2) - 1
    found = sign * np.exp(special.gammaln(order + 1)) * _zeta(order + 1, x)
    found = np.where(order == 0, digamma(x), found)
    return np.where((order < 0) | (order != np.floor(order)), np.asarray(np.nan, x.dtype), found)


def _zeta(s: Any, q: Any) -> Any:
    if np.all((q > 0) & (q < _USUAL)):
        return special.zeta(s, q)
    return _zeta_by_series(np.asarray(s, q.dtype), q)


#: constant of the formula: inverses of the Euler–Maclaurin coefficients.
_COEFFICIENTS = (
    -7.1661652561756670113e18, 1.8152105401943546773e17, -4.5979787224074726105e15,
    1.1646782814350067249e14, -2.950130727918164224e12, 7.47242496e10, -1.8924375803183791606e9,
    47900160.0, -1209600.0, 30240.0, -720.0, 12.0,
)  # fmt: skip


def _zeta_by_series(s: Any, q: Any) -> Any:
    """As JAX has it: ten powers, then the Euler–Maclaurin formula."""
    at, total = q, np.power(q, -s)
    for _ in range(9):
        at = at + 1
        total = total + np.power(at, -s)
    at = at + 1
    power, tail = np.power(at, -s), np.zeros_like(q)
    for k, c in enumerate(_COEFFICIENTS[:-1]):
        tail = (s + (22 - 2 * k)) * (s + (21 - 2 * k)) * (1 / (at * at) * (tail + 1 / c))
    tail = power * (0.5 + s / at * (1 / _COEFFICIENTS[-1] + tail))
    found = total + power * at / (s - 1) + tail
    whole = s == np.floor(s)
    pole = np.where(whole & (np.fmod(s, 2) == 0), np.inf, np.nan)
    found = np.where((s < 1) | ((q <= 0) & ~whole), np.nan, found)
    found = np.where((q <= 0) & (q == np.floor(q)), pole, found)
    return np.where(s == 1, np.inf, found).astype(q.dtype)


def igamma(a: Any, x: Any) -> Any:
    return _at_ends(special.gammainc(a, x), a, x, 1)


def igammac(a: Any, x: Any) -> Any:
    found = _at_ends(special.gammaincc(a, x), a, x, 0)
    return np.where((a == 0) & (x > 0), np.asarray(0, found.dtype), found)


def _at_ends(found: Any, a: Any, x: Any, at_infinity: int) -> Any:
    """Where a is 0 or infinite, JAX has a number for some x only."""
    unknown = ((a == 0) & (x < 1)) | ((a == np.inf) & (x >= 1) & (x < np.inf))
    found = np.where(unknown, np.nan, found)
    known = (a == np.inf) & (x == np.inf)
    return np.where(known, at_infinity, found).astype(np.result_type(a, x), copy=False)


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Where a or b is 0 or infinite, all is at one end."""
    low, high = (b == 0) | (a == np.inf), (a == 0) | (b == np.inf)
    found = special.betainc(a, b, x)
    found = np.where((low & (x != 1)) | (high & (x == 0)), 0, found)
    found = np.where((high & (x != 0)) | (low & (x == 1)), 1, found)
    outside = ~((a >= 0) & (b >= 0) & (x >= 0) & (x <= 1)) | (low & high)
    return np.where(outside, np.nan, found).astype(x.dtype)
