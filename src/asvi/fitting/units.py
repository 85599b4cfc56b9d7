"""Takes a problem's parameters; gives the length of one step of the optimiser in each of them.

Adam moves every number by about the learning rate, whatever its gradient. So each number is
measured in a unit in which a move of 1 changes the guide by about one standard deviation: a
location in standard deviations of its site, a row of k coupling weights, which add up, in
:math:`1/\\sqrt k`. Without it a coefficient whose posterior is 10⁴ times narrower than its
neighbour's would never settle.
"""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from asvi.fitting.problem import Problem
from asvi.guide import AutoASVI

__all__ = ["location_names", "units"]

GATE_UNIT = 0.25  # the gate's own gain is 4
NETWORK_UNIT = 0.5  # layers multiply: half a step in each


def units(problem: Problem) -> jax.Array:
    """The unit of every parameter, (parameters,), at the prior: a site without parents has its
    location measured in the prior's scale.
    """
    example = problem.unravel(jnp.zeros(problem.size, problem.dtype))
    found = {
        name: jax.tree.map(lambda x, name=name: np.full(x.shape, _of_name(name, x.shape)), value)
        if hasattr(value, "shape")
        else jax.tree.map(lambda x: np.full(x.shape, _of_layer(x.shape)), value)
        for name, value in example.items()
    }
    scales = problem.prior_scales
    for address, name in location_names(problem).items():
        if address in scales:
            scale = np.asarray(scales[address], float)
            usable = np.isfinite(scale) & (scale > 0)
            found[name] = np.broadcast_to(np.where(usable, scale, 1.0), found[name].shape)
    flat = ravel_pytree(jax.tree.map(lambda x: jnp.asarray(x, problem.dtype), found))[0]
    return flat.astype(problem.dtype)


def _of_layer(shape: tuple[int, ...]) -> float:
    """Weights of a layer add up: a row of k of them is measured in :math:`1/\\sqrt k`."""
    return NETWORK_UNIT / np.sqrt(np.prod(shape[:-1])) if len(shape) > 1 else NETWORK_UNIT


def _of_name(name: str, shape: tuple[int, ...]) -> float:
    if "/frame/" in name:
        return 0.0  # held where the start put it
    if re.search(r"^[^/]+/encoder\d*/", name):
        return _of_layer(shape)
    if name.endswith("/head_kernel"):
        return NETWORK_UNIT / np.sqrt(shape[0])
    if name.endswith("_coupling"):
        return GATE_UNIT / np.sqrt(shape[-1])
    if "/coupling/" in name and not name.endswith(("/offset", "/stretch")):
        return 1.0 / np.sqrt(shape[-1])
    return 1.0


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
