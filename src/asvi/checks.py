"""Takes what a model run met; raises an error that names the first site whose input is bad.

Nothing is checked that is not known: inside ``jit`` values are tracers and pass.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import ConcretizationTypeError, TracerArrayConversionError
from numpyro.distributions import Distribution, ImproperUniform, MaskedDistribution, constraints
from numpyro.util import not_jax_tracer

from asvi.errors import ModelError, SiteError
from asvi.stacked import Stacked, over_steps

__all__ = ["check_distribution", "check_observed", "explain_failure"]

_WRAPPERS = ("base_dist", "step_dist", "component_distribution", "marginal_dist")


def check_distribution(site: str, dist: Distribution, steps: int = 0) -> None:
    """Raise if a known parameter of ``dist`` is not a number or lies outside its domain.

    >>> import numpyro.distributions as dist
    >>> check_distribution("x", dist.Normal(0.0, -1.0, validate_args=False))
    Traceback (most recent call last):
    ...
    asvi.errors.SiteError: site 'x': Normal got scale = -1.0, outside its domain (positive).
    Write instead:
        dist.Normal(..., scale=jnp.exp(log_scale))   # or another positive value
    """
    if isinstance(dist, ImproperUniform):
        raise SiteError(
            site,
            "its prior is improper (ImproperUniform), so there is nothing to update",
            f'numpyro.sample("{site}", dist.Normal(0.0, 10.0))',
            advice="Give it a proper prior, as wide as you like.",
        )
    if isinstance(dist, Stacked):
        return check_distribution(site, dist.step_dist, steps + 1)
    for attribute in _WRAPPERS:
        inner = dist.__dict__.get(attribute)
        if isinstance(inner, Distribution):
            check_distribution(site, inner, steps)
    try:
        arguments = dist.get_args()
    except Exception:  # a distribution of the user's own without its arguments as attributes
        return None
    for name, value in arguments.items():
        _check_argument(site, dist, name, value, steps)
    return None


def _check_argument(site: str, dist: Distribution, name: str, value: Any, steps: int) -> None:
    constraint = dist.arg_constraints[name]
    if value is None or not _is_known(value) or not jnp.issubdtype(jnp.result_type(value), jnp.number):
        return
    array = np.asarray(value)
    if np.isnan(array).any():
        raise SiteError(
            site,
            f"parameter {name!r} of its {type(dist).__name__} is not a number (NaN) at the start",
            advice="Look for NaN in the data or covariates that it is computed from: "
            "`assert jnp.isfinite(x).all()` before the model.",
        )
    if constraints.is_dependent(constraint):
        return
    # One axis of time per enclosing scan; the constraint is checked per step.
    with jax.ensure_compile_time_eval():
        valid = np.asarray(over_steps(lambda v: constraint(v), steps)(jnp.asarray(value)))
    if valid.all():
        return
    shown = array[~valid].ravel()[0] if array.shape == valid.shape else f"{array.tolist()}"
    domain = _describe(constraint)
    fix = f"dist.{type(dist).__name__}(..., {name}={_repair(name, domain)})"
    raise SiteError(
        site,
        f"{type(dist).__name__} got {name} = {shown}, outside its domain ({domain})",
        f"{fix}   # or another {domain} value",
    )


def check_observed(site: str, msg: dict[str, Any]) -> None:
    """Raise if the data of an observed site are not finite, not in the support, or do not fit."""
    fn, value = msg["fn"], msg["value"]
    shape = jnp.shape(value)
    try:
        fits = jnp.broadcast_shapes(shape, fn.shape()) is not None
    except ValueError:
        fits = False
    if not fits:
        raise SiteError(
            site,
            f"the observed data have shape {shape}, the distribution has shape {fn.shape()}, and "
            "the two do not broadcast",
            f'numpyro.sample("{site}", ..., obs=y)   # with y of shape {fn.shape()}',
        )
    if not _is_known(value) or not jnp.issubdtype(jnp.result_type(value), jnp.number):
        return
    used = np.broadcast_to(np.asarray(_event_mask(fn, shape)), shape)
    bad = ~np.isfinite(np.asarray(value)) & used
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise SiteError(
            site,
            f"the observed data hold {int(bad.sum())} value(s) that are NaN or infinite "
            f"(the first at index {where})",
            "with numpyro.handlers.mask(mask=jnp.isfinite(y)):\n"
            f'    numpyro.sample("{site}", ..., obs=jnp.nan_to_num(y))',
            advice="Remove them, or mask them out if they are missing.",
        )
    _check_in_support(site, fn, value)


def _check_in_support(site: str, fn: Distribution, value: Any) -> None:
    steps, step_dist = 0, fn
    while isinstance(step_dist, Stacked):
        steps, step_dist = steps + 1, step_dist.step_dist
    if isinstance(step_dist, MaskedDistribution) or not all(map(_is_known, jax.tree.leaves(fn))):
        return
    try:
        inside = over_steps(lambda d, v: d.support(v), steps)(step_dist, value)
    except Exception:  # a support that cannot be evaluated is not ours to judge
        return
    if not bool(jnp.all(inside)):
        raise SiteError(
            site,
            f"some observed values lie outside the support of {type(step_dist).__name__} "
            f"({_describe(step_dist.support)})",
            advice="Check the units and the likelihood.",
        )


def _event_mask(fn: Distribution, shape: tuple[int, ...]):
    event_dim = fn.event_dim
    while isinstance(fn, Stacked):
        fn = fn.step_dist
    if not isinstance(fn, MaskedDistribution):
        return True
    mask = fn._mask
    return mask if isinstance(mask, bool) else jnp.reshape(mask, jnp.shape(mask) + (1,) * event_dim)


def _is_known(value: Any) -> bool:
    return not_jax_tracer(value) and not isinstance(value, jax.ShapeDtypeStruct)


def _describe(constraint: Any) -> str:
    text = re.sub(r"\(.*\)$", "", str(constraint)).strip("_")
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower()
    return "positive" if text in ("positive", "softplus positive") else text


def _repair(name: str, domain: str) -> str:
    return {
        "positive": f"jnp.exp(log_{name})",
        "unit interval": f"jax.nn.sigmoid({name}_logit)",
        "simplex": f"jax.nn.softmax({name}_logits)",
    }.get(domain, name)


def explain_failure(failure: Exception) -> Exception:
    """The same failure, with the line of the model, and the site, where it happened."""
    line, where = _last_line_of_model(failure)
    names = re.findall(r"""sample\(\s*f?["']([^"']+)["']""", line)
    site = f"site {names[0]!r}: " if names else ""
    if isinstance(failure, ConcretizationTypeError | TracerArrayConversionError):
        return ModelError(
            f"{site}the model decides in Python on the value of a latent site ({where}):\n"
            f"    {line}\n"
            "That value is not known while the program is built. Write instead:\n"
            "    from numpyro.contrib.control_flow import cond\n"
            "    cond(x > 0, branch_if_true, branch_if_false, operand)"
        )
    return ModelError(
        f"{site}the model failed while it ran ({where}):\n    {line}\n"
        f"{type(failure).__name__}: {failure}\n"
        "Check the shapes and values that meet on this line; "
        "`numpyro.handlers.seed(model, 0)(*args)` runs the model alone."
    )


def _last_line_of_model(failure: Exception) -> tuple[str, str]:
    """Source text and place of the innermost frame that is neither ours nor a library's."""
    found = ("<source not found>", "unknown place")
    for frame in traceback.extract_tb(failure.__traceback__):
        place = Path(frame.filename)
        if "site-packages" in place.parts or place.parent.name == "asvi" or not frame.line:
            continue
        found = (_statement(frame), f"{place.name}, line {frame.lineno}")
    return found


def _statement(frame: traceback.FrameSummary) -> str:
    last = getattr(frame, "end_lineno", None) or frame.lineno
    try:
        lines = Path(frame.filename).read_text().splitlines()[frame.lineno - 1 : last]
    except OSError:
        return frame.line or ""
    return " ".join(line.strip() for line in lines) or frame.line or ""
