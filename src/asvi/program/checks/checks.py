"""Takes what a model run met; raises an error that names the first site whose input is bad.

Nothing is checked that is not known: inside ``jit`` values are tracers and pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dists
from numpyro.distributions import Distribution, MaskedDistribution, constraints

from asvi.errors import SiteError
from asvi.program.argument_copies import is_pandas
from asvi.program.checks.supports import (
    OPEN_AT_ZERO,
    bare,
    describe,
    is_inside,
    is_judged,
    is_known,
    repair,
)
from asvi.program.statements.stacked import Evaluated, Stacked, over_steps

__all__ = ["check_data", "check_distribution", "check_observed"]

Shape = tuple[int, ...]

_INSIDE = (
    "base_dist",
    "marginal_dist",
    "_mixing_distribution",
    "_component_distribution",
    "_component_distributions",
)
_TRANSPARENT = (MaskedDistribution, dists.Independent, dists.ExpandedDistribution)


# --------------------------------------------------------------------- parameters of distributions


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
    for attribute in _INSIDE:
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
    return {name: value for name, value in arguments.items() if _is_known_number(value)}


def _check_number(site: str, dist: Distribution, name: str, value: Any) -> None:
    array = np.asarray(value)
    # Bounds and logits may be infinite; a location or a scale may not.
    bad = ~np.isfinite(array) if name in ("loc", "scale", "rate") else np.isnan(array)
    if bad.any():
        kind = "not a number (NaN)" if np.isnan(array).any() else "infinite"
        raise SiteError(
            site,
            f"parameter {name!r} of its {_public_name(dist)} is {kind} at the start",
            "keep = jnp.isfinite(x) & jnp.isfinite(y)   # before the model\n"
            "x, y = x[keep], y[keep]",
            advice="Look for NaN or infinity in the data or covariates that it is computed from.",
        )


def _check_domain(
    site: str, dist: Distribution, name: str, value: Any, steps: int, edge_is_fine: bool
) -> None:
    # Judged as NumPyro does, which would raise later on, without the site's name.
    constraint = bare(dist.arg_constraints[name])
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
        f"{_public_name(dist)} got {name} = {_short(array[_first(~valid)])}, which is not "
        f"{describe(constraint)}",
        _call(dist, name, repair(name, constraint)),
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
            f"{_public_name(dist)} got low = {first[0]} and high = {first[1]}: no value lies "
            "between them",
            _call(dist, "low", f"{first[1]}, high={first[0]}"),
        )


# ------------------------------------------------------------------------------------------ data


def check_data(site: str, value: Any) -> None:
    """Raise if data are of a kind that no density takes, as they are handed to a site."""
    if isinstance(value, np.ma.MaskedArray):
        raise SiteError(
            site,
            "its data are a masked array of NumPy, whose mask JAX does not know",
            "with numpyro.handlers.mask(mask=~np.ma.getmaskarray(y)):\n"
            f'    numpyro.sample("{site}", ..., obs=y.filled(0.0))',
        )
    if isinstance(value, str | list | tuple | dict) or is_pandas(value):
        raise SiteError(
            site,
            f"its data are a {type(value).__name__}, and NumPyro takes numbers or arrays",
            f'numpyro.sample("{site}", ..., obs=np.asarray(y))',
        )
    dtype = getattr(value, "dtype", None)
    if isinstance(value, np.ndarray | jax.Array) and jnp.iscomplexobj(value):
        raise SiteError(
            site,
            f"its data are complex numbers ({dtype}), and densities are those of real ones",
            f'numpyro.sample("{site}", ..., obs=jnp.stack([y.real, y.imag], -1))',
        )
    if isinstance(value, np.ndarray | np.generic) and dtype == np.longdouble != np.float64:
        raise SiteError(
            site,
            f"its data are of type {dtype}, which JAX does not know",
            f'numpyro.sample("{site}", ..., obs=np.asarray(y, dtype=float))',
        )


def check_observed(site: str, msg: dict[str, Any]) -> None:
    """Raise if the data of an observed site are not finite, not in the support, or do not fit.

    Entries that are masked out are not looked at.
    """
    fn, value, steps = msg["fn"], msg["value"], 0
    while isinstance(fn, Stacked):  # data and distribution meet step by step
        fn, steps = fn.step_dist, steps + 1
    times, shape = jnp.shape(value)[:steps], jnp.shape(value)[steps:]
    _check_data_shape(site, shape, times, fn, msg.get("cond_indep_stack") or ())
    if not _is_known_number(value) or not all(map(is_known, jax.tree.leaves(fn))):
        return
    together = jnp.broadcast_shapes(shape, fn.shape())
    array = np.asarray(value).reshape(times + (1,) * (len(together) - len(shape)) + shape)
    array, used = (np.broadcast_to(x, times + together) for x in (array, _used(fn, steps)))
    bad = ~np.isfinite(array) & used
    if bad.any():
        raise SiteError(
            site,
            f"the observed data hold {int(bad.sum())} value(s) that are NaN or infinite "
            f"(the first at index {_first(bad)})",
            "with numpyro.handlers.mask(mask=jnp.isfinite(y)):\n"
            f'    numpyro.sample("{site}", ..., obs=jnp.nan_to_num(y))',
            advice="Remove them, or mask them out if they are missing.",
        )
    _check_in_support(site, fn, steps, array, used)


def _check_data_shape(site: str, shape: Shape, times: Shape, fn: Distribution, frames: Any) -> None:
    """Raise unless data of this shape, at each of ``times`` steps, fit the distribution."""
    wanted, other = fn.shape(), ""
    try:
        together = jnp.broadcast_shapes(shape, wanted)
    except ValueError:
        problem = "and the two do not broadcast"
    else:
        if together[len(together) - fn.event_dim :] != fn.event_shape:
            problem = f"and one event has shape {fn.event_shape}"
            if together == shape:
                wider = (
                    f"dist.{_public_name(fn)}(...).expand({list(shape)}).to_event({fn.event_dim})"
                )
                other = f'\nnumpyro.sample("{site}", {wider}, obs=y)   # if all of y is meant'
        elif together not in (shape, wanted):
            # (n, 1) against (n,) is n * n terms.
            problem = f"and the two broadcast to {together}, which counts each datum more than once"
        else:
            return
    plates = ", ".join(f"{frame.name}[{frame.size}]" for frame in frames)
    inside = f" (inside plate {plates})" if plates else ""
    raise SiteError(
        site,
        f"the observed data have shape {times + shape}, the distribution has shape "
        f"{times + wanted}{inside}, {problem}",
        f'numpyro.sample("{site}", ..., obs=y)   # with y of shape {times + wanted}{other}',
    )


def _check_in_support(
    site: str, fn: Distribution, steps: int, array: np.ndarray, used: np.ndarray
) -> None:
    if isinstance(fn, Evaluated) or not is_judged(bare(fn.support)):
        return
    if isinstance(bare(fn.support), type(constraints.real)):
        return  # what is finite is inside: nothing to compile
    inside = over_steps(lambda d, v: is_inside(bare(d.support), v), steps)(fn, array)
    if jnp.shape(inside) != array.shape:  # a support of whole events, e.g. the simplex
        inside = np.broadcast_to(np.expand_dims(inside, -1), array.shape)
    bad = ~np.asarray(inside) & used
    if bad.any():
        first, domain = _first(bad), describe(fn.support)
        raise SiteError(
            site,
            f"{int(bad.sum())} observed value(s) lie outside the support of {_public_name(fn)} "
            f"(the first, {array[first]} at index {first}, is not {domain})",
            f'numpyro.sample("{site}", ..., obs=y)   # with every value of y {domain}',
            advice="Check the units and the likelihood.",
        )


def _used(fn: Distribution, steps: int) -> Any:
    """Which entries of a site's value its log density looks at; broadcasts to the value's shape.

    ``steps`` is the number of leading axes, one per enclosing scan, of all arrays of ``fn``.
    """
    axes = len(fn.shape())

    def over_value(mask: Any, event_dim: int) -> np.ndarray:
        """A mask over batch entries, lined up with a value: time on the left, events as 1."""
        mask = np.asarray(mask)
        missing = axes - event_dim - (mask.ndim - steps)
        return mask.reshape(
            mask.shape[:steps] + (1,) * missing + mask.shape[steps:] + (1,) * event_dim
        )

    if isinstance(fn, Evaluated):  # a branch of a `cond`: masked entries have a finite log density
        return over_value(~np.isfinite(fn.evaluated), fn.event_dim)
    used: Any = True
    while isinstance(fn, _TRANSPARENT):
        if isinstance(fn, MaskedDistribution):
            mask = fn._mask
            used = used & (mask if isinstance(mask, bool) else over_value(mask, fn.event_dim))
        fn = fn.base_dist
    return used


def _short(value: Any) -> str:
    """A number, or an array of few numbers, on one line."""
    if np.ndim(value) == 0:
        return str(value)
    return " ".join(np.array2string(value, threshold=8, separator=", ").split())


def _first(bad: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(bad)[0])


def _public_name(dist: Distribution) -> str:
    """The name that the user wrote: ``Bernoulli`` where the class is ``BernoulliProbs``."""
    while isinstance(dist, _TRANSPARENT):
        dist = dist.base_dist
    name = type(dist).__name__
    short = re.sub(r"(Probs|Logits)$", "", name)
    return short if hasattr(dists, short) else name


def _call(dist: Distribution, name: str, value: str) -> str:
    others = [key for key in dist.arg_constraints if key != name and key in dist.__dict__]
    if name == "low":
        others.remove("high")
    value, _, comment = value.partition("   # ")
    call = f"dist.{_public_name(dist)}({'..., ' if others else ''}{name}={value})"
    return f"{call}   # {comment}" if comment else call


def _is_known_number(value: Any) -> bool:
    if value is None or not is_known(value):
        return False
    return bool(jnp.issubdtype(jnp.result_type(value), jnp.number))
