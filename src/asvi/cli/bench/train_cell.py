"""Takes a task and a column; gives one cell: many restarts trained side by side and judged."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro import handlers
from numpyro.infer import SVI

from asvi.cli.bench.protocol import Column, Protocol
from asvi.cli.bench.settings import CellSettings
from asvi.guide.auto_asvi import autoguide
from asvi.objective.elbo import ELBO
from asvi.tasks import Task

__all__ = ["Report", "draw_latents", "picture_of", "scaled_error", "train_cell"]

Report = Callable[[int, float], None]


def train_cell(
    task: Task,
    column: Column,
    protocol: Protocol,
    report: Report | None = None,
    settings: CellSettings = CellSettings(),
) -> dict[str, Any]:
    """Train ``protocol.seeds`` restarts in one compiled program; ``report(step, loss)`` as it goes.

    Gives, per seed: the negative ELBO from fresh draws with its standard error, the errors of
    posterior means and standard deviations, and the thinned loss curve.
    """
    args = tuple(map(jnp.asarray, task.args))
    guide = autoguide(task.model, family=column.family)
    svi = SVI(task.model, guide, optax.adam(column.learning_rate), ELBO(protocol.draws))
    train_key, judge_key = jax.random.split(jax.random.key(0))
    keys = jax.random.split(train_key, protocol.seeds)
    chunk = max(1, protocol.steps // settings.chunks)
    thin = max(1, protocol.steps // settings.curve_points)
    thin = thin if chunk % thin == 0 else chunk

    def run_chunk(state):
        def several(state, _):
            state, losses = jax.lax.scan(lambda s, _: svi.update(s, *args), state, length=thin)
            return state, losses.mean()

        return jax.lax.scan(several, state, length=chunk // thin)

    begin = time.perf_counter()
    svi.init(keys[0], *args)  # sets the guide up, outside of any transformation
    state = jax.jit(jax.vmap(lambda key: svi.init(key, *args)))(keys)
    compiled = jax.jit(jax.vmap(run_chunk)).lower(state).compile()
    compile_seconds = time.perf_counter() - begin

    begin = time.perf_counter()
    curves = []
    for i in range(protocol.steps // chunk):
        state, losses = compiled(state)
        curves.append(np.asarray(losses))
        if report is not None:
            report((i + 1) * chunk, float(np.nanmedian(curves[-1][:, -1])))
    train_seconds = time.perf_counter() - begin

    params = svi.get_params(state)
    judge_keys = jax.random.split(judge_key, protocol.seeds)
    judged = _judge(task, guide, args, params, judge_keys, protocol, settings.elbo_batch)
    done = (protocol.steps // chunk) * chunk
    return {
        **judged,
        "curve_steps": (thin * np.arange(1, done // thin + 1)).tolist(),
        "curves": np.concatenate(curves, 1),
        "steps": done,
        "compile_seconds": compile_seconds,
        "train_seconds": train_seconds,
        "learning_rate": column.learning_rate,
        "device": jax.devices()[0].device_kind,
    }


def draw_latents(guide: Callable, args: tuple, params: dict, key: jax.Array) -> dict[str, Any]:
    """One joint draw of the model's latent sites."""
    with handlers.trace() as trace, handlers.seed(rng_seed=key), handlers.substitute(data=params):
        guide(*args)
    return {
        name: site["value"]
        for name, site in trace.items()
        if site["type"] == "sample" and not site["infer"].get("is_auxiliary")
    }


def _judge(task: Task, guide, args, params, keys, protocol: Protocol, batch: int) -> dict[str, Any]:
    """ELBO and errors of moments, by restart."""
    one = ELBO(1)

    def elbo(params, key):
        def several(key):
            losses = jax.vmap(lambda k: one.loss(k, params, task.model, guide, *args))
            return losses(jax.random.split(key, batch))

        rounds = jax.random.split(key, -(-protocol.evaluation_draws // batch))
        losses = jax.lax.map(several, rounds).ravel()
        return losses.mean(), losses.std() / jnp.sqrt(losses.size)

    def moments(params, key, draws):
        values = jax.vmap(lambda k: draw_latents(guide, args, params, k))
        found = values(jax.random.split(key, draws))
        return (
            {k: v.mean(0) for k, v in found.items()},
            {k: v.std(0) for k, v in found.items()},
        )

    neg_elbo, error = jax.jit(jax.vmap(elbo))(params, keys)
    few, many = protocol.moment_draws
    exact = task.moments
    table: dict[str, Any] = {"neg_elbo": np.asarray(neg_elbo), "neg_elbo_se": np.asarray(error)}
    for draws in (few, many):
        mean, sd = jax.jit(
            # One restart after the other: ten thousand draws of each at once would need memory.
            lambda p, k, draws=draws: jax.lax.map(lambda pk: moments(pk[0], pk[1], draws), (p, k))
        )(params, keys)
        table[f"mean_error_{draws}"] = scaled_error(mean, exact.mean, exact.sd)
        table[f"sd_error_{draws}"] = scaled_error(sd, exact.sd, exact.sd)
    table["picture"] = picture_of(table["neg_elbo"], mean, sd)
    return table


def picture_of(neg_elbo: np.ndarray, mean: dict, sd: dict) -> dict[str, Any]:
    """Moments of the seed in the middle; arrays have the seeds as first axis."""
    middle = int(np.nanargmin(np.abs(neg_elbo - np.nanmedian(neg_elbo))))
    return {
        "seed": middle,
        "mean": {k: np.asarray(v[middle]) for k, v in mean.items()},
        "sd": {k: np.asarray(v[middle]) for k, v in sd.items()},
    }


def scaled_error(found: dict, truth: Any, unit: Any) -> np.ndarray:
    """Mean over all latent numbers of |found - truth| / unit, one value per restart."""
    errors = []
    for name, value in found.items():
        value = np.asarray(value)
        error = np.abs(value - truth[name]) / unit[name]
        errors.append(error.reshape(len(value), -1))
    return np.concatenate(errors, 1).mean(1)
