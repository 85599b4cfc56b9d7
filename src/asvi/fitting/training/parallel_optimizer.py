"""Takes a problem and settings; gives optimisation steps of several lanes in one compiled program.

A *lane* is one optimiser with its own parameters, learning rate and draws. While lanes race, each
goes its own way; later they all hold the same parameters and *pool* their gradients, so the same
program serves restarts, a race over learning rates, and a step with many draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asvi.fitting.problem import Problem
from asvi.program.checks.failures import differentiating

__all__ = [
    "ADAM",
    "ChunkInputs",
    "ParallelState",
    "advance",
    "advance_soon",
    "draw_elbos",
    "evaluate_with_noise",
    "new_state",
]

#: One object, so that programs compiled for it are found again.
ADAM = optax.chain(optax.scale_by_adam(), optax.scale(-1.0))
CLIP = 10.0


class ParallelState(NamedTuple):
    """State of all lanes; every array has the lanes as its first axis."""

    free: jax.Array  # (lanes, parameters)
    inner: Any  # the optimiser's own state
    norm: jax.Array  # (lanes,) moving size of one lane's gradient, for clipping
    average: jax.Array  # (lanes, parameters) mean of the iterates since `averaged` was 0
    averaged: jax.Array  # (lanes,)
    skipped: jax.Array  # (lanes,) gradients that were not finite
    unit: jax.Array  # (lanes, parameters) length of a step in each number
    limit: jax.Array  # (lanes, parameters) no number goes further up


class ChunkInputs(NamedTuple):
    """What a chunk of steps is run with; inputs of the compiled program."""

    rates: jax.Array  # (lanes,) learning rates
    pool: jax.Array  # (lanes, lanes) how gradients are averaged over lanes; rows sum to 1
    temperature: jax.Array  # (lanes, 2) of the data, at the chunk's first and last step
    score_share: jax.Array  # (lanes,) 0 for path gradients, 1 for plain ones


def new_state(
    free: jax.Array,
    unit: jax.Array | None = None,
    optimizer: optax.GradientTransformation = ADAM,
    limit: jax.Array | None = None,
) -> ParallelState:
    """Lanes at their start: ``free`` is (lanes, parameters)."""
    flag = jnp.zeros(len(free), free.dtype)
    unit = jnp.ones_like(free) if unit is None else jnp.broadcast_to(unit, free.shape)
    limit = jnp.asarray(jnp.inf if limit is None else limit, free.dtype)
    limit = jnp.broadcast_to(limit, free.shape)
    inner = jax.vmap(optimizer.init)(free)
    return ParallelState(free, inner, flag, free, flag, flag, unit, limit)


def advance(
    problem: Problem,
    lanes: ParallelState,
    key: jax.Array,
    settings: ChunkInputs,
    *,
    steps: int,
    draws: int,
    optimizer: optax.GradientTransformation = ADAM,
    score_share: float | None = None,
) -> tuple[ParallelState, dict[str, jax.Array]]:
    """``steps`` steps in every lane; gives the lanes and, per step, losses and noise.

    With a ``score_share`` of 0 or 1 for all lanes, in place of that in ``settings``, the program
    has one kind of gradient only, and is smaller.
    """
    name, make = _advancing(problem, len(lanes.free), steps, draws, optimizer, score_share)
    return problem.bound.jit(name, make)(lanes, key, settings)


def advance_soon(
    problem: Problem,
    count: int,
    *,
    steps: int,
    draws: int,
    optimizer: optax.GradientTransformation = ADAM,
    score_share: float | None = None,
) -> None:
    """Let :func:`advance` be compiled for ``count`` lanes, beside what else goes on."""
    name, make = _advancing(problem, count, steps, draws, optimizer, score_share)
    dtype = problem.dtype

    def example() -> tuple[ParallelState, ChunkInputs]:
        lanes = new_state(jnp.zeros((count, problem.size), dtype), optimizer=optimizer)
        shapes = ((count,), (count, count), (count, 2), (count,))
        return lanes, ChunkInputs(*(jnp.zeros(shape, dtype) for shape in shapes))

    # In shapes alone: to make the arrays is some ten small programs, each of which would wait for
    # what is being compiled already.
    lanes, settings = jax.eval_shape(example)
    problem.bound.compile_ahead(name, make, lanes, jax.random.key(0), settings)


def _advancing(
    problem: Problem,
    count: int,
    steps: int,
    draws: int,
    optimizer: optax.GradientTransformation,
    known: float | None,
) -> tuple[Any, Callable]:
    def compiled(lanes: ParallelState, key: jax.Array, settings: ChunkInputs):
        def loss(free, key, temperature, score_share):
            if known is not None:  # plain gradients need no path
                score_share = None if known == 1 else known
            keys = jax.random.split(key, draws)
            return problem.loss(free, keys, temperature, score_share)

        def step(lanes: ParallelState, inputs):
            key, temperature = inputs
            keys = jax.random.split(key, count)
            with differentiating():
                losses, gradients = jax.vmap(jax.value_and_grad(loss))(
                    lanes.free, keys, temperature, settings.score_share
                )
            return _apply(lanes, losses, gradients, settings, optimizer)

        keys = jax.random.split(key, steps)
        temperatures = jnp.linspace(settings.temperature[:, 0], settings.temperature[:, 1], steps)
        return jax.lax.scan(step, lanes, (keys, temperatures))

    return ("advance", count, steps, draws, optimizer, known), lambda: compiled


def _apply(
    lanes: ParallelState,
    losses: jax.Array,
    gradients: jax.Array,
    settings: ChunkInputs,
    optimizer: optax.GradientTransformation = ADAM,
):
    # A gradient whose square overflows counts as infinite: it would reach the other lanes' sums.
    fine = jnp.isfinite(losses) & jnp.isfinite(jnp.sum(gradients**2, -1))
    # In natural units; see `units.py`.
    gradients = jnp.where(fine[:, None], gradients, 0.0) * lanes.unit
    # Heavy-tailed gradients (a scale drawn near 0) are cut to a multiple of their usual size: one
    # of them would fill Adam's memory of squares for a thousand steps.
    size = jnp.linalg.norm(gradients, axis=-1)
    limit = jnp.where(lanes.norm > 0, CLIP * lanes.norm, jnp.inf)
    gradients = gradients * jnp.minimum(1.0, limit / jnp.maximum(size, 1e-30))[:, None]
    seen = jnp.minimum(size, limit)
    norm = jnp.where(lanes.norm > 0, 0.98 * lanes.norm + 0.02 * seen, seen)
    norm = jnp.where(fine, norm, lanes.norm)

    weight = settings.pool * fine[None, :]
    total = weight.sum(1)
    moving = total > 0
    share = weight / jnp.maximum(total, 1e-30)[:, None]
    pooled = share @ gradients
    spread = share @ gradients**2 - pooled**2  # variance over the lanes of a pool

    change: Any
    change, inner = jax.vmap(optimizer.update)(pooled, lanes.inner, lanes.free)
    free = lanes.free + settings.rates[:, None] * lanes.unit * change
    free = jnp.minimum(free, lanes.limit)
    averaged = lanes.averaged + 1
    average = lanes.average + (free - lanes.average) / averaged[:, None]

    spread = jnp.sum(spread, -1)
    noise = spread / (jnp.sum(pooled**2, -1) + 1e-12)  # of one lane's gradient, to the pooled one
    new = ParallelState(
        free, inner, norm, average, averaged, lanes.skipped, lanes.unit, lanes.limit
    )
    kept = jax.tree.map(
        lambda a, b: jnp.where(moving.reshape((-1,) + (1,) * (a.ndim - 1)), a, b), new, lanes
    )
    kept = kept._replace(skipped=lanes.skipped + (~fine).astype(lanes.skipped.dtype))
    return kept, {"loss": losses, "noise": noise, "spread": spread, "square": seen**2}


def draw_elbos(
    problem: Problem,
    free: jax.Array,
    key: jax.Array,
    *,
    draws: int,
    streams: Sequence[int] | None = None,
) -> jax.Array:
    """ELBO draws of each row of ``free``: (lanes, draws). Lanes of one stream have the same noise.

    Without ``streams`` (lanes,), numbers below that of lanes, each lane has its own.
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
    """The same, and the noise that entered splines, by site: (lanes, draws, ...). One program."""

    def compiled(free, key, streams):
        keys = jax.random.split(key, (len(free), draws))[streams]

        def lane(free, keys):
            return jax.lax.map(lambda k: problem.elbo_and_noise(free, k), keys, batch_size=32)

        return jax.vmap(lane)(free, keys)

    order = np.arange(len(free)) if streams is None else np.asarray(streams)
    name = ("evaluate", len(free), draws)
    return problem.bound.jit(name, lambda: compiled)(free, key, order.astype(np.int32))
