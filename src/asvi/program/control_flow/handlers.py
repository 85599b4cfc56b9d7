"""Takes the handlers around a control-flow body; gives those under which one run of it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
from numpyro import handlers
from numpyro.primitives import _PYRO_STACK, Messenger

from asvi.errors import SiteError
from asvi.program.statements.masks import Completed

__all__ = [
    "BodySubstitutions",
    "handler_stack",
    "handlers_outside",
    "is_conditioned",
    "without_handlers",
]


@contextmanager
def handler_stack(stack: list[Messenger]) -> Iterator[None]:
    """Within this context these handlers, and no others, are given messages."""
    saved = list(_PYRO_STACK)
    _PYRO_STACK[:] = stack
    try:
        yield
    finally:
        _PYRO_STACK[:] = saved


def without_handlers():
    """Within this context no handler around is given messages."""
    return handler_stack([])


@contextmanager
def handlers_outside(handler: Messenger) -> Iterator[None]:
    """Within this context only the handlers outside ``handler`` are given messages."""
    with handler_stack(_PYRO_STACK[: _PYRO_STACK.index(handler)]):
        yield


class BodySubstitutions:
    """Values that ``condition``, ``substitute`` and ``replay`` provide to a body, step by step.

    A value with one axis more than its site, of the scan's length, holds one entry a step. Such
    values become scanned inputs, which also keeps them in order under ``reverse=True``.
    """

    def __init__(self, inside: list[Messenger], outside: list[tuple[str, Any]], length: int | None):
        self.inside, self.outside, self.length = inside, outside, length
        self._data: list[dict[str, Any]] = []
        self.sliced: list[dict[str, Any]] = []
        for handler in inside:
            if isinstance(handler, handlers.condition | handlers.substitute | handlers.replay):
                self._add(getattr(handler, "data", None), getattr(handler, "trace", None), length)
            elif isinstance(handler, _StepValues):
                self._add(handler.merged, None, length)
        for kind, data in outside:
            self._add(
                data if kind != "replay" and isinstance(data, dict) else None,
                data if kind == "replay" else None,
                length,
            )

    def _add(self, data, replayed, length) -> None:
        if replayed is not None:
            data = {
                name: site["value"]
                for name, site in replayed.items()
                if site["type"] in ("sample", "plate") and not site.get("is_observed", False)
            }
        data = {} if data is None else data
        self._data.append(data)
        if length is None:
            self.sliced.append({})
        else:
            self.sliced.append(
                {
                    name: value
                    for name, value in data.items()
                    if hasattr(value, "shape") and value.shape[:1] == (length,)
                }
            )

    def handlers(
        self, interpretation: Messenger, key, sliced: list[dict], index, own_key=None
    ) -> list[Messenger]:
        """The stack for one run of the body: seed, what is outside, the interpretation, inside.

        ``own_key`` is that of a seed of the model's own, which is asked first, as in NumPyro.
        """
        provided = iter(zip(self._data, sliced, strict=True))
        inner: list[Messenger] = []
        for handler in self.inside:
            if isinstance(handler, handlers.condition | handlers.substitute | handlers.replay):
                data, step = next(provided)
                kind = "condition" if isinstance(handler, handlers.condition) else "substitute"
                function = getattr(handler, f"{kind}_fn", None)
                inner.append(
                    _StepValues(kind, data, step)
                    if function is None
                    else _StepFunction(kind, function, index, self.length)
                )
            elif isinstance(handler, _StepValues):
                inner.append(_StepValues(handler.kind, *next(provided)))
            elif isinstance(handler, _StepFunction):
                inner.append(_StepFunction(handler.kind, handler._at_step, index, self.length))
            elif isinstance(handler, Completed):
                inner.append(handler if index is None else handler.at_step(index))
            elif not isinstance(handler, handlers.seed | handlers.trace):
                inner.append(handler)
        outer: list[Messenger] = []
        for kind, data in self.outside:
            pair = next(provided)
            if callable(data):
                outer.append(_StepFunction(kind, data, index, self.length))
            else:
                outer.append(_StepValues(kind, *pair))
        seeds = [] if key is None else [handlers.seed(rng_seed=key)]
        if own_key is not None:
            inner.append(handlers.seed(rng_seed=own_key))
        # `outside` lists the nearest handler first; a stack has the farthest first.
        return [*seeds, *reversed(outer), interpretation, *inner]


def is_conditioned(interpretation: Messenger, msg: dict[str, Any]) -> bool:
    """Whether a ``condition`` inside gives this site its value: a part of the model, no data."""
    for handler in _PYRO_STACK[_PYRO_STACK.index(interpretation) + 1 :]:
        if isinstance(handler, handlers.condition):
            data, function = handler.data, handler.condition_fn
            value = None if function is None else function(msg)
            value = value if data is None else data.get(msg["name"])
        elif getattr(handler, "kind", None) == "condition":
            inside: Any = handler
            is_function = isinstance(handler, _StepFunction)
            value = inside._at_step(msg) if is_function else inside.data.get(msg["name"])
        else:
            continue
        if value is not None:
            return True
    return False


class _StepValues(Messenger):
    """Provides this step's values to the sites of a body."""

    def __init__(self, kind: str, data: dict[str, Any], step: dict[str, Any]):
        super().__init__()
        self.kind, self.data, self.step = kind, data, step
        self.merged = {**data, **step}

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "control_flow":
            msg["kwargs"]["substitute_stack"].append((self.kind, self.merged))
            return
        if msg["type"] not in ("sample", "plate") or msg.get("_control_flow_done"):
            return
        if msg["name"] not in self.data or (msg["type"] == "sample" and msg["is_observed"]):
            return
        msg["value"] = self._value(msg)
        if self.kind == "condition" and msg["type"] == "sample":
            msg["is_observed"] = True

    def _value(self, msg: dict[str, Any]):
        name, whole = msg["name"], self.data[msg["name"]]
        wanted = _axes_of(msg)
        if name in self.step and jnp.ndim(whole) > wanted:
            return self.step[name]
        if jnp.ndim(whole) <= wanted:
            return whole
        raise SiteError(
            name,
            f"the value given to it has shape {jnp.shape(whole)}, which does not fit a site of "
            f"{wanted} axes inside this control-flow block",
            advice="Give one value a step, stacked along a leading time axis.",
        )


class _StepFunction(Messenger):
    """Provides a function's values to a body's sites, one a step where they have a time axis."""

    def __init__(self, kind: str, function: Callable, index, length: int | None):
        super().__init__()
        self.kind, self.function, self.index, self.length = kind, function, index, length

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "control_flow":
            msg["kwargs"]["substitute_stack"].append((self.kind, self._at_step))
        elif msg["type"] in ("sample", "plate") and not msg.get("_control_flow_done"):
            value = self._at_step(msg)
            if value is not None:
                msg["value"] = value
                if self.kind == "condition" and msg["type"] == "sample":
                    msg["is_observed"] = True

    def _at_step(self, msg: dict[str, Any]):
        value = self.function(msg)
        if value is None or self.length is None:
            return value
        has_time = jnp.ndim(value) > _axes_of(msg) and jnp.shape(value)[0] == self.length
        return value[self.index] if has_time else value


def _axes_of(msg: dict[str, Any]) -> int:
    if msg["type"] == "sample":
        return len(msg["kwargs"]["sample_shape"] + msg["fn"].shape())
    return 1
