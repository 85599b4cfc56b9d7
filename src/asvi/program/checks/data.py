"""Takes the data of an observed site; raises where they are no data of its distribution.

Nothing is checked that is not known: inside ``jit`` values are tracers and pass.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, MaskedDistribution, constraints

from asvi.errors import SiteError
from asvi.program.checks.supports import describe, is_inside, is_judged, is_known
from asvi.program.checks.wording import first_index, is_known_number, public_name
from asvi.program.columns import is_column, is_table
from asvi.program.settings import CheckSettings
from asvi.program.statements.stacked import Evaluated, Stacked, over_steps
from asvi.program.unwrapping import WRAPPERS, bare_constraint

__all__ = ["check_data", "check_observed"]

Shape = tuple[int, ...]


def check_data(site: str, value: Any) -> None:
    """Raise if data are of a kind that no density takes, as they are handed to a site."""
    if isinstance(value, np.ma.MaskedArray):
        raise SiteError(
            site,
            "its data are a masked array of NumPy, whose mask JAX does not know",
            "with numpyro.handlers.mask(mask=~np.ma.getmaskarray(y)):\n"
            f'    numpyro.sample("{site}", ..., obs=y.filled(0.0))',
        )
    if isinstance(value, str | list | tuple | dict) or is_column(value) or is_table(value):
        column = 'df["y"]' if is_table(value) else "y"
        raise SiteError(
            site,
            f"its data are a {type(value).__name__}, and NumPyro takes numbers or arrays",
            f'numpyro.sample("{site}", ..., obs=np.asarray({column}))',
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


def check_observed(
    site: str, msg: dict[str, Any], settings: CheckSettings = CheckSettings()
) -> None:
    """Raise if the data of an observed site are not finite, not in the support, or do not fit.

    Entries that are masked out are not looked at.
    """
    fn, value, steps = msg["fn"], msg["value"], 0
    while isinstance(fn, Stacked):  # data and distribution meet step by step
        fn, steps = fn.step_dist, steps + 1
    times, shape = jnp.shape(value)[:steps], jnp.shape(value)[steps:]
    _check_data_shape(site, shape, times, fn, msg.get("cond_indep_stack") or ())
    if not is_known_number(value) or not all(map(is_known, jax.tree.leaves(fn))):
        return
    together = jnp.broadcast_shapes(shape, fn.shape())
    array = np.asarray(value).reshape(times + (1,) * (len(together) - len(shape)) + shape)
    array, used = (np.broadcast_to(x, times + together) for x in (array, _used(fn, steps)))
    bad = ~np.isfinite(array) & used
    if bad.any():
        raise SiteError(
            site,
            f"the observed data hold {int(bad.sum())} value(s) that are NaN or infinite "
            f"(the first at index {first_index(bad)})",
            "with numpyro.handlers.mask(mask=jnp.isfinite(y)):\n"
            f'    numpyro.sample("{site}", ..., obs=jnp.nan_to_num(y))',
            advice="Remove them, or mask them out if they are missing.",
        )
    _check_in_support(site, fn, steps, array, used, settings)


def _check_data_shape(site: str, shape: Shape, times: Shape, fn: Distribution, plates: Any) -> None:
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
                    f"dist.{public_name(fn)}(...).expand({list(shape)}).to_event({fn.event_dim})"
                )
                other = f'\nnumpyro.sample("{site}", {wider}, obs=y)   # if all of y is meant'
        elif together not in (shape, wanted):
            # (n, 1) against (n,) is n * n terms.
            problem = f"and the two broadcast to {together}, which counts each datum more than once"
        else:
            return
    around = ", ".join(f"{plate.name}[{plate.size}]" for plate in plates)
    inside = f" (inside plate {around})" if around else ""
    raise SiteError(
        site,
        f"the observed data have shape {times + shape}, the distribution has shape "
        f"{times + wanted}{inside}, {problem}",
        f'numpyro.sample("{site}", ..., obs=y)   # with y of shape {times + wanted}{other}',
    )


def _check_in_support(
    site: str,
    fn: Distribution,
    steps: int,
    array: np.ndarray,
    used: np.ndarray,
    settings: CheckSettings,
) -> None:
    if isinstance(fn, Evaluated) or not is_judged(bare_constraint(fn.support)):
        return
    if isinstance(bare_constraint(fn.support), type(constraints.real)):
        return  # what is finite is inside: nothing to compile

    def is_in(d: Distribution, v: Any) -> Any:
        return is_inside(bare_constraint(d.support), v, settings)

    inside = over_steps(is_in, steps)(fn, array)
    if jnp.shape(inside) != array.shape:  # a support of whole events, e.g. the simplex
        inside = np.broadcast_to(np.expand_dims(inside, -1), array.shape)
    bad = ~np.asarray(inside) & used
    if bad.any():
        first, domain = first_index(bad), describe(fn.support)
        raise SiteError(
            site,
            f"{int(bad.sum())} observed value(s) lie outside the support of {public_name(fn)} "
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
    while isinstance(fn, WRAPPERS):
        if isinstance(fn, MaskedDistribution):
            mask = fn._mask
            used = used & (mask if isinstance(mask, bool) else over_value(mask, fn.event_dim))
        fn = fn.base_dist
    return used
