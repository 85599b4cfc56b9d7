"""Takes a recorded program; gives it with all that depends on no input computed beforehand.

What a model makes of its data alone (a design matrix, random features from a fixed key, sums of
small whole numbers) is computed once, in the types in which it was recorded: it is part of the
model, and another precision would make another model of it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jax.interpreters import partial_eval

from asvi.density.numpy_backend import numpy_function
from asvi.density.settings import EvaluatorSettings
from asvi.program.compiling import Compiled
from asvi.program.traced import evaluate, remake, without_unused

__all__ = ["fold_constants"]

#: Operations that make large arrays of small ones: they stay in the program.
_SPREADS = {"broadcast_in_dim", "iota"}


def fold_constants(
    jaxpr: Any, consts: list[Any], settings: EvaluatorSettings = EvaluatorSettings()
) -> tuple[Any, list[Any]]:
    """The program that is left, and its constants; these are a program's first inputs.

    >>> import jax.numpy as jnp
    >>> from asvi.program.traced import Traced
    >>> data = jnp.arange(3.0)
    >>> traced = Traced(lambda x: jnp.sum(x * jnp.cumsum(data)), 1.0)
    >>> left, known = fold_constants(traced.jaxpr, traced.consts)
    >>> [eqn.primitive.name for eqn in left.eqns], known[0].tolist()
    (['convert_element_type', 'mul', 'reduce_sum'], [0.0, 1.0, 3.0])
    """
    constants, inputs = jaxpr.invars[: len(consts)], jaxpr.invars[len(consts) :]
    known, first, rest = set(constants), [], []
    for eqn in jaxpr.eqns:
        if not eqn.effects and all(isinstance(v, Literal) or v in known for v in eqn.invars):
            first.append(eqn)
            known.update(eqn.outvars)
            if eqn.primitive.name in _SPREADS:
                rest.append(eqn)
        else:
            rest.append(eqn)
    spread = {v for eqn in rest for v in eqn.outvars}
    used = [v for eqn in rest for v in eqn.invars] + list(jaxpr.outvars)
    asked = [v for v in used if not isinstance(v, Literal) and v in known and v not in spread]
    wanted = list(dict.fromkeys(asked))
    if not first:
        return without_unused(jaxpr, consts)
    beforehand = remake(jaxpr, invars=constants, outvars=wanted, eqns=first)
    values = _run_once(beforehand, consts, settings)
    left = remake(jaxpr, invars=[*wanted, *inputs], eqns=rest)
    return without_unused(left, values)


def _run_once(jaxpr: Any, consts: list[Any], settings: EvaluatorSettings) -> list[Any]:
    """The outputs of a program that is run once; by NumPy where it knows how."""
    used, inputs = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    given = [c for c, is_used in zip(consts, inputs, strict=True) if is_used]
    # Keys of random numbers, and what is being recorded by somebody else, are no arrays.
    has_keys = any(jnp.issubdtype(v.aval.dtype, jax.dtypes.extended) for v in used.invars)
    if not has_keys and not any(isinstance(c, jax.core.Tracer) for c in given):
        run = numpy_function(ClosedJaxpr(used, []), settings=settings)
        if run is not None:
            return run(*map(np.asarray, given))
    compiled = Compiled(lambda *xs: evaluate(used, [], xs), once=True)
    return list(compiled(*given))
