"""Takes episodes and a family; gives fits of all of them at once: one program, a lane an episode.

All families get the same budget: the same steps, draws, schedule and start (their own prior-like
start). Adam's rate rises over the first steps and falls along a cosine; the likelihood is faded in
over the first third (its noise falls to sigma), which keeps paths from being caught in the first
mode that a far-off frame offers. Everything goes through ``asvi.autoguide`` and
``numpyro.infer.SVI`` with ``asvi.ELBO``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from numpyro.infer import SVI

import asvi
from asvi.families import ConvexUpdate, Coupled, Family, LinearCoupling, MeanField, WholeFamily
from experiments.neural_sde.generator import Generator
from experiments.neural_sde.process import NOISE, Episode, neural_sde

__all__ = ["FAMILIES", "Budget", "Lanes", "families", "fit"]

FAMILIES = ("convex", "mean field", "linear", "coupled")


@dataclass(frozen=True)
class Budget:
    """What each fit may spend; the same for all families."""

    steps: int = 4000
    draws: int = 4
    rate: float = 0.05
    chunk: int = 500
    faded: float = 0.3
    """Share of the steps in which the likelihood is faded in ..."""
    faint: float = 0.01
    """... from this weight."""
    judge_draws: int = 2000
    judge_batch: int = 50


@dataclass
class Lanes:
    """Fits of one family to all episodes; leading axes are (episodes, ...)."""

    neg_elbo: np.ndarray
    neg_elbo_se: np.ndarray
    losses: np.ndarray  # (episodes, chunks), likelihood at full weight only after the fading
    draws: np.ndarray  # (episodes, draws, time, latent), of the posterior
    seconds: float
    first_seconds: float  # of them until the end of the first chunk, compilation included
    parameters: int


def families(latent: int, frames: int) -> dict[str, Family | WholeFamily]:
    """The four families; the coupled one with room for the noise of its own and the last step."""
    edges = frames * latent**2
    return {
        "convex": ConvexUpdate(),
        "mean field": MeanField(),
        "linear": LinearCoupling(),
        "coupled": Coupled(max_edges=4 * edges, window=1),
    }


def fit(
    generator: Generator,
    episodes: Episode,
    family: Family | WholeFamily,
    *,
    key: jax.Array,
    budget: Budget,
    noise: float = NOISE,
    kept_draws: int = 64,
    told: Callable[[str], None] = print,
) -> Lanes:
    """Fit one family to episodes on a leading axis, side by side in one compiled program."""
    begun = time.monotonic()
    data = (episodes.drift, episodes.frames, episodes.seen)
    lanes = len(episodes.path)

    def model(drift, frames, seen, generator, weight=1.0):
        neural_sde(drift, generator, frames, seen, noise / jnp.sqrt(weight))

    guide = asvi.autoguide(model, family=family)
    svi = SVI(model, guide, _adam(budget), asvi.ELBO(num_particles=budget.draws))
    judge = asvi.ELBO(num_particles=budget.judge_batch)
    one = jax.tree.map(lambda x: x[0], data)
    # A first look at the model, outside of all transformations, which are then cheap to trace.
    jax.eval_shape(svi.init, key, *one, generator)

    def start(generator, key, data):
        return svi.init(key, *data, generator)

    def run(generator, data, state, first):
        def step(state, i):
            return svi.update(state, *data, generator, _weight(budget, i))

        return lax.scan(step, state, first + jnp.arange(budget.chunk))

    def finish(generator, key, data, state):
        params = svi.get_params(state)
        judging, drawing = jax.random.split(key)

        def score(key):
            return judge.loss(key, params, model, guide, *data, generator)

        keys = jax.random.split(judging, budget.judge_draws // budget.judge_batch)
        shape = (kept_draws,)
        draws = guide.sample_posterior(drawing, params, *data, generator, sample_shape=shape)
        return lax.map(score, keys), draws["x"]

    begin_key, end_key = jax.random.split(key)
    keys = jax.random.split(begin_key, lanes)
    state = jax.jit(jax.vmap(start, (None, 0, 0)))(generator, keys, data)
    advance = jax.jit(jax.vmap(run, (None, 0, 0, None)), donate_argnums=2)
    losses, compiled = [], 0.0
    for first in range(0, budget.steps, budget.chunk):
        state, loss = advance(generator, data, state, first)
        losses.append(np.asarray(jnp.mean(loss, 1)))
        passed = time.monotonic() - begun
        compiled = compiled or passed
        told(f"{first + budget.chunk:6d} steps {passed:6.1f} s  {np.round(losses[-1], 1)}")
    end = jax.jit(jax.vmap(finish, (None, 0, 0, 0)))
    scores, draws = end(generator, jax.random.split(end_key, lanes), data, state)
    scores = np.asarray(scores, np.float64)
    return Lanes(
        neg_elbo=scores.mean(1),
        neg_elbo_se=scores.std(1, ddof=1) / scores.shape[1] ** 0.5,
        losses=np.stack(losses, 1),
        draws=np.asarray(draws),
        seconds=time.monotonic() - begun,
        first_seconds=compiled,
        parameters=sum(x.size for x in jax.tree.leaves(svi.get_params(state))) // lanes,
    )


def _adam(budget: Budget) -> optax.GradientTransformation:
    """Adam with a cosine schedule, its steps in natural units."""
    rise = max(1, budget.steps // 50)
    rate = optax.warmup_cosine_decay_schedule(0.0, budget.rate, rise, budget.steps)
    return asvi.in_units(optax.chain(optax.clip_by_global_norm(1e4), optax.adam(rate)))


def _weight(budget: Budget, i: Any) -> jax.Array:
    """Weight of the likelihood at step i."""
    share = jnp.minimum(1.0, i / (budget.faded * budget.steps + 1.0))
    return jnp.asarray(budget.faint) ** (1.0 - share)
