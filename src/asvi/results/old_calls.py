"""Takes calls as they were written for 0.1; gives the calls of today, with a warning.

The names are in :mod:`asvi.results.old_names`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from importlib import import_module
from typing import Any

from asvi.errors import AsviError
from asvi.families.amortized.family import Amortized
from asvi.families.sampling import SamplingGuide
from asvi.fitting.training.asked import Training
from asvi.program.options import parameters_of
from asvi.results.old_names import ARGUMENTS, ATTRIBUTES, NAMES, OPTIONS, say

__all__ = ["getter_of", "install", "take_options", "takes_old_arguments", "with_old_options"]


def take_options(model: Callable, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What of ``kwargs`` is the model's, and old options by their old names.

    A name that the model has is the model's.

    >>> def model(y, steps=1): ...
    >>> take_options(model, {"steps": 3})
    ({'steps': 3}, {})
    """
    own = parameters_of(model)
    old = {n: x for n, x in kwargs.items() if n in OPTIONS and n not in own}
    for name in old:
        say(name, OPTIONS[name])
    return {n: x for n, x in kwargs.items() if n not in old}, old


def with_old_options(options: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """The options of today that old ones stand for, beside those of today."""
    found, training = dict(options), {}
    for name, value in old.items():
        new = OPTIONS[name]
        if value is None:
            continue
        if new.startswith("Training("):
            training[new.removeprefix("Training(").partition("=")[0]] = value
        elif name == "amortize":
            found["family"] = _amortized(value, found["family"])
        elif found[new] is not None:
            raise AsviError(f"`{name}` and `{new}` are one option, and both were given.")
        else:
            found[new] = value
    if training:
        found["training"] = replace(found["training"] or Training(), **training)
    return found


def _amortized(plate: Any, base: Any) -> Amortized:
    if not isinstance(plate, str):
        raise AsviError(
            f"amortize={plate!r} is no plate's name.\n"
            'Write instead:\n    asvi.fit(model, y, family=asvi.families.Amortized(plate="point"))'
        )
    return Amortized(plate=plate, base=base)


def takes_old_arguments(name: str) -> Callable[[Callable], Callable]:
    """A decorator: the function takes its arguments by the names of 0.1, too.

    Where the arguments are a model's, too, a name that the model has is the model's.
    """
    renamed = ARGUMENTS[name]

    def decorate(call: Callable) -> Callable:
        @wraps(call)
        def called(*args: Any, **kwargs: Any) -> Any:
            if not renamed.keys().isdisjoint(kwargs):
                problem = getattr(args[0], "problem", None) if args else None
                own = parameters_of(problem.model) if problem is not None else ()
                for old in [name for name in kwargs if name in renamed and name not in own]:
                    new = renamed[old]
                    if new in kwargs:
                        raise AsviError(
                            f"`{old}` and `{new}` are one argument, and both were given."
                        )
                    say(old, new)
                    kwargs[new] = kwargs.pop(old)
            return call(*args, **kwargs)

        return called

    return decorate


def _takes_data(call: Callable) -> Callable:
    """``sample`` or ``elbo``, which took a model's arguments after their own."""
    name, known = call.__name__, inspect.signature(call).parameters
    own = 2 if name == "sample" else 1

    @wraps(call)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        mine = {n: kwargs.pop(n) for n in list(kwargs) if n in known}
        if name == "elbo" and len(args) == 2 and isinstance(args[1], int) and not kwargs:
            mine["num_samples"], args = args[1], args[:1]
        if len(args) <= own and not kwargs:
            return call(self, *args, **mine)
        say(f"{name}(rng_key, ..., *args)", f"at(*args).{name}(rng_key, ...)")
        return getattr(self.at(*args[own:], **kwargs), name)(*args[:own], **mine)

    return called


def _attribute(old: str, new: str) -> property:
    def get(self: Any) -> Any:
        say(old, new)
        found = self
        for name in new.split("."):
            found = getattr(found, name)
        if old == "info":  # it was a dict, and had the family's reason
            return {**vars(found), "family": self.family_reason}
        return found

    return property(get, doc=f"``{new}``, as it was called in 0.1.")


def getter_of(module: str, further: Callable[[str], Any] | None = None) -> Callable[[str], Any]:
    """A module's ``__getattr__``: its names of 0.1, then ``further`` ones."""

    def get(name: str) -> Any:
        new = NAMES.get(module, {}).get(name)
        if new is not None:
            path = new if new.startswith("asvi.") else f"{module}.{new}"
            say(f"{module}.{name}", path)
            where, _, last = path.rpartition(".")
            return getattr(import_module(where), last)
        if further is not None:
            return further(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get


def install() -> None:
    """Let classes and modules answer to their old names."""
    from asvi.fitting.guide_draws import GuideDraws
    from asvi.results.corrected_posterior import CorrectedPosterior
    from asvi.results.fitted import Fit
    from asvi.results.posterior import Posterior

    for path, names in ATTRIBUTES.items():
        module, _, cls = path.rpartition(".")
        for old, new in names.items():
            setattr(getattr(import_module(module), cls), old, _attribute(old, new))
    classes: dict[str, tuple[type, ...]] = {
        "Posterior": (GuideDraws, Posterior, CorrectedPosterior),
        "Fit": (Fit,),
        "AutoASVI": (SamplingGuide,),
    }
    for path in ARGUMENTS:
        owner, _, method = path.rpartition(".")
        for cls in classes.get(owner, ()):
            call = vars(cls).get(method)
            if call is not None:
                call = _takes_data(call) if method in ("sample", "elbo") else call
                setattr(cls, method, takes_old_arguments(path)(call))
    vars(import_module("asvi.families"))["__getattr__"] = getter_of("asvi.families")
