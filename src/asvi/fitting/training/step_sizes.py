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

from asvi.families.amortized.settings import AmortizedSettings
from asvi.families.coupled.settings import CouplingSettings
from asvi.families.guide_protocol import as_guide
from asvi.families.parameter import PRIOR_SCALE, Parameter, layer_step
from asvi.fitting.problem import Problem

__all__ = ["in_order", "named_step_sizes", "natural_units", "step_sizes", "upper_limits"]


def step_sizes(problem: Problem) -> jax.Array:
    """The unit of every parameter, (parameters,), at the prior."""
    return jnp.asarray(in_order(named_step_sizes(problem)), problem.dtype)


def upper_limits(problem: Problem) -> np.ndarray:
    """How far up each parameter may go, (parameters,): the gates' own, the others anywhere.

    A gate that is at the prior in single precision has no gradient, and neither has the data term
    behind it. Held at a prior weight of 0.9997 it loses next to nothing and can still go back. At
    the other end the data term rules, and a narrow posterior needs that: there is no limit.
    """
    shut = {
        name: float(problem.vector.transforms[name].inv(parameter.upper))
        for name, parameter in problem.guide.parameters().items()
        if np.isfinite(parameter.upper)
    }
    return in_order(
        {
            name: jax.tree.map(lambda x, name=name: np.full(x.shape, shut.get(name, np.inf)), value)
            for name, value in problem.vector.shapes.items()
        }
    )


def in_order(values: dict[str, Any]) -> np.ndarray:
    """One vector of these numbers, in the order of a problem's parameters."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(values)])


def named_step_sizes(problem: Problem) -> dict[str, Any]:
    """The same by name: a site without parents has its location measured in the prior's scale."""
    known = problem.guide.parameters()
    network_step = AmortizedSettings().network_step  # a network of the model's own moves as ours
    found = {
        name: np.full(value.shape, _step_of(known.get(name)))
        if hasattr(value, "shape")
        else jax.tree.map(lambda x: np.full(x.shape, layer_step(x.shape, network_step)), value)
        for name, value in problem.vector.shapes.items()
    }
    scales = problem.prior_scales
    for name, parameter in known.items():
        if parameter.step_size == PRIOR_SCALE and parameter.address in scales:
            scale = np.asarray(scales[parameter.address], float)
            scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
            shape = found[name].shape
            found[name] = np.broadcast_to(_at_full_size(scale, shape), shape)
    return found


def _step_of(parameter: Parameter | None) -> float:
    """Of a parameter, where the prior's scale is not known; 1 of the model's own."""
    if parameter is None or parameter.step_size == PRIOR_SCALE:
        return 1.0
    return float(parameter.step_size) if parameter.trained else 0.0


def _at_full_size(scale: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Scales of the members of plates that are seen, as one for all where others are not seen."""
    lead = len(shape) - scale.ndim
    parts = tuple(k for k in range(scale.ndim) if scale.shape[k] not in (1, shape[lead + k]))
    return np.exp(np.mean(np.log(scale), parts, keepdims=True)) if parts else scale


def natural_units(
    optimizer: optax.GradientTransformation, guide: Any = None
) -> optax.GradientTransformation:
    """``optimizer`` with the steps that :func:`asvi.fit` takes, for ``numpyro.infer.SVI``.

    A step of Adam moves every number by about the learning rate. A row of k coupling weights adds
    up, so its steps are made shorter by a factor of √k; and weights that a Gaussian gave are held
    where they are. Without it, a coupled family or a chain family with a state of 100 numbers takes
    steps that are ten times too long.

    :param guide: the guide whose parameters are stepped. It knows what each of them is; without it
        that is guessed from their names, which a site's own name may resemble.

    >>> import numpyro, numpyro.distributions as dist, optax, asvi
    >>> model = lambda: numpyro.sample("x", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
    >>> guide = asvi.AutoASVI(model, family=asvi.families.Coupled())
    >>> svi = numpyro.infer.SVI(model, guide, natural_units(optax.sgd(1.0), guide), asvi.ELBO())
    >>> state = svi.init(jax.random.key(0))
    >>> step = natural_units(optax.sgd(1.0), guide)
    >>> params = {"auto/x/coupling/within": jnp.zeros((4, 4)), "auto/x/loc/data_term": jnp.zeros(4)}
    >>> change, _ = step.update(jax.tree.map(jnp.ones_like, params), step.init(params), params)
    >>> {name: float(x.min()) for name, x in change.items()}
    {'auto/x/coupling/within': -0.5, 'auto/x/loc/data_term': -1.0}
    """
    if guide is None:
        warnings.warn(
            "natural_units(optimizer) guesses from names what the parameters are.\n"
            "Write instead:\n    asvi.natural_units(optimizer, guide)",
            DeprecationWarning,
            stacklevel=2,
        )

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, state = optimizer.update(updates, state, params)
        known = None if guide is None else as_guide(guide).parameters()

        def in_unit(path: tuple[Any, ...], step: jax.Array) -> jax.Array:
            name = getattr(path[0], "key", None) if path else None
            if not isinstance(name, str):
                return step
            guessed = known is None
            size = _guessed(name, jnp.shape(step)) if guessed else _step_of(known.get(name))
            return size * step

        return jax.tree_util.tree_map_with_path(in_unit, updates), state

    return optax.GradientTransformation(optimizer.init, update)


def _guessed(name: str, shape: tuple[int, ...]) -> float:
    """The step of a parameter, from its name alone."""
    coupling, network_step = CouplingSettings(), AmortizedSettings().network_step
    kinds = "dense|aligned|window|within"
    steered = "bend_gates|bend_cell|stretch_gates|stretch_cell|loudness|voice"

    def ends(pattern: str) -> bool:
        return re.search(rf"/({pattern})$", name) is not None

    if not shape:
        return 1.0
    if ends(rf"frame/({kinds})"):
        return 0.0
    if ends("coupling/spline"):
        return coupling.spline_step
    if ends("head_kernel"):
        return network_step / np.sqrt(shape[0])
    if ends(rf"coupling/({kinds}|{steered})") or re.search(r"_coupling_\d+$", name):
        return 1.0 / np.sqrt(shape[-1])
    if ends("data_term_coupling|prior_weight_coupling"):
        return coupling.global_step / np.sqrt(shape[-1])
    return layer_step(shape, network_step) if re.search(r"^[^/]+/encoder\d*/", name) else 1.0
