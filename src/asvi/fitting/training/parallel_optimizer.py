"""Takes a problem and inputs; gives optimisation steps of several restarts in one compiled program.

A *restart* is one optimiser with its own parameters, learning rate and draws. While restarts race,
each goes its own way; later they all hold the same parameters and *pool* their gradients, so the
same program serves a race over starts and learning rates, and a step with many draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asvi.fitting.problem import Problem
from asvi.fitting.training.settings import ADAM, Clipping
from asvi.program.checks.failures import differentiating

__all__ = [
    "ChunkInputs",
    "ParallelState",
    "advance",
    "advance_soon",
    "draw_elbos",
    "evaluate_with_noise",
    "new_state",
]


class ParallelState(NamedTuple):
    """State of all restarts; every array has the restarts as its first axis."""

    free: jax.Array  # (restarts, parameters)
    inner: Any  # the optimiser's own state
    norm: jax.Array  # (restarts,) moving size of one restart's gradient, for clipping
    average: jax.Array  # (restarts, parameters) mean of the iterates since `averaged` was 0
    averaged: jax.Array  # (restarts,)
    skipped: jax.Array  # (restarts,) gradients that were not finite
    unit: jax.Array  # (restarts, parameters) length of a step in each number
    limit: jax.Array  # (restarts, parameters) no number goes further up


class ChunkInputs(NamedTuple):
    """What a chunk of steps is run with; inputs of the compiled program."""

    rates: jax.Array  # (restarts,) learning rates
    pool: jax.Array  # (restarts, restarts) how gradients are averaged; rows sum to 1
    temperature: jax.Array  # (restarts, 2) of the data, at the chunk's first and last step
    score_share: jax.Array  # (restarts,) 0 for path gradients, 1 for plain ones


def new_state(
    free: jax.Array,
    unit: jax.Array | None = None,
    optimizer: optax.GradientTransformation = ADAM,
    limit: jax.Array | None = None,
) -> ParallelState:
    """Restarts at their start: ``free`` is (restarts, parameters)."""
    flag = jnp.zeros(len(free), free.dtype)
    unit = jnp.ones_like(free) if unit is None else jnp.broadcast_to(unit, free.shape)
    limit = jnp.asarray(jnp.inf if limit is None else limit, free.dtype)
    limit = jnp.broadcast_to(limit, free.shape)
    inner = jax.vmap(optimizer.init)(free)
    return ParallelState(free, inner, flag, free, flag, flag, unit, limit)


def advance(
    problem: Problem,
    parallel: ParallelState,
    key: jax.Array,
    inputs: ChunkInputs,
    *,
    steps: int,
    draws: int,
    optimizer: optax.GradientTransformation = ADAM,
    clipping: Clipping = Clipping(),
    score_share: float | None = None,
) -> tuple[ParallelState, dict[str, jax.Array]]:
    """``steps`` steps in every restart; gives the restarts and, per step, losses and noise.

    With a ``score_share`` of 0 or 1 for all restarts, in place of that in ``inputs``, the program
    has one kind of gradient only, and is smaller.
    """
    count = len(parallel.free)
    name, make = _chunk_function(problem, count, steps, draws, optimizer, clipping, score_share)
    return problem.bound.jit(name, make)(parallel, key, inputs)


def advance_soon(
    problem: Problem,
    count: int,
    *,
    steps: int,
    draws: int,
    optimizer: optax.GradientTransformation = ADAM,
    clipping: Clipping = Clipping(),
    score_share: float | None = None,
) -> None:
    """Let :func:`advance` be compiled for ``count`` restarts, beside what else goes on."""
    name, make = _chunk_function(problem, count, steps, draws, optimizer, clipping, score_share)
    dtype = problem.dtype

    def example() -> tuple[ParallelState, ChunkInputs]:
        parallel = new_state(jnp.zeros((count, problem.size), dtype), optimizer=optimizer)
        shapes = ((count,), (count, count), (count, 2), (count,))
        return parallel, ChunkInputs(*(jnp.zeros(shape, dtype) for shape in shapes))

    # In shapes alone: to make the arrays is some ten small programs, each of which would wait for
    # what is being compiled already.
    parallel, inputs = jax.eval_shape(example)
    problem.bound.compile_ahead(name, make, parallel, jax.random.key(0), inputs)


def _chunk_function(
    problem: Problem,
    count: int,
    steps: int,
    draws: int,
    optimizer: optax.GradientTransformation,
    clipping: Clipping,
    known: float | None,
) -> tuple[Any, Callable]:
    """Under which name a chunk of steps is kept, and what makes it."""

    def compiled(parallel: ParallelState, key: jax.Array, inputs: ChunkInputs):
        def loss(free, key, temperature, score_share):
            if known is not None:  # plain gradients need no path
                score_share = None if known == 1 else known
            keys = jax.random.split(key, draws)
            return problem.loss(free, keys, temperature, score_share)

        def step(parallel: ParallelState, of_step: tuple[jax.Array, jax.Array]):
            key, temperature = of_step
            keys = jax.random.split(key, count)
            with differentiating():
                losses, gradients = jax.vmap(jax.value_and_grad(loss))(
                    parallel.free, keys, temperature, inputs.score_share
                )
            return _apply(parallel, losses, gradients, inputs, optimizer, clipping)

        keys = jax.random.split(key, steps)
        temperatures = jnp.linspace(inputs.temperature[:, 0], inputs.temperature[:, 1], steps)
        return jax.lax.scan(step, parallel, (keys, temperatures))

    return ("advance", count, steps, draws, optimizer, clipping, known), lambda: compiled


def _apply(
    parallel: ParallelState,
    losses: jax.Array,
    gradients: jax.Array,
    inputs: ChunkInputs,
    optimizer: optax.GradientTransformation = ADAM,
    clipping: Clipping = Clipping(),
):
    # A gradient whose square overflows counts as infinite: it would reach the others' sums.
    fine = jnp.isfinite(losses) & jnp.isfinite(jnp.sum(gradients**2, -1))
    # In natural units; see `step_sizes.py`.
    gradients = jnp.where(fine[:, None], gradients, 0.0) * parallel.unit
    gradients, norm, size = _clipped(gradients, parallel.norm, clipping)
    norm = jnp.where(fine, norm, parallel.norm)

    weight = inputs.pool * fine[None, :]
    total = weight.sum(1)
    moving = total > 0
    share = weight / jnp.maximum(total, 1e-30)[:, None]
    pooled = share @ gradients
    spread = share @ gradients**2 - pooled**2  # variance over the restarts of a pool

    change: Any
    change, inner = jax.vmap(optimizer.update)(pooled, parallel.inner, parallel.free)
    free = parallel.free + inputs.rates[:, None] * parallel.unit * change
    free = jnp.minimum(free, parallel.limit)
    averaged = parallel.averaged + 1
    average = parallel.average + (free - parallel.average) / averaged[:, None]

    spread = jnp.sum(spread, -1)
    noise = spread / (jnp.sum(pooled**2, -1) + 1e-12)  # of one restart's gradient, to the pooled
    new = parallel._replace(free=free, inner=inner, norm=norm, average=average, averaged=averaged)
    kept = jax.tree.map(
        lambda a, b: jnp.where(moving.reshape((-1,) + (1,) * (a.ndim - 1)), a, b), new, parallel
    )
    kept = kept._replace(skipped=parallel.skipped + (~fine).astype(parallel.skipped.dtype))
    return kept, {"loss": losses, "noise": noise, "spread": spread, "square": size**2}


def _clipped(
    gradients: jax.Array, norm: jax.Array, clipping: Clipping
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients cut to a multiple of their usual length, that length now, and theirs."""
    size = jnp.linalg.norm(gradients, axis=-1)
    limit = jnp.where(norm > 0, clipping.factor * norm, jnp.inf)
    gradients = gradients * jnp.minimum(1.0, limit / jnp.maximum(size, 1e-30))[:, None]
    size = jnp.minimum(size, limit)
    usual = clipping.memory * norm + (1 - clipping.memory) * size
    return gradients, jnp.where(norm > 0, usual, size), size


def draw_elbos(
    problem: Problem,
    free: jax.Array,
    key: jax.Array,
    *,
    draws: int,
    streams: Sequence[int] | None = None,
) -> jax.Array:
    """ELBO draws of each row of ``free``: (rows, draws). Rows of one stream have the same noise.

    Without ``streams`` (rows,), numbers below that of rows, each row has its own.
    """
    return evaluate_with_noise(problem, free, key, draws=draws, streams=streams)[0]


def evaluate_with_noise(
    problem: Problem,
    free: jax.Array,
    key: jax.Array,
    *,
    draws: int,
    streams: Sequence[int] | None = None,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The same, and the noise that entered splines, by site: (rows, draws, ...). One program."""

    def compiled(free, key, streams):
        keys = jax.random.split(key, (len(free), draws))[streams]

        def row(free, keys):
            return jax.lax.map(lambda k: problem.elbo_and_noise(free, k), keys, batch_size=32)

        return jax.vmap(row)(free, keys)

    order = np.arange(len(free)) if streams is None else np.asarray(streams)
    name = ("evaluate", len(free), draws)
    return problem.bound.jit(name, lambda: compiled)(free, key, order.astype(np.int32))
