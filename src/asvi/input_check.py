"""Takes a model's arguments; raises where their numbers are wrong; gives the priors at the start.

The model is run at its prior's centre and at a draw from the prior, as one compiled program that
takes the arrays as inputs: later data of the same shapes are checked without compiling.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from numpyro.distributions import Distribution, Unit

from asvi.checks import check_distribution, check_observed
from asvi.layout import NEEDS_VALUES, Layout, split
from asvi.program import survey

__all__ = ["InputCheck"]

_proper = partial(check_distribution, edge_is_fine=True)


class InputCheck:
    """Checks calls of one model; what was compiled is kept, by the layout of the arguments.

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    ...     numpyro.sample("y", dist.Poisson(rate), obs=y)
    >>> check = InputCheck(model)
    >>> sorted(check((np.array(3),), {}))
    ['rate', 'y']
    >>> check((np.array(-3),), {})
    Traceback (most recent call last):
    ...
    asvi.errors.SiteError: site 'y': ...
    """

    def __init__(self, model: Callable):
        self.model = model
        self._kept: dict[Any, tuple[Callable, dict[str, Any]]] = {}

    def __call__(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Distribution]:
        """Every site's distribution at the prior's centre, by address."""
        arrays, layout = split(args, kwargs)
        key = layout.key()
        with jax.ensure_compile_time_eval():
            if key is None:
                look, about = _looking(self.model, layout, arrays)
                found = _run(look, [])
            else:
                found, about = self._run_kept(key, layout, arrays)
            self._judge(found, about)
        return found[0]

    def _judge(self, found: Any, about: dict[str, Any]) -> None:
        _priors, values, at_center, at_draw = found
        for name, fn in at_center.items():
            if isinstance(fn, Unit):
                continue
            if about[name]["is_observed"]:
                check_observed(name, {**about[name], "fn": fn, "value": values[name]})
            _proper(name, fn)
            check_distribution(name, at_draw[name], edge_is_fine=True, only_finite=True)

    def _run_kept(self, key: Any, layout: Layout, arrays: list[Any]) -> tuple[Any, dict]:
        if key not in self._kept:
            look, about = _looking(self.model, layout)
            try:
                found = _run(look, arrays)
            except NEEDS_VALUES:
                look, about = _looking(self.model, layout, arrays)
                return _run(look, []), about
            self._kept[key] = look, about
            return found, about
        look, about = self._kept[key]
        return _run(look, arrays), about


def _looking(
    model: Callable, layout: Layout, fixed: list[Any] | None = None
) -> tuple[Callable, dict[str, Any]]:
    """A compiled run of the model at centre and draw, and what it tells about the sites."""
    about: dict[str, Any] = {}

    def look(arrays: list[Any]):
        args, kwargs = layout.join(arrays if fixed is None else fixed)
        key = jax.random.key(0)
        center = survey(model, args, kwargs, "prior_mean", _proper)
        draw = survey(model, args, kwargs, "prior_draw")
        priors, values = center(key)
        draw(key)
        for name, msg in center.trace.items():
            about[name] = {n: msg.get(n) for n in ("is_observed", "cond_indep_stack")}
        met = [{n: m["fn"] for n, m in run.trace.items() if n in values} for run in (center, draw)]
        return priors, values, *met

    return jax.jit(look), about


def _run(look: Any, arrays: list[Any]) -> Any:
    try:
        return look(arrays)
    except TypeError as error:
        if isinstance(error, jax.errors.JAXTypeError):
            raise
        # A distribution with parts that are no arrays (sparse matrices).
        return look.__wrapped__(arrays)
