"""Takes a guide and the layout of its noise; gives who listens to whom, number by number.

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
from numpyro import handlers

from asvi.families.moved import Heard
from asvi.fitting.noise_space import NoiseSpace
from asvi.fitting.problem import Problem
from asvi.reading import SurrogateReading

__all__ = ["factor", "listeners", "wiring"]


def factor(precision: np.ndarray, listening: list[np.ndarray]) -> np.ndarray:
    """A of the closest Gaussian that the edges allow to one of this precision."""
    order = np.argsort([-len(rows) for rows in listening], kind="stable")
    if all(len(listening[j]) == len(order) - k for k, j in enumerate(order)):
        # Everybody hears everybody before him: the inverse of a Cholesky factor from the end.
        last_first = np.ix_(order[::-1], order[::-1])
        try:
            found = np.zeros_like(precision)
            found[last_first] = np.linalg.inv(np.linalg.cholesky(precision[last_first])).T
            return found
        except np.linalg.LinAlgError:
            pass  # nearly singular: each column by itself, with a little added
    found = np.zeros_like(precision)
    for j, rows in enumerate(listening):
        block = precision[np.ix_(rows, rows)]
        unit = (rows == j).astype(float)
        column = np.linalg.solve(
            block + 1e-12 * np.trace(block) * np.eye(len(rows)) / len(rows), unit
        )
        own = column[rows == j][0]
        found[rows, j] = column / np.sqrt(max(own, 1e-300))
    return found


def listeners(space: NoiseSpace, heard: dict[str, np.ndarray]) -> list[np.ndarray]:
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
            if name in ("gates", "cell"):
                continue
            noise = noise.drawn
            if name == "window":
                noise = jnp.ravel(noise[: context.window])
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


def wiring(problem: Problem, space: NoiseSpace, arrays: list[Any]) -> dict[str, np.ndarray]:
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
