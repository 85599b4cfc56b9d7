"""Takes a guide and the layout of its noise; gives who listens to whom, number by number."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

from asvi.density.arrowhead import Arrowhead
from asvi.density.bound_model import BoundModel
from asvi.density.noise_space import NoiseSpace
from asvi.distributions.warped_noise import Residual
from asvi.guide.surrogate_run import SurrogateRun
from asvi.program.addresses import BodyPath, address_of

__all__ = ["Edges", "build_edge_mask", "trace_edges"]

Edges = dict[tuple[str, str], np.ndarray]
"""For each site, by address, and kind of edge: the number behind each weight; -1 for none."""


def build_edge_mask(space: NoiseSpace, heard: Edges) -> Arrowhead:
    """Who listens to whom: true at the row of a number and the column of one that it hears."""
    numbers = {a: np.asarray(i) for a, i in space.numbers().items()}
    rows, columns = [np.zeros(0, int)], [np.zeros(0, int)]
    for (address, _kind), sources in heard.items():
        index = numbers[address]
        mine = np.broadcast_to(index[..., None], sources.shape)
        rows.append(mine[sources >= 0])
        columns.append(sources[sources >= 0])
    return Arrowhead.of_pairs(space.structure, np.concatenate(rows), np.concatenate(columns))


class _EdgeTracing(SurrogateRun):
    """The guide run with the index of each latent number in place of its noise."""

    def __init__(self, guide: Any, args: tuple, kwargs: dict[str, Any], numbers: dict[str, Any]):
        super().__init__(guide, args, kwargs)
        self.index = {a: jnp.asarray(i, float) + 1.0 for a, i in numbers.items()}  # 0 is nobody

    def thread(self, path: BodyPath, length: int, reverse: bool) -> dict[Any, Any]:
        threaded = super().thread(path, length, reverse)
        for site in self.program.in_block(path):
            threaded["index", site.address] = self._index(site.address)
        return threaded

    def _index(self, address: str) -> jax.Array:
        return self.index[address] if self.body.is_root else self.body.scanned["index", address]

    def visit(self, msg: dict[str, Any]) -> None:
        super().visit(msg)
        address = address_of(self.body.path, msg["name"])
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
            self.body.outputs["heard", address, name] = jnp.broadcast_to(
                wide, index.shape + noise.shape[-1:]
            )
        if context.within:
            blocks = index.reshape((-1, context.within))
            rows = jnp.where(
                jnp.tril(jnp.ones((context.within,) * 2), -1) > 0, blocks[:, None, :], 0.0
            )
            self.body.outputs["heard", address, "within"] = rows.reshape((*index.shape, -1))

    def _residual(self, address: str, msg: dict[str, Any]) -> Residual:
        return Residual(self._index(address), self._index(address))


def trace_edges(guide: Any, bound: BoundModel, space: NoiseSpace) -> Edges:
    """The edges of a guide that is set up for this model."""

    def run() -> dict[Any, jax.Array]:
        args, kwargs = bound.arguments
        reading = _EdgeTracing(guide, args, kwargs, space.numbers())
        with handlers.trace(), handlers.seed(rng_seed=jax.random.key(0)), reading:
            bound.model(*args, **kwargs)
        extras = reading.body.outputs.items()
        return {k[1:]: v for k, v in extras if k[0] == "heard"}

    # Compiled, all but the moving of indices falls away.
    found = bound.jit("wiring", lambda: run)()
    return {name: np.rint(np.asarray(value)).astype(int) - 1 for name, value in found.items()}
