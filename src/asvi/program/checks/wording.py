"""Takes values, places and distributions; gives them as an error's text shows them."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dists
from numpyro.distributions import Distribution

from asvi.program.checks.supports import is_known
from asvi.program.unwrapping import bare_distribution

__all__ = ["call_text", "first_index", "is_known_number", "public_name", "short_text"]


def short_text(value: Any) -> str:
    """A number, or an array of few numbers, on one line."""
    if np.ndim(value) == 0:
        return str(value)
    return " ".join(np.array2string(value, threshold=8, separator=", ").split())


def first_index(bad: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(bad)[0])


def public_name(dist: Distribution) -> str:
    """The name that the user wrote: ``Bernoulli`` where the class is ``BernoulliProbs``."""
    name = type(bare_distribution(dist)).__name__
    short = re.sub(r"(Probs|Logits)$", "", name)
    return short if hasattr(dists, short) else name


def call_text(dist: Distribution, name: str, value: str) -> str:
    others = [key for key in dist.arg_constraints if key != name and key in dist.__dict__]
    if name == "low":
        others.remove("high")
    value, _, comment = value.partition("   # ")
    call = f"dist.{public_name(dist)}({'..., ' if others else ''}{name}={value})"
    return f"{call}   # {comment}" if comment else call


def is_known_number(value: Any) -> bool:
    if value is None or not is_known(value):
        return False
    return bool(jnp.issubdtype(jnp.result_type(value), jnp.number))
