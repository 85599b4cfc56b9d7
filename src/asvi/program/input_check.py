"""Takes a model's arguments; raises where their numbers are wrong; gives the priors at the start.

The model is run at its prior's centre and at a draw from the prior, as one compiled program: later
data of the same shapes are checked without compiling. The check can be begun, and asked for later:
the compiler works beside what else goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, Unit
from numpyro.util import not_jax_tracer

from asvi.errors import SiteError
from asvi.program.checks.data import check_observed
from asvi.program.checks.parameters import check_distribution
from asvi.program.compiling import Compiled
from asvi.program.settings import CheckSettings
from asvi.program.survey import survey

__all__ = ["InputCheck", "fold_constants", "raise_if_invalid"]

_check_at_center = partial(check_distribution, edge_is_fine=True)


class InputCheck:
    """Checks calls of one model, by a program that later calls of like shapes use again.

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

    def __init__(self, model: Callable, settings: CheckSettings = CheckSettings()):
        self.model, self.settings = model, settings
        self._begun: tuple[Compiled, dict[str, Any]] | None = None

    def __call__(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Distribution]:
        """Every site's distribution at the prior's centre, by address."""
        run, site_facts = self._begun or _compiled_check(self.model, args, kwargs)
        self._begun = None
        with fold_constants():
            try:
                priors, values, at_center, at_draw = run()
            except TypeError as error:
                if isinstance(error, jax.errors.JAXTypeError):
                    raise
                # A distribution with parts that are no arrays (sparse matrices).
                priors, values, at_center, at_draw = run.function()
            _check_data(values, at_center, site_facts, self.settings)
            try:
                _check_parameters(at_center, at_draw)
            except SiteError:
                # Constants of the model are known while it runs operation by operation: what is
                # wrong can then be said where it stands.
                with jax.ensure_compile_time_eval():
                    _compiled_check(self.model, args, kwargs)[0].function()
                raise
        return priors

    def begin(self, args: tuple, kwargs: dict[str, Any]) -> None:
        """Let the check of the next call, with these arguments, be compiled beside what goes on."""
        run, site_facts = _compiled_check(self.model, args, kwargs)
        with suppress(TypeError):  # the call itself deals with these
            self._begun = run.begin(), site_facts


def fold_constants() -> AbstractContextManager:
    """Within it, what is computed from known numbers is known, while a program is traced, too.

    Nothing is done where none is traced: JAX would then run every operation on constants by itself,
    inside of what it compiles as well, each a program of its own.
    """
    return nullcontext() if not_jax_tracer(jnp.zeros(())) else jax.ensure_compile_time_eval()


def raise_if_invalid(
    center: dict[str, tuple[Distribution, Any]],
    draw: dict[str, tuple[Distribution, Any]],
    site_facts: dict[str, Any],
    settings: CheckSettings = CheckSettings(),
) -> None:
    """Raise where distributions and values at the prior's centre, or at a draw, are wrong."""
    at_center, at_draw = ({n: fn for n, (fn, _) in run.items()} for run in (center, draw))
    values = {n: value for n, (_, value) in center.items()}
    _check_data(values, at_center, site_facts, settings)
    _check_parameters(at_center, at_draw)


def _check_data(
    values: Any, at_center: dict[str, Any], site_facts: dict[str, Any], settings: CheckSettings
) -> None:
    """Raise where observed values are wrong at the prior's centre."""
    for name, fn in at_center.items():
        if site_facts[name]["is_observed"] and not isinstance(fn, Unit):
            check_observed(name, {**site_facts[name], "fn": fn, "value": values[name]}, settings)


def _check_parameters(at_center: dict[str, Any], at_draw: dict[str, Any]) -> None:
    """Raise where parameters of a distribution are wrong."""
    for name, fn in at_center.items():
        if not isinstance(fn, Unit):
            _check_at_center(name, fn)
            check_distribution(name, at_draw[name], edge_is_fine=True, only_finite=True)


def _compiled_check(
    model: Callable, args: tuple, kwargs: dict[str, Any]
) -> tuple[Compiled, dict[str, Any]]:
    """A compiled run of the model at centre and draw, and facts of its sites."""
    site_facts: dict[str, Any] = {}

    def surveyed():
        key = jax.random.key(0)
        center = survey(model, args, kwargs, "prior_mean", _check_at_center)
        draw = survey(model, args, kwargs, "prior_draw")
        priors, values = center(key)
        draw(key)
        for name, msg in center.trace.items():
            site_facts[name] = {n: msg.get(n) for n in ("is_observed", "cond_indep_stack")}
        met = [{n: m["fn"] for n, m in run.trace.items() if n in values} for run in (center, draw)]
        return priors, values, *met

    return Compiled(surveyed, once=True), site_facts
