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
from asvi.guide.residuals import collect_inputs
from asvi.guide.surrogate_run import SurrogateRun
from asvi.program.addresses import BodyPath, address_of

__all__ = ["Edges", "build_edge_mask", "trace_edges"]

Edges = dict[tuple[str, str], np.ndarray]
"""For each site, by address, and kind of edge: the number behind each weight; -1 for none."""


def build_edge_mask(space: NoiseSpace, edges: Edges) -> Arrowhead:
    """Who listens to whom: true at the row of a number and the column of one of its sources."""
    numbers = {a: np.asarray(i) for a, i in space.numbers().items()}
    rows, columns = [np.zeros(0, int)], [np.zeros(0, int)]
    for (address, _kind), sources in edges.items():
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
        inputs = self.inputs.get(address)
        if address not in self.sites or inputs is None:
            return
        index = self._index(address)
        if not inputs.fixed_coupling:
            return  # no weights to write a curvature into
        for kind, residual in collect_inputs(self.body, inputs, self.sites).items():
            if kind in ("globals", "member"):
                continue
            sources = residual.drawn
            if kind == "lookback":
                sources = jnp.ravel(sources[: inputs.lookback])
            between = index.ndim + 1 - sources.ndim
            wide = sources.reshape(sources.shape[:-1] + (1,) * between + sources.shape[-1:])
            self.body.outputs["edges", address, kind] = jnp.broadcast_to(
                wide, index.shape + sources.shape[-1:]
            )
        if inputs.within:
            blocks = index.reshape((-1, inputs.within))
            rows = jnp.where(
                jnp.tril(jnp.ones((inputs.within,) * 2), -1) > 0, blocks[:, None, :], 0.0
            )
            self.body.outputs["edges", address, "within"] = rows.reshape((*index.shape, -1))

    def _residual(self, address: str, msg: dict[str, Any]) -> Residual:
        return Residual(self._index(address), self._index(address))


def trace_edges(guide: Any, bound: BoundModel, space: NoiseSpace) -> Edges:
    """The edges of a guide that is set up for this model."""

    def run() -> dict[Any, jax.Array]:
        args, kwargs = bound.arguments
        tracing = _EdgeTracing(guide, args, kwargs, space.numbers())
        with handlers.trace(), handlers.seed(rng_seed=jax.random.key(0)), tracing:
            bound.model(*args, **kwargs)
        extras = tracing.body.outputs.items()
        return {k[1:]: v for k, v in extras if k[0] == "edges"}

    # Compiled, all but the moving of indices falls away.
    found = bound.jit("edges", lambda: run)()
    return {name: np.rint(np.asarray(value)).astype(int) - 1 for name, value in found.items()}
