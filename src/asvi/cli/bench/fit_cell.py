"""Takes a task and a column; gives one cell, made by ``asvi.fit`` with nothing else set."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import numpy as np

from asvi.cli.bench.protocol import Column, Protocol
from asvi.cli.bench.train_cell import Report, picture_of, scaled_error
from asvi.fitting.training.asked import Training
from asvi.results.fit import Fit, fit
from asvi.tasks import Task

__all__ = ["fit_cell"]

Moments = dict[str, np.ndarray]


class _Seed(NamedTuple):
    """The fit of one seed, its seconds, and its moments and their errors by number of draws."""

    result: Fit
    seconds: float
    mean: Moments
    sd: Moments
    errors: dict[str, float]


def fit_cell(
    task: Task, column: Column, protocol: Protocol, report: Report | None = None
) -> dict[str, Any]:
    """One fit per seed; ``report(step, loss)`` after each, as if they were one long run.

    ``seconds`` has the time of each call: the first compiles, the others do not; ``trusted`` is 1
    where the verdict is not "not trustworthy". The other entries are those of
    :func:`asvi.cli.bench.train_cell.train_cell`; shorter loss curves go on at their last value.
    """
    found = []
    for seed in range(protocol.seeds):
        found.append(_fit_seed(task, column, protocol, seed))
        if report is not None:
            step = protocol.steps * (seed + 1) // protocol.seeds
            report(step, -found[-1].result.elbo)
    results, seconds = [x.result for x in found], [x.seconds for x in found]
    neg_elbo = np.array([-result.elbo for result in results])
    curves = [np.asarray(result.losses) for result in results]
    longest = max(map(len, curves))
    means, sds = (
        {name: np.concatenate([x[name] for x in moments]) for name in moments[0]}
        for moments in ([x.mean for x in found], [x.sd for x in found])
    )
    return {
        "neg_elbo": neg_elbo,
        "neg_elbo_se": np.array([result.elbo_se for result in results]),
        **{name: np.array([x.errors[name] for x in found]) for name in found[0].errors},
        "picture": picture_of(neg_elbo, means, sds),
        "curve_steps": (results[-1].run.chunk * np.arange(1, longest + 1)).tolist(),
        "curves": np.stack([np.pad(c, (0, longest - len(c)), "edge") for c in curves]),
        "steps": int(np.median([result.num_steps for result in results])),
        "trusted": np.array([float(result.diagnose().ok) for result in results]),
        "seconds": np.array(seconds),
        "compile_seconds": max(0.0, seconds[0] - float(np.median(seconds[1:] or seconds))),
        "train_seconds": float(np.sum(seconds)),
        "device": jax.devices()[0].device_kind,
    }


def _fit_seed(task: Task, column: Column, protocol: Protocol, seed: int) -> _Seed:
    """One fit, timed, and its moments against the exact ones; those of the most draws are kept."""
    begun = time.perf_counter()
    result = fit(
        task.model,
        *task.args,
        rng_key=jax.random.key(seed),
        family=column.family,
        training=Training(num_steps=protocol.steps),
        progress_bar=False,
    )
    seconds = time.perf_counter() - begun
    exact, errors = task.moments, {}
    mean: Moments = {}
    sd: Moments = {}
    for draws in protocol.moment_draws:
        drawn = result.posterior.sample(jax.random.key(10**6 + seed), (draws,))
        kept = {name: np.asarray(drawn[name]) for name in exact.mean}
        mean = {name: value.mean(0)[None] for name, value in kept.items()}
        sd = {name: value.std(0)[None] for name, value in kept.items()}
        errors[f"mean_error_{draws}"] = scaled_error(mean, exact.mean, exact.sd)[0]
        errors[f"sd_error_{draws}"] = scaled_error(sd, exact.sd, exact.sd)[0]
    return _Seed(result, seconds, mean, sd, errors)
