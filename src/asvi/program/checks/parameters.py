"""Takes a distribution of a model; raises where one of its parameters is wrong.

Nothing is checked that is not known: inside ``jit`` values are tracers and pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, constraints

from asvi.errors import SiteError
from asvi.program.checks.supports import OPEN_AT_ZERO, describe, repair
from asvi.program.checks.wording import (
    call_text,
    first_index,
    is_known_number,
    public_name,
    short_text,
)
from asvi.program.statements.stacked import Stacked, over_steps
from asvi.program.unwrapping import bare_constraint

__all__ = ["check_distribution"]

#: Attributes that hold the distributions which another is made of.
_PARTS = (
    "base_dist",
    "marginal_dist",
    "_mixing_distribution",
    "_component_distribution",
    "_component_distributions",
)


def check_distribution(
    site: str,
    dist: Distribution,
    steps: int = 0,
    *,
    edge_is_fine: bool = False,
    only_finite: bool = False,
) -> None:
    """Raise if a known parameter of ``dist`` is not a number or lies outside its domain.

    :param steps: leading axes of all its arrays, one per enclosing scan.
    :param edge_is_fine: let a positive parameter be 0. For values at the centre of the prior, where
        a proper scale like ``jnp.abs(x)`` may well be 0.
    :param only_finite: judge finite numbers alone. For values at a draw from a wide prior, where a
        rate like ``jnp.exp(x)`` may well overflow.

    >>> import numpyro.distributions as dist
    >>> check_distribution("x", dist.Normal(0.0, -1.0, validate_args=False))
    Traceback (most recent call last):
    ...
    asvi.errors.SiteError: site 'x': Normal got scale = -1.0, which is not positive.
    Write instead:
        dist.Normal(..., scale=jnp.exp(log_scale))
    """
    if isinstance(dist, Stacked):
        check_distribution(
            site, dist.step_dist, steps + 1, edge_is_fine=edge_is_fine, only_finite=only_finite
        )
        return
    # The distribution before what it is made of: its own names are those that the user wrote.
    arguments = _known_arguments(dist)
    for name, value in arguments.items():
        if only_finite:
            if not np.isfinite(np.asarray(value)).all():
                continue
        else:
            _check_number(site, dist, name, value)
        _check_domain(site, dist, name, value, steps, edge_is_fine)
    if not only_finite:
        _check_bounds(site, dist, arguments)
    for inner in _inner_distributions(dist):
        check_distribution(site, inner, steps, edge_is_fine=edge_is_fine, only_finite=only_finite)


def _inner_distributions(dist: Distribution) -> Iterator[Distribution]:
    for attribute in _PARTS:
        inner = dist.__dict__.get(attribute)
        for part in inner if isinstance(inner, list | tuple) else [inner]:
            if isinstance(part, Distribution):
                yield part


def _known_arguments(dist: Distribution) -> dict[str, Any]:
    """The numeric constructor arguments whose values are known here, by name."""
    try:
        arguments = dist.get_args()
    except Exception:  # a distribution of the user's own without its arguments as attributes
        return {}
    return {name: value for name, value in arguments.items() if is_known_number(value)}


def _check_number(site: str, dist: Distribution, name: str, value: Any) -> None:
    array = np.asarray(value)
    # Bounds and logits may be infinite; a location or a scale may not.
    bad = ~np.isfinite(array) if name in ("loc", "scale", "rate") else np.isnan(array)
    if bad.any():
        kind = "not a number (NaN)" if np.isnan(array).any() else "infinite"
        raise SiteError(
            site,
            f"parameter {name!r} of its {public_name(dist)} is {kind} at the start",
            "keep = jnp.isfinite(x) & jnp.isfinite(y)   # before the model\n"
            "x, y = x[keep], y[keep]",
            advice="Look for NaN or infinity in the data or covariates that it is computed from.",
        )


def _check_domain(
    site: str, dist: Distribution, name: str, value: Any, steps: int, edge_is_fine: bool
) -> None:
    # Judged as NumPyro does, which would raise later on, without the site's name.
    constraint = bare_constraint(dist.arg_constraints[name])
    if constraints.is_dependent(constraint):
        return
    if edge_is_fine and type(constraint) in OPEN_AT_ZERO:
        constraint = constraints.nonnegative
    array = np.asarray(value)
    if constraint.event_dim == 0:
        valid = np.asarray(constraint(array))  # in NumPy: nothing to compile
    else:
        with jax.ensure_compile_time_eval():
            valid = np.asarray(over_steps(lambda v: constraint(v), steps)(jnp.asarray(value)))
    if valid.all():
        return
    raise SiteError(
        site,
        f"{public_name(dist)} got {name} = {short_text(array[first_index(~valid)])}, which is not "
        f"{describe(constraint)}",
        call_text(dist, name, repair(name, constraint)),
    )


def _check_bounds(site: str, dist: Distribution, arguments: dict[str, Any]) -> None:
    if "low" not in arguments or "high" not in arguments:
        return
    low, high = (np.asarray(arguments[name]) for name in ("low", "high"))
    empty = low > high if np.issubdtype(low.dtype, np.integer) else low >= high
    if np.any(empty):
        where = tuple(np.argwhere(empty)[0])
        first = [np.broadcast_to(x, np.shape(empty))[where] for x in (low, high)]
        raise SiteError(
            site,
            f"{public_name(dist)} got low = {first[0]} and high = {first[1]}: no value lies "
            "between them",
            call_text(dist, "low", f"{first[1]}, high={first[0]}"),
        )
