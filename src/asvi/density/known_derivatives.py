"""Takes what traces derivatives; gives one kind of error where an operation has none.

JAX says so in several ways: an operation without a rule, one whose rule has no transpose, and a
function with reverse derivatives of its own, of which there is no forward derivative.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["NoDerivative", "known_derivatives"]

_WORDS = re.compile(r"[Dd]ifferentiation rule|[Tt]ranspose rule|custom_vjp")


class NoDerivative(Exception):
    """An operation of the model has no derivative, or its derivative has none."""


@contextmanager
def known_derivatives() -> Iterator[None]:
    """Within it, JAX's errors of a missing derivative are a :class:`NoDerivative`; others stay.

    >>> import jax
    >>> @jax.custom_vjp
    ... def halved(x):
    ...     return x / 2
    >>> halved.defvjp(lambda x: (x / 2, None), lambda _, d: (d / 2,))
    >>> with known_derivatives():
    ...     jax.jvp(halved, (1.0,), (1.0,))
    Traceback (most recent call last):
    ...
    asvi.density.known_derivatives.NoDerivative: an operation of the model has no derivative
    """
    try:
        yield
    except (NotImplementedError, TypeError) as failure:
        if not _WORDS.search(str(failure)):
            raise
        raise NoDerivative("an operation of the model has no derivative") from failure
