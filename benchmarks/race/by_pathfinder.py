"""Takes a problem and a key; gives the answer of BlackJAX's multi-path Pathfinder."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from benchmarks.race.answer import Answer, as_numpy, stopwatch

PATHS = 8
# BlackJAX's own limits (30 iterations, 1e-5 of the density) end paths on raw predictors many nats
# below the mode; with these they get there.
SEARCH = {"maxiter": 200, "ftol": 1e-10}
DRAWS_OF_A_PATH = 500
DRAWS = 1000


@cache
def _programs(problem: Any) -> tuple[Any, Any]:
    """The start of the paths, and the search from there to draws; compiled once a problem."""
    import jax
    import jax.numpy as jnp
    from blackjax.diagnostics import psis_weights
    from blackjax.vi import pathfinder as single
    from numpyro.infer.util import initialize_model

    given = {"model_args": problem.args, "model_kwargs": problem.kwargs}
    about = initialize_model(jax.random.key(0), problem.model, **given)

    def log_density(z: Any) -> Any:
        return -about.potential_fn(z)

    def start(key: Any) -> Any:
        """A place of finite density for each path, drawn as NUTS draws its start."""
        keys = jax.random.split(key, PATHS)
        return initialize_model(keys, problem.model, **given).param_info.z

    def path(inputs: tuple) -> tuple:
        key, place = inputs
        path_key, draw_key = jax.random.split(key)
        state, _ = single.approximate(path_key, log_density, place, **SEARCH)
        draws, log_q = single.sample(draw_key, state, DRAWS_OF_A_PATH)
        log_ratios = jax.vmap(log_density)(draws) - log_q
        # A draw that went astray has no weight.
        return draws, jnp.where(jnp.isfinite(log_ratios), log_ratios, -jnp.inf)

    @jax.jit
    def search(key: Any, places: Any) -> tuple:
        paths_key, draw_key = jax.random.split(key)
        # One path after the other: side by side, on one core, they take as long and more memory.
        found, log_ratios = jax.lax.map(path, (jax.random.split(paths_key, PATHS), places))
        log_ratios = log_ratios.ravel()
        log_weights, k_hat = psis_weights(log_ratios)
        chosen = jax.random.choice(
            draw_key, len(log_ratios), (DRAWS,), replace=True, p=jnp.exp(log_weights)
        )
        drawn = {site: x.reshape(-1, *x.shape[2:])[chosen] for site, x in found.items()}
        return jax.vmap(about.postprocess_fn)(drawn), log_ratios, log_weights, k_hat

    return start, search


def pathfinder(problem: Any, key: Any) -> Answer:
    """Eight paths, Pareto-smoothed importance weights, 1,000 draws resampled by them."""
    import jax

    start, search = _programs(problem)
    start_key, search_key = jax.random.split(key)
    sites, log_ratios, log_weights, k_hat = search(search_key, start(start_key))
    draws = as_numpy(sites)
    with stopwatch() as diagnosis:
        ratios = np.asarray(log_ratios, float)
        log_evidence, se = importance_evidence(ratios)
        effective = 1.0 / float(np.sum(np.exp(2.0 * np.asarray(log_weights, float))))
    return Answer(
        draws=draws,
        log_evidence=log_evidence,
        log_evidence_se=se,
        diagnosis=diagnosis,
        extra={"k_hat": float(k_hat), "effective_draws": effective, "paths": PATHS},
    )


def importance_evidence(log_ratios: np.ndarray) -> tuple[float | None, float | None]:
    """The log of the mean ratio, and its standard error; None where no ratio is finite."""
    top = log_ratios.max()
    if not np.isfinite(top):
        return None, None
    ratios = np.exp(log_ratios - top)
    mean = ratios.mean()
    return float(top + np.log(mean)), float(ratios.std() / mean / np.sqrt(len(ratios)))
