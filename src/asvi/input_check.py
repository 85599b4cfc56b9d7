"""Takes a model's arguments; raises where their numbers are wrong; gives the priors at the start.

The model is run at its prior's centre and at a draw from the prior, as one compiled program that
takes the arrays as inputs: later data of the same shapes are checked without compiling. The check
can be begun, and looked at later: the compiler works beside what else goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
from numpyro.distributions import Distribution, Unit

from asvi.checks import check_distribution, check_observed
from asvi.compiling import Ahead, compiler_options
from asvi.errors import SiteError
from asvi.layout import NEEDS_VALUES, Layout, known_numbers, split
from asvi.program import survey

__all__ = ["InputCheck", "input_check_of", "judge"]

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
        with known_numbers():
            if key is None:
                look, about = _looking(self.model, layout, arrays)
                found = _run(look, [])
            else:
                found, about = self._run_kept(key, layout, arrays)
            _priors, values, at_center, at_draw = found
            _judge_data(values, at_center, about)
            try:
                _judge(at_center, at_draw)
            except SiteError:
                # Constants of the model are known while it runs operation by operation: what is
                # wrong can then be said where it stands.
                with jax.ensure_compile_time_eval():
                    _looking(self.model, layout, arrays)[0]([])
                raise
        return found[0]

    def begin(self, args: tuple, kwargs: dict[str, Any]) -> None:
        """Let the check of arguments like these be compiled, beside what else goes on."""
        arrays, layout = split(args, kwargs)
        key = layout.key()
        if key is None or key in self._kept:
            return
        look, about = _looking(self.model, layout)
        try:
            self._kept[key] = Ahead(look, (arrays,)), about
        except (*NEEDS_VALUES, TypeError):
            pass  # the call itself deals with these

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


def input_check_of(model: Callable) -> InputCheck:
    """The one check of this model, with what it has compiled, for all of its guides."""
    try:
        return _shared(model)
    except TypeError:  # a model that cannot be told from others
        return InputCheck(model)


_shared = lru_cache(16)(InputCheck)


def judge(
    center: dict[str, tuple[Distribution, Any]],
    draw: dict[str, tuple[Distribution, Any]],
    about: dict[str, Any],
) -> None:
    """Raise where distributions and values at the prior's centre, or at a draw, are wrong."""
    at_center, at_draw = ({n: fn for n, (fn, _) in run.items()} for run in (center, draw))
    _judge_data({n: value for n, (_, value) in center.items()}, at_center, about)
    _judge(at_center, at_draw)


def _judge_data(values: Any, at_center: dict[str, Any], about: dict[str, Any]) -> None:
    """Raise where observed values are wrong at the prior's centre."""
    for name, fn in at_center.items():
        if about[name]["is_observed"] and not isinstance(fn, Unit):
            check_observed(name, {**about[name], "fn": fn, "value": values[name]})


def _judge(at_center: dict[str, Any], at_draw: dict[str, Any]) -> None:
    """Raise where parameters of a distribution are wrong."""
    for name, fn in at_center.items():
        if not isinstance(fn, Unit):
            _proper(name, fn)
            check_distribution(name, at_draw[name], edge_is_fine=True, only_finite=True)


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

    return jax.jit(look, compiler_options=compiler_options(once=True)), about


def _run(look: Any, arrays: list[Any]) -> Any:
    try:
        return look(arrays)
    except TypeError as error:
        if isinstance(error, jax.errors.JAXTypeError):
            raise
        # A distribution with parts that are no arrays (sparse matrices).
        return getattr(look, "jitted", look).__wrapped__(arrays)
