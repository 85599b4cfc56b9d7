"""Takes a mode and its curvature; gives parameters of the guide: the nearest Gaussian it can hold.

The guide's noise makes the latent numbers as :math:`u = m + A\\epsilon`, where A has an entry
wherever a site listens to another. For a target with precision H the closest such Gaussian, by
KL(q‖p), has for column j, over the rows S that listen to j,

.. math:: A_{Sj} = x / \\sqrt{x_j}, \\qquad x = H_{SS}^{-1} e_j,

which is the inverse of H's Cholesky factor where everybody listens to everybody, and
:math:`1/\\sqrt{H_{jj}}` where nobody does.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro import handlers

from asvi.families import ConvexUpdate
from asvi.families.noise import Heard, is_direct, noise_shape
from asvi.fitting.curvature import Mode
from asvi.fitting.noise_space import NoiseSpace
from asvi.fitting.problem import Problem
from asvi.fitting.units import units as named_units
from asvi.guide import AutoASVI
from asvi.reading import SurrogateReading

__all__ = ["can_project", "project"]

FREE = 0.02  # prior weight of a site that holds a mode: nearly, and not quite, mean field
BOUND = 0.9999


def can_project(problem: Problem) -> bool:
    """Whether every site's family has the parameters that a mode is written into."""
    guide = problem.guide
    if not isinstance(guide, AutoASVI):
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
    problem: Problem, arrays: list[Any], mode: Mode, start: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Parameters as a flat vector, and the unit of a step in each.

    A site without parents whose location and scale are parameters takes the mode in these. The
    others keep their prior (scaled down, where they have a scale) and take it as offset, stretch
    and frame of their noise.
    """
    space = NoiseSpace(problem)
    guide: Any = problem.guide
    sites = [problem.program.with_parents(site) for site in problem.program.latent]
    direct = {site.address for site in sites if is_direct(site)}
    located = {s.address for s in sites if s.address in direct and not s.parents}
    heard = _wiring(problem, space, arrays)
    factor = _factor(mode.precision, _listeners(space, heard))
    where = {a: np.asarray(i) for a, i in space.numbers().items()}
    own = np.diag(factor)
    # What scales a number's noise: its site's scale, or a stretch of the noise itself.
    scaled = np.zeros(space.size, bool)
    for address in direct:
        scaled[where[address]] = True
    scales, stretches = np.where(scaled, own, 1.0), np.where(scaled, 1.0, own)
    moved = [np.ravel(where[s.address]) for s in sites if s.address not in located]
    middle, offset = _centre(factor, mode.numbers, np.concatenate([*moved, []]).astype(int))
    frame = factor / scales[:, None] / stretches
    params = {k: np.array(v, float) for k, v in problem.params(start).items()}
    unit = {k: np.asarray(v, float) for k, v in problem.unravel(named_units(problem)).items()}
    for site in sites:
        index, prefix = where[site.address], guide.parameter_name(site, "")
        declared = guide._declared[site.address]
        loc, scale = mode.loc[index], mode.scale[index]
        reach = np.ones(index.shape)  # how much more than its own noise a site's scale multiplies
        for kind in ("dense", "aligned", "window", "within"):
            if f"frame/{kind}" in declared:
                rows = heard[f"{site.address}|{kind}"]
                weights = np.where(rows >= 0, frame[index[..., None], np.maximum(rows, 0)], 0.0)
                params[prefix + f"frame/{kind}"] = weights
                reach = reach + np.sum(weights**2, -1)
        values: dict[str, Any] = {}
        if site.address in located:
            values |= _free(loc + scale * middle[index], scale * own[index], loc, scale)
        else:
            values["coupling/offset"] = (offset * stretches)[index]
            values["coupling/stretch"] = np.log(stretches)[index]
            if site.address in direct:
                values |= _in_the_noise(own[index], scale)
        for name, value in values.items():
            if prefix + name in params:
                params[prefix + name] = np.broadcast_to(value, params[prefix + name].shape)
        if "coupling/offset" not in declared:
            unit[prefix + "loc/data_term"] = scale * own[index]
        else:
            _slow_down(unit, prefix, site.address in located, list(declared), reach)
    return _flat(problem, params), _in_order(problem, unit)


def _slow_down(
    unit: dict[str, np.ndarray], prefix: str, held: bool, names: list[str], reach: np.ndarray
) -> None:
    """Units of a site's own leaves, which multiply all that it hears.

    A location and scale that took the mode are held: offset, stretch and weights say all but how
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


def _centre(factor: np.ndarray, numbers: np.ndarray, moved: np.ndarray):
    """Where sites with a location of their own lie, and the offset of the noise of the others."""
    offset = np.zeros_like(numbers)
    if len(moved):
        offset[moved] = np.linalg.solve(factor[np.ix_(moved, moved)], numbers[moved])
    return numbers - factor @ offset, offset


def _free(middle, own_scale, loc, scale) -> dict[str, Any]:
    """A location and scale of its own: prior weights near 0."""
    weight = np.minimum(FREE, 0.5 * own_scale / scale)
    return {
        "loc/prior_weight": FREE,
        "loc/data_term": (middle - FREE * loc) / (1 - FREE),
        "scale/prior_weight": weight,
        "scale/data_term": (own_scale - weight * scale) / (1 - weight),
    }


def _in_the_noise(own, scale) -> dict[str, Any]:
    """Location at the prior's, scale a fraction of it."""
    weight = np.clip(own, 1e-3, BOUND)
    return {
        "loc/prior_weight": BOUND,
        "scale/prior_weight": weight,
        "scale/data_term": (np.maximum(own - weight, 0.0) / (1 - weight) + 1e-3 * own) * scale,
    }


def _flat(problem: Problem, params: dict[str, np.ndarray]) -> jax.Array:
    free = {}
    for name, value in params.items():
        transform = problem._transforms[name]
        free[name] = transform.inv(jnp.asarray(value, problem.dtype))
    return _in_order(problem, free)


def _in_order(problem: Problem, values: dict[str, Any]) -> jax.Array:
    ordered = {name: jnp.asarray(values[name], problem.dtype) for name in sorted(values)}
    return ravel_pytree(ordered)[0]


def _factor(precision: np.ndarray, listeners: list[np.ndarray]) -> np.ndarray:
    factor = np.zeros_like(precision)
    for j, rows in enumerate(listeners):
        block = precision[np.ix_(rows, rows)]
        unit = (rows == j).astype(float)
        column = np.linalg.solve(
            block + 1e-12 * np.trace(block) * np.eye(len(rows)) / len(rows), unit
        )
        own = column[rows == j][0]
        factor[rows, j] = column / np.sqrt(max(own, 1e-300))
    return factor


def _listeners(space: NoiseSpace, heard: dict[str, np.ndarray]) -> list[np.ndarray]:
    """For each latent number, itself and the numbers that listen to it."""
    hears = np.eye(space.size, dtype=bool)
    numbers = {a: np.asarray(i) for a, i in space.numbers().items()}
    for name, rows in heard.items():
        index = numbers[name.split("|")[0]]
        mine = np.broadcast_to(index[..., None], rows.shape)
        hears[mine[rows >= 0], rows[rows >= 0]] = True
    return [np.flatnonzero(hears[:, j]) for j in range(space.size)]


class _Wiring(SurrogateReading):
    """The guide run with the index of each latent number in place of its noise."""

    def __init__(self, guide: Any, args: tuple, kwargs: dict[str, Any], numbers: dict[str, Any]):
        super().__init__(guide, args, kwargs)
        self.index = {a: jnp.asarray(i, float) + 1.0 for a, i in numbers.items()}  # 0 is nobody

    def thread(self, path: tuple[str, ...], length: int, reverse: bool) -> dict[str, Any]:
        threaded = super().thread(path, length, reverse)
        for site in self.program.in_block(path):
            threaded[f"index|{site.address}"] = self._index(site.address)
        return threaded

    def _index(self, address: str) -> jax.Array:
        return (
            self.index[address] if self.frame.is_root else self.frame.threaded[f"index|{address}"]
        )

    def visit(self, msg: dict[str, Any]) -> None:
        super().visit(msg)
        address = "/".join((*self.frame.path, msg["name"]))
        context = self.contexts.get(address)
        if address not in self.sites or context is None:
            return
        index = self._index(address)
        if not context.frame:
            return  # no weights to write a curvature into
        for name, noise in self._heard(context).items():
            if name == "gates":
                continue
            noise = noise.drawn
            between = index.ndim + 1 - noise.ndim
            wide = noise.reshape(noise.shape[:-1] + (1,) * between + noise.shape[-1:])
            self.frame.extras[f"heard|{address}|{name}"] = jnp.broadcast_to(
                wide, index.shape + noise.shape[-1:]
            )
        if context.within:
            blocks = index.reshape((-1, context.within))
            rows = jnp.where(
                jnp.tril(jnp.ones((context.within,) * 2), -1) > 0, blocks[:, None, :], 0.0
            )
            self.frame.extras[f"heard|{address}|within"] = rows.reshape((*index.shape, -1))

    def _residual(self, address: str, msg: dict[str, Any]) -> Heard:
        return Heard(self._index(address), self._index(address))


def _wiring(problem: Problem, space: NoiseSpace, arrays: list[Any]) -> dict[str, np.ndarray]:
    """For each site and kind of edge, the index of the number behind each weight; -1 for none."""
    guide: Any = problem.guide

    def run(arrays: list[Any]) -> dict[str, jax.Array]:
        args, kwargs = problem.arguments(arrays)
        reading = _Wiring(guide, args, kwargs, space.numbers())
        with handlers.trace(), handlers.seed(rng_seed=jax.random.key(0)), reading:
            problem.model(*args, **kwargs)
        extras = reading.frame.extras.items()
        return {k.removeprefix("heard|"): v for k, v in extras if k.startswith("heard|")}

    # Compiled, all but the moving of indices falls away.
    found = problem.jit("wiring", lambda: run)(arrays)
    return {name: np.rint(np.asarray(value)).astype(int) - 1 for name, value in found.items()}
