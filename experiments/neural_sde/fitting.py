"""Takes a generator and a family; gives fits of many episodes at once: one program, a lane each.

All families get the same budget: the same steps, draws and schedule (Adam, whose rate rises over
the first steps and falls along a cosine to 0). Everything goes through ``asvi.autoguide`` and
``numpyro.infer.SVI`` with ``asvi.ELBO``. What is compiled for one problem serves for the other,
since which frames are seen is data.
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
from asvi.families import ConvexUpdate, Coupled, Family, JointFamily, MeanField
from asvi.families.baselines import LinearCoupling
from experiments.neural_sde.generator import Generator
from experiments.neural_sde.process import NOISE, Episode, neural_sde

__all__ = ["FAMILIES", "Budget", "Fitter", "Lanes", "families"]

FAMILIES = ("convex", "mean field", "linear", "coupled")


@dataclass(frozen=True)
class Budget:
    """What each fit may spend; the same for all families."""

    steps: int = 4000
    draws: int = 4
    rate: float = 0.05
    chunk: int = 500
    judge_draws: int = 2000
    judge_batch: int = 50


@dataclass
class Lanes:
    """Fits of one family to all episodes; leading axes are (episodes, ...)."""

    neg_elbo: np.ndarray
    neg_elbo_se: np.ndarray
    losses: np.ndarray  # (episodes, chunks)
    draws: np.ndarray  # (episodes, draws, time, latent), of the posterior
    seconds: float
    first_seconds: float  # of them until the end of the first chunk, compilation included
    parameters: int


def families(latent: int, frames: int) -> dict[str, Family | JointFamily]:
    """The four families.

    Frames say much about each state, so λ starts at 0.9 behind a plain gate: near 1 a data term has
    no say, and a steep gate shuts before the path is found. The coupled family has room for the
    noise of its own step and of the last one.
    """
    gate: dict[str, Any] = {"initial_prior_weight": 0.9, "gate_gain": 1.0}
    return {
        "convex": ConvexUpdate(**gate),
        "mean field": MeanField(),
        "linear": LinearCoupling(),
        "coupled": Coupled(max_edges=4 * frames * latent**2, window=1, **gate),
    }


class Fitter:
    """One family on one generator, compiled once: ``fitter(episodes, key=key)`` gives the fits."""

    def __init__(
        self,
        generator: Generator,
        family: Family | JointFamily,
        budget: Budget,
        *,
        noise: float = NOISE,
        kept_draws: int = 200,
    ):
        self.generator, self.budget, self.kept_draws = generator, budget, kept_draws

        def model(drift, frames, seen, generator):
            neural_sde(drift, generator, frames, seen, noise)

        self.guide: Any = asvi.autoguide(model, family=family)
        self.svi = SVI(
            model, self.guide, _adam(budget, self.guide), asvi.ELBO(num_particles=budget.draws)
        )
        self.judge: Any = asvi.ELBO(num_particles=budget.judge_batch)
        self.start = jax.jit(jax.vmap(self._start, (None, 0, 0)))
        self.advance = jax.jit(jax.vmap(self._advance, (None, 0, 0)), donate_argnums=2)
        self.finish = jax.jit(jax.vmap(self._finish, (None, 0, 0, 0)))

    def __call__(
        self,
        episodes: Episode,
        *,
        key: jax.Array,
        told: Callable[[str], None] = print,
    ) -> Lanes:
        """Fit episodes on a leading axis, side by side."""
        begun = time.monotonic()
        data = (episodes.drift, episodes.frames, episodes.seen)
        lanes = len(episodes.path)
        begin_key, end_key = jax.random.split(key)
        if self.guide.prototype_trace is None:  # a first look at the model, with numbers
            self.svi.init(key, *jax.tree.map(lambda x: x[0], data), self.generator)
        state = self.start(self.generator, jax.random.split(begin_key, lanes), data)
        losses, first = [], 0.0
        for done in range(self.budget.chunk, self.budget.steps + 1, self.budget.chunk):
            state, loss = self.advance(self.generator, data, state)
            losses.append(np.asarray(jnp.mean(loss, 1)))
            passed = time.monotonic() - begun
            first = first or passed
            told(f"{done:6d} steps {passed:6.1f} s  {np.round(losses[-1], 1)}")
        keys = jax.random.split(end_key, lanes)
        with jax.default_matmul_precision("highest"):
            scores, draws = self.finish(self.generator, keys, data, state)
        scores = np.asarray(scores, np.float64)
        params = jax.vmap(self.svi.get_params)(state)
        return Lanes(
            neg_elbo=scores.mean(1),
            neg_elbo_se=scores.std(1, ddof=1) / scores.shape[1] ** 0.5,
            losses=np.stack(losses, 1),
            draws=np.asarray(draws),
            seconds=time.monotonic() - begun,
            first_seconds=first,
            parameters=sum(x.size for x in jax.tree.leaves(params)) // lanes,
        )

    # ------------------------------------------------------------------- for one episode

    def _start(self, generator: Generator, key: jax.Array, data: Any) -> Any:
        return self.svi.init(key, *data, generator)

    def _advance(self, generator: Generator, data: Any, state: Any) -> Any:
        def step(state: Any, _: None) -> Any:
            return self.svi.update(state, *data, generator)

        return lax.scan(step, state, length=self.budget.chunk)

    def _finish(self, generator: Generator, key: jax.Array, data: Any, state: Any) -> Any:
        """−ELBO by batches of fresh draws, and draws of the path."""
        params = self.svi.get_params(state)
        judging, drawing = jax.random.split(key)

        def score(key: jax.Array) -> jax.Array:
            return self.judge.loss(key, params, self.svi.model, self.guide, *data, generator)

        keys = jax.random.split(judging, self.budget.judge_draws // self.budget.judge_batch)
        shape = (self.kept_draws,)
        draws = self.guide.sample_posterior(drawing, params, *data, generator, sample_shape=shape)
        return lax.map(score, keys), draws["x"]


def _adam(budget: Budget, guide: Any) -> optax.GradientTransformation:
    """Adam with a cosine schedule, its steps in natural units."""
    rise = max(1, budget.steps // 50)
    rate = optax.warmup_cosine_decay_schedule(0.0, budget.rate, rise, budget.steps)
    return asvi.natural_units(optax.chain(optax.clip_by_global_norm(1e4), optax.adam(rate)), guide)
