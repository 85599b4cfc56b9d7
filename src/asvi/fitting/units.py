"""Takes a problem's parameters; gives the length of one step of the optimiser in each of them.

Adam moves every number by about the learning rate, whatever its gradient. So each number is
measured in a unit in which a move of 1 changes the guide by about one standard deviation: a
location in standard deviations of its site, a row of k coupling weights, which add up, in
:math:`1/\\sqrt k`. Without it a coefficient whose posterior is 10⁴ times narrower than its
neighbour's would never settle.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asvi.fitting.problem import Problem
from asvi.guide import AutoASVI

__all__ = [
    "in_order",
    "in_units",
    "is_coupling_weight",
    "limits",
    "location_names",
    "named_units",
    "roles_of",
    "units",
]

GATE_UNIT = 0.25  # the gate's own gain is 4
SHUT = 3e-4  # prior weights come no nearer to 1
SPLINE_UNIT = 0.3  # logarithms of heights and slopes: each is felt by a few draws only
NETWORK_UNIT = 0.5  # layers multiply: half a step in each


def units(problem: Problem) -> jax.Array:
    """The unit of every parameter, (parameters,), at the prior."""
    return jnp.asarray(in_order(named_units(problem)), problem.dtype)


def limits(problem: Problem) -> np.ndarray:
    """How far up each parameter may go, (parameters,): the gates' own, the others anywhere.

    A gate that is at the prior in single precision has no gradient, and neither has the data term
    behind it. Held at a prior weight of 0.9997 it loses next to nothing and can still go back. At
    the other end the data term rules, and a narrow posterior needs that: there is no limit.
    """
    example = jax.eval_shape(problem.unravel, jax.ShapeDtypeStruct((problem.size,), problem.dtype))
    shut = {
        name: float(problem.transforms[name].inv(1.0 - SHUT))
        for name, role in roles_of(problem.guide).items()
        if role.endswith("/prior_weight")
    }
    return in_order(
        {
            name: jax.tree.map(lambda x, name=name: np.full(x.shape, shut.get(name, np.inf)), value)
            for name, value in example.items()
        }
    )


def in_order(values: dict[str, Any]) -> np.ndarray:
    """One vector of these numbers, in the order of a problem's parameters."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(values)])


def named_units(problem: Problem) -> dict[str, Any]:
    """The same by name: a site without parents has its location measured in the prior's scale."""
    example = jax.eval_shape(problem.unravel, jax.ShapeDtypeStruct((problem.size,), problem.dtype))
    roles = roles_of(problem.guide)
    found = {
        name: np.full(value.shape, _of_role(roles.get(name), value.shape))
        if hasattr(value, "shape")
        else jax.tree.map(lambda x: np.full(x.shape, _of_layer(x.shape)), value)
        for name, value in example.items()
    }
    scales = problem.prior_scales
    for address, name in location_names(problem).items():
        if address in scales:
            scale = np.asarray(scales[address], float)
            scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
            shape = found[name].shape
            found[name] = np.broadcast_to(_at_full_size(scale, shape), shape)
    return found


def _at_full_size(scale: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Scales of the members of plates that are seen, as one for all where others are not seen."""
    lead = len(shape) - scale.ndim
    parts = tuple(k for k in range(scale.ndim) if scale.shape[k] not in (1, shape[lead + k]))
    return np.exp(np.mean(np.log(scale), parts, keepdims=True)) if parts else scale


def _of_layer(shape: tuple[int, ...]) -> float:
    """Weights of a layer add up: a row of k of them is measured in :math:`1/\\sqrt k`."""
    return NETWORK_UNIT / np.sqrt(np.prod(shape[:-1])) if len(shape) > 1 else NETWORK_UNIT


_FRAMES = tuple(f"frame/{kind}" for kind in ("dense", "aligned", "window", "within"))
_WEIGHTS = (
    *(f"coupling/{kind}" for kind in ("dense", "aligned", "window", "within")),
    *(f"coupling/{kind}" for kind in ("bend_gates", "bend_cell", "stretch_gates", "stretch_cell")),
    *("coupling/loudness", "coupling/voice"),
)


def roles_of(guide: Any) -> dict[str, str]:
    """What each parameter of a guide is, by its full name; the model's own are not in it."""
    told = getattr(guide, "parameter_roles", None)
    return {} if told is None else told()


def is_coupling_weight(role: str | None) -> bool:
    """Whether a parameter of this role weighs what one latent number says to another."""
    return role is not None and (role in _WEIGHTS or _steers_a_leaf(role))


def _steers_a_leaf(role: str) -> bool:
    return role.endswith(("/data_term_coupling", "/prior_weight_coupling"))


def _of_role(role: str | None, shape: tuple[int, ...]) -> float:
    if role is None:
        return 1.0
    if role in _FRAMES:
        return 0.0  # held where the start put it
    if role == "layer":
        return _of_layer(shape)
    if role == "head_kernel":
        return NETWORK_UNIT / np.sqrt(shape[0])
    if _steers_a_leaf(role):
        return GATE_UNIT / np.sqrt(shape[-1])
    if role == "coupling/spline":
        return SPLINE_UNIT
    if role in _WEIGHTS or role == "chain":  # a row of a matrix of a chain family
        return 1.0 / np.sqrt(shape[-1])
    return 1.0


def in_units(
    optimizer: optax.GradientTransformation, guide: Any = None
) -> optax.GradientTransformation:
    """``optimizer`` with the steps that :func:`asvi.fit` takes, for ``numpyro.infer.SVI``.

    A step of Adam moves every number by about the learning rate. A row of k coupling weights adds
    up, so its steps are made shorter by a factor of √k; and a frame is held where it is. Without
    it, a coupled family or a chain family with a state of 100 numbers takes steps that are ten
    times too long.

    :param guide: the guide whose parameters are stepped. It knows what each of them is; without it
        that is guessed from their names, which a site's own name may resemble.

    >>> import numpyro, numpyro.distributions as dist, optax, asvi
    >>> model = lambda: numpyro.sample("x", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
    >>> guide = asvi.AutoASVI(model, family=asvi.families.Coupled())
    >>> svi = numpyro.infer.SVI(model, guide, in_units(optax.sgd(1.0), guide), asvi.ELBO())
    >>> state = svi.init(jax.random.key(0))
    >>> step = in_units(optax.sgd(1.0), guide)
    >>> params = {"auto/x/coupling/within": jnp.zeros((4, 4)), "auto/x/loc/data_term": jnp.zeros(4)}
    >>> change, _ = step.update(jax.tree.map(jnp.ones_like, params), step.init(params), params)
    >>> {name: float(x.min()) for name, x in change.items()}
    {'auto/x/coupling/within': -0.5, 'auto/x/loc/data_term': -1.0}
    """
    if guide is None:
        warnings.warn(
            "in_units(optimizer) guesses from names what the parameters are.\n"
            "Write instead:\n    asvi.in_units(optimizer, guide)",
            DeprecationWarning,
            stacklevel=2,
        )

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, state = optimizer.update(updates, state, params)
        roles = None if guide is None else roles_of(guide)

        def in_unit(path: tuple[Any, ...], step: jax.Array) -> jax.Array:
            name = getattr(path[0], "key", None) if path else None
            if not isinstance(name, str):
                return step
            role = roles.get(name) if roles is not None else _guessed(name, jnp.ndim(step))
            return _of_role(role, jnp.shape(step)) * step

        return jax.tree_util.tree_map_with_path(in_unit, updates), state

    return optax.GradientTransformation(optimizer.init, update)


def _guessed(name: str, ndim: int) -> str | None:
    """The role of a parameter, from its name alone."""
    if not ndim:
        return None
    known = (*_FRAMES, *_WEIGHTS, "coupling/spline", "head_kernel")
    ends = next((role for role in known if name.endswith(f"/{role}")), None)
    if ends is None and _steers_a_leaf(name):
        return name
    if ends is None and re.search(r"^[^/]+/encoder\d*/", name):
        return "layer"
    return "chain" if ends is None and re.search(r"_coupling_\d+$", name) else ends


def location_names(problem: Problem) -> dict[str, str]:
    """The parameter that holds each site's location, by address, where a site has one."""
    guide = problem.guide
    if not isinstance(guide, AutoASVI):
        return {}
    return {
        site.address: guide.parameter_name(site, "loc/data_term")
        for site in problem.program.latent
        if "loc/data_term" in guide._declared[site.address]
    }
