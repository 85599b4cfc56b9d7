"""Takes functions of arrays; gives them as NumPy computes them: traced by JAX, not compiled.

Whoever may compute by NumPy or by a compiled program asks :func:`numpy_function`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.extend.core import ClosedJaxpr

from asvi.density.numpy_backend.no_rule import NoNumpyRule
from asvi.density.numpy_backend.tape import NumpyFunction, Tape
from asvi.density.settings import EvaluatorSettings

__all__ = ["NoNumpyRule", "NumpyFunction", "Tape", "numpy_function"]


def numpy_function(
    function: Callable | ClosedJaxpr,
    *inputs: Any,
    moving: int = 0,
    varying: int | None = None,
    draws: bool = False,
    work: float = 0.0,
    max_work: float = float("inf"),
    settings: EvaluatorSettings = EvaluatorSettings(),
) -> NumpyFunction | None:
    """``function`` by NumPy; None where it has to be compiled.

    That is so where NumPy has no rule for an operation, where ``work`` is above ``max_work``, and
    where ``settings.use_numpy`` says so. A recorded program gives the list of its outputs, and has
    no need of ``inputs``. For the others, see :class:`NumpyFunction`.

    >>> import jax.numpy as jnp, numpy as np
    >>> by_numpy = numpy_function(jnp.cumsum, np.arange(3.0))
    >>> by_numpy(np.ones(3)).tolist()
    [1.0, 2.0, 3.0]
    >>> numpy_function(jnp.sort, np.arange(3.0)) is None
    True
    """
    if not settings.use_numpy or work > max_work:
        return None
    try:
        return NumpyFunction(
            function, *inputs, moving=moving, varying=varying, draws=draws, settings=settings
        )
    except NoNumpyRule:
        return None
