"""Takes a Gaussian over the noise; gives parameters of the guide that hold it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.families import ConvexUpdate
from asvi.families.noise import is_direct, noise_shape
from asvi.fitting.gaussian import Gaussian
from asvi.fitting.noise_space import NoiseSpace
from asvi.fitting.problem import Problem
from asvi.fitting.units import in_order, named_units
from asvi.fitting.wiring import factor, listeners, wiring
from asvi.guide import AutoASVI

__all__ = ["can_project", "project"]

FREE = 0.02  # prior weight of a site that holds the Gaussian: nearly, and not quite, mean field
BOUND = 0.99  # of a prior weight near 1: any nearer, and its gradient vanishes


def can_project(problem: Problem) -> bool:
    """Whether every site's family has the parameters that a Gaussian is written into."""
    guide = problem.guide
    if not isinstance(guide, AutoASVI) or problem.has_networks:
        return False
    for site in map(problem.program.with_parents, problem.program.latent):
        if not isinstance(guide._family_of[site.address], ConvexUpdate):
            return False
        if "coupling/offset" in guide._declared[site.address]:
            continue
        if site.parents or noise_shape(site) is None or not is_direct(site):
            return False
    return True


def project(
    problem: Problem, gaussian: Gaussian, start: jax.Array, play: float = 1e-4
) -> tuple[jax.Array, jax.Array]:
    """Parameters as a flat vector, and the unit of a step in each.

    A site without parents whose location and scale are parameters takes mean and scale in these.
    The others keep their prior (scaled down, where they have a scale) and take it as offset,
    stretch and frame of their noise. ``play`` says how far, in standard deviations, a number may
    be moved because prior weights are not quite 1.
    """
    space = NoiseSpace(problem)
    guide: Any = problem.guide
    sites = [problem.program.with_parents(site) for site in problem.program.latent]
    direct = {site.address for site in sites if is_direct(site)}
    located = {s.address for s in sites if s.address in direct and not s.parents}
    heard = wiring(problem, space)
    spread = factor(gaussian.precision, listeners(space, heard))
    where = {a: np.asarray(i) for a, i in space.numbers().items()}
    own = spread.diagonal()
    # What scales a number's noise: its site's scale, or a stretch of the noise itself.
    scaled = np.zeros(space.size, bool)
    for address in direct:
        scaled[where[address]] = True
    scales, stretches = np.where(scaled, own, 1.0), np.where(scaled, 1.0, own)
    moved = np.zeros(space.size, bool)
    for site in sites:
        moved[where[site.address]] = site.address not in located
    # Where sites with a location of their own lie, and the offset of the noise of the others.
    offset = spread.solve(gaussian.mean, moved)
    middle = gaussian.mean - (spread @ offset[:, None])[:, 0]
    frame = spread.scaled(1 / scales, 1 / stretches)
    params = {k: np.array(v, float) for k, v in problem.found_params(start).items()}
    unit = {k: np.array(v, float) for k, v in named_units(problem).items()}
    for site in sites:
        index, prefix = where[site.address], guide.parameter_name(site, "")
        declared = guide._declared[site.address]
        loc, scale = gaussian.loc[index], gaussian.scale[index]
        reach = np.ones(index.shape)  # how much more than its own noise a site's scale multiplies
        for kind in ("dense", "aligned", "window", "within"):
            if f"frame/{kind}" in declared:
                rows = heard[f"{site.address}|{kind}"]
                mine = np.broadcast_to(index[..., None], rows.shape)
                weights = np.where(rows >= 0, frame.entries(mine, np.maximum(rows, 0)), 0.0)
                params[prefix + f"frame/{kind}"] = weights
                reach = reach + np.sum(weights**2, -1)
        values: dict[str, Any] = {}
        if site.address in located:
            values |= _free(loc + scale * middle[index], scale * own[index], loc, scale)
        else:
            values["coupling/offset"] = (offset * stretches)[index]
            values["coupling/stretch"] = np.log(stretches)[index]
            if site.address in direct:
                moved_by = np.broadcast_to(np.maximum(gaussian.loc_sd, 1e-12), own.shape)[index]
                values |= _in_the_noise(own[index], loc, scale, play / moved_by)
        for name, value in values.items():
            if prefix + name in params:
                params[prefix + name] = np.broadcast_to(value, params[prefix + name].shape)
        if "coupling/offset" not in declared:
            unit[prefix + "loc/data_term"] = scale * own[index]
        else:
            _slow_down(unit, prefix, site.address in located, list(declared), reach)
    return problem.free(params), jnp.asarray(in_order(unit), problem.dtype)


def _slow_down(
    unit: dict[str, np.ndarray], prefix: str, held: bool, names: list[str], reach: np.ndarray
) -> None:
    """Units of a site's own leaves, which multiply all that it hears.

    A location and scale that took it are held: offset, stretch and weights say all but how
    the scale follows other sites.
    """
    for name in names:
        if name.startswith(("coupling/", "frame/")):
            continue
        if held and name != "scale/data_term_coupling":
            unit[prefix + name] = 0.0 * unit[prefix + name]
        elif name.startswith("scale/") and unit[prefix + name].shape[: reach.ndim] == reach.shape:
            wide = reach[..., None] if name.endswith("_coupling") else reach
            unit[prefix + name] = unit[prefix + name] * wide**-0.5
        elif "loc/" not in name:
            unit[prefix + name] = unit[prefix + name] / np.sqrt(reach.max())


def _free(middle, own_scale, loc, scale) -> dict[str, Any]:
    """A location and scale of its own: prior weights near 0."""
    weight = np.minimum(FREE, 0.5 * own_scale / scale)
    return {
        "loc/prior_weight": FREE,
        "loc/data_term": (middle - FREE * loc) / (1 - FREE),
        "scale/prior_weight": weight,
        "scale/data_term": (own_scale - weight * scale) / (1 - weight),
    }


def _in_the_noise(own, loc, scale, play) -> dict[str, Any]:
    """Location at the prior's, scale a fraction of it.

    A prior weight cannot be 1. What is left of it draws to the location at the mean, and is so
    small that it does no harm where the location moves with the parents.
    """
    weight = np.clip(own, 1e-3, BOUND)
    left = play * own * scale
    return {
        "loc/prior_weight": np.clip(1 - left, BOUND, 0.9999),
        "loc/data_term": loc,
        "scale/prior_weight": weight,
        "scale/data_term": (np.maximum(own - weight, 0.0) / (1 - weight) + 1e-3 * own) * scale,
    }
