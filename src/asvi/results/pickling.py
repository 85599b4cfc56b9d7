"""Takes a fit; gives what of it can be pickled, and the fit back from it.

Compiled programs and caches stay behind: they are made anew where they are asked for.
"""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.errors import AsviError, with_mended
from asvi.fitting.problem import Problem

__all__ = ["restored", "state_of"]

_MADE_ANEW = ("problem", "correction", "params", "start", "asked")


def state_of(fit: Any) -> dict[str, Any]:
    """All that the fit holds, but for what is made anew."""
    problem = fit.problem
    _require_importable(problem.model, fit.model_name)
    # Draws go along, their source does not: it holds compiled programs.
    correction = fit.correction and replace(fit.correction, source=None)
    return {
        "model": problem.model,
        "family": problem.family,
        "arguments": (*problem.arguments, problem.arguments.has_data),
        "correction": correction,
        "params": jax.tree.map(np.asarray, fit.params),
        "asked": _that_can_go(fit.asked),
        "report": vars(fit).get("_report"),
        "numbers": {f.name: getattr(fit, f.name) for f in fields(fit) if f.name not in _MADE_ANEW},
    }


def restored(fit: Any, state: dict[str, Any]) -> None:
    """Fill a blank fit with what :func:`state_of` gave."""
    args, kwargs, has_data = state["arguments"]
    problem = Problem(state["model"], state["family"], args, kwargs, check=False)
    problem.arguments.has_data = has_data
    problem.bound.is_fitted = True
    fit.__dict__.update(
        state["numbers"],
        problem=problem,
        correction=state["correction"],
        params=jax.device_put(state["params"]),
        start=None,
        asked=state["asked"],
    )
    if state["report"] is not None:
        fit.__dict__["_report"] = state["report"]


def _require_importable(model: Any, name: str) -> None:
    try:
        pickle.dumps(model)
    except Exception as error:
        raise AsviError(
            with_mended(
                f"a fit can be pickled if its model can be imported, and {name} cannot ({error})",
                'result.save("fit.asvi")\nresult = asvi.load("fit.asvi", model, *data)',
                "Define the model at the top of a module, or keep the fit in a file.",
            )
        ) from error


def _that_can_go(asked: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, so that ``refine`` goes on; nothing where it holds functions."""
    key = asked.get("rng_key")
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        asked = {**asked, "rng_key": np.asarray(jax.random.key_data(key))}
    try:
        pickle.dumps(asked)
    except Exception:
        return {}
    return asked
