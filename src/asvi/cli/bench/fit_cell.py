"""Takes a task and a column; gives one cell, made by ``asvi.fit`` with nothing else set."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from asvi.cli.bench.protocol import Column, Protocol
from asvi.cli.bench.train_cell import Report, picture_of, scaled_error
from asvi.results.fit import fit
from asvi.tasks import Task

__all__ = ["fit_cell"]


def fit_cell(
    task: Task, column: Column, protocol: Protocol, report: Report | None = None
) -> dict[str, Any]:
    """One fit per seed; ``report(step, loss)`` after each, as if they were one long run.

    ``seconds`` has the time of each call: the first compiles, the others do not; ``trusted`` is 1
    where the verdict is not "not trustworthy". The other entries are those of
    :func:`asvi.cli.bench.train_cell.train_cell`; shorter loss curves go on at their last value.
    """
    curves, steps, seconds, found, trusted = [], [], [], [], []
    few, many = protocol.moment_draws
    errors: dict[str, list[Any]] = {}
    moments = []
    chunk = 1
    for seed in range(protocol.seeds):
        begun = time.perf_counter()
        result = fit(
            task.model,
            *task.args,
            key=jax.random.key(seed),
            family=column.family,
            steps=protocol.steps,
            progress=False,
        )
        seconds.append(time.perf_counter() - begun)
        found.append((-result.elbo, result.elbo_se))
        steps.append(result.steps)
        trusted.append(float(result.diagnose().verdict != "not trustworthy"))
        curves.append(np.asarray(result.losses))
        chunk = result.details.chunk
        for draws in (few, many):
            drawn = result.posterior.sample(jax.random.key(10**6 + seed), (draws,))
            kept = {name: np.asarray(drawn[name]) for name in task.moments.mean}
            mean = {name: value.mean(0)[None] for name, value in kept.items()}
            sd = {name: value.std(0)[None] for name, value in kept.items()}
            exact = task.moments
            of_mean = scaled_error(mean, exact.mean, exact.sd)[0]
            errors.setdefault(f"mean_error_{draws}", []).append(of_mean)
            of_sd = scaled_error(sd, exact.sd, exact.sd)[0]
            errors.setdefault(f"sd_error_{draws}", []).append(of_sd)
        moments.append((mean, sd))
        if report is not None:
            report(protocol.steps * (seed + 1) // protocol.seeds, -result.elbo)
    longest = max(map(len, curves))
    neg_elbo, se = (np.array(x) for x in zip(*found, strict=True))
    means, sds = (
        {name: np.concatenate([m[i][name] for m in moments]) for name in moments[0][i]}
        for i in (0, 1)
    )
    return {
        "neg_elbo": neg_elbo,
        "neg_elbo_se": se,
        **{name: np.array(values) for name, values in errors.items()},
        "picture": picture_of(neg_elbo, means, sds),
        "curve_steps": (chunk * np.arange(1, longest + 1)).tolist(),
        "curves": np.stack([np.pad(c, (0, longest - len(c)), "edge") for c in curves]),
        "steps": int(np.median(steps)),
        "trusted": np.array(trusted),
        "seconds": np.array(seconds),
        "compile_seconds": max(0.0, seconds[0] - float(np.median(seconds[1:] or seconds))),
        "train_seconds": float(np.sum(seconds)),
        "device": jax.devices()[0].device_kind,
    }
