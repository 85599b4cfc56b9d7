"""Takes a constraint; gives it in words, what mends a value outside, and whether one is inside."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.util import not_jax_tracer

from asvi.program.settings import CheckSettings
from asvi.program.unwrapping import bare_constraint

__all__ = [
    "OPEN_AT_ZERO",
    "describe",
    "is_inside",
    "is_judged",
    "is_known",
    "repair",
    "shown",
    "words",
]

OPEN_AT_ZERO = (type(constraints.positive), type(constraints.softplus_positive))
_SIMPLEX = type(constraints.simplex)


def is_judged(support: Any) -> bool:
    """Whether data can be judged by this support without tripping over rounding."""
    if support is None or constraints.is_dependent(support):
        return False
    if isinstance(support, type(constraints.circular)):
        return False  # angles come back after a full turn
    return support.event_dim == 0 or isinstance(support, _SIMPLEX)


def is_inside(
    support: constraints.Constraint, value: Any, settings: CheckSettings = CheckSettings()
) -> Any:
    """Whether data are in this support, but for rounding."""
    if isinstance(support, _SIMPLEX):
        near_one = jnp.abs(jnp.sum(value, axis=-1) - 1) < settings.max_simplex_error
        return near_one & jnp.all(value >= 0, axis=-1)
    return support(value)


def words(constraint: Any) -> str:
    """The class of a constraint in words: ``"unit interval"``."""
    name = type(bare_constraint(constraint)).__name__.strip("_")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def describe(constraint: Any) -> str:
    """A domain as it stands after "is not": ``"positive"``, ``"between 0 and 1"``."""
    constraint = bare_constraint(constraint)
    low, high = (shown(getattr(constraint, f"{side}_bound", None)) for side in ("lower", "upper"))
    plain = {
        "softplus positive": "positive",
        "nonnegative": "positive or 0",
        "greater than eq": "positive or 0" if low in ("0", "0.0") else f"at least {low}",
        "unit interval": "between 0 and 1",
        "integer nonnegative": "a whole number from 0 up",
        "integer positive": "a whole number from 1 up",
        "integer greater than": f"a whole number from {low} up",
        "integer interval": f"a whole number from {low} to {high}",
        "boolean": "0 or 1",
        "greater than": f"above {low}",
        "less than": f"below {high}",
        "less than eq": f"at most {high}",
        "interval": f"between {low} and {high}",
        "open interval": f"between {low} and {high}",
        "simplex": "non-negative with sum 1",
        "positive definite": "a symmetric positive-definite matrix",
        "lower cholesky": "a lower-triangular matrix with positive diagonal",
    }
    return plain.get(words(constraint), words(constraint))


def shown(bound: Any) -> str:
    """A bound in words; one that is not known before the model runs is "its bound"."""
    if bound is None or not is_known(bound):
        return "its bound"
    array = np.asarray(bound)
    return str(array.item()) if array.size == 1 else f"{array.min()}..{array.max()}"


def repair(name: str, constraint: Any) -> str:
    if describe(constraint) == "positive or 0":
        return f"jnp.exp(log_{name})"
    return {
        "positive": f"jnp.exp(log_{name})",
        "softplus positive": f"jnp.exp(log_{name})",
        "unit interval": "jax.nn.sigmoid(logit)",
        "simplex": "jax.nn.softmax(logits)",
        "positive definite": f"a @ a.T + 1e-3 * jnp.eye(len(a))   # a: any matrix, for {name}",
        "lower cholesky": "jnp.linalg.cholesky(covariance)",
    }.get(words(constraint), f"{name}   # {describe(constraint)}")


def is_known(value: Any) -> bool:
    return not_jax_tracer(value) and not isinstance(value, jax.ShapeDtypeStruct)
