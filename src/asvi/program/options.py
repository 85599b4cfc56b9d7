"""Takes a model and what was given beside it; gives which names are the model's own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from asvi.errors import ModelError

__all__ = ["check_options", "parameters_of"]


def parameters_of(model: Callable) -> Mapping[str, inspect.Parameter]:
    """A model's parameters that have names; none of a callable that does not say.

    >>> list(parameters_of(lambda x, *rest, steps=1, **more: None))
    ['x', 'steps']
    """
    try:
        found = inspect.signature(model).parameters
    except (TypeError, ValueError):
        return {}
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: about for name, about in found.items() if about.kind not in several}


def check_options(model: Callable, call: str, args: tuple, options: Mapping[str, Any]) -> None:
    """Raise where an option of ``call`` that was given is an argument that the model lacks, too.

    >>> def model(y, effort=1): ...
    >>> check_options(model, "asvi.fit", (3.0, 10), {"effort": "quick"})   # the model has its own
    >>> check_options(model, "asvi.fit", (3.0,), {"effort": 10})
    Traceback (most recent call last):
    ...
    asvi.errors.ModelError: `effort` is an option of asvi.fit and an argument of the model...
    """
    parameters = parameters_of(model)
    has_own = set(model.keywords) if isinstance(model, functools.partial) else set()
    has_own |= set(list(parameters)[: len(args)])
    for name, value in options.items():
        if name not in parameters or name in has_own:
            continue
        before = list(parameters)[len(args) : list(parameters).index(name)]
        by_position = ", ".join(["*args", *before, f"{name}_of_the_model"])
        raise ModelError(
            f"`{name}` is an option of {call} and an argument of the model; which is meant by "
            f"{name}={value!r}?\nWrite instead, for the model, by position:\n"
            f"    {call}(model, {by_position})\n"
            "or bound to it:\n"
            f"    {call}(functools.partial(model, {name}=...), ...)\n"
            f"Then {name}= is an option of {call} alone."
        )
