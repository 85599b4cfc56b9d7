"""Takes an entry; gives what a long run of NUTS says of it, and whether that run can be trusted.

Where a model has discrete sites, NUTS runs on the entry's ``truth_model``, which sums them out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.numpyro_examples.entry import Example
from benchmarks.race.answer import Answer, as_numpy, stopwatch
from benchmarks.race.by_numpyro import chain_diagnostics

WARM_UP, CHAIN = 1000, 4000
R_HAT, EFFECTIVE, DIVERGENT = 1.02, 300, 0.005  # of a run that is trusted


def nuts(entry: Example, key: Any) -> Answer:
    """One chain: 1,000 steps of warm-up, 4,000 draws."""
    from numpyro.infer import MCMC, NUTS

    kernel = NUTS(entry.truth_model or entry.model, target_accept_prob=entry.target_accept)
    mcmc = MCMC(kernel, num_warmup=WARM_UP, num_samples=CHAIN, progress_bar=False)
    mcmc.run(key, *entry.args, extra_fields=("diverging",), **entry.kwargs)
    found = as_numpy(mcmc.get_samples())
    draws = entry.comparable({site: found[site] for site in entry.sites() if site in found})
    with stopwatch() as diagnosis:
        extra: dict[str, Any] = dict(chain_diagnostics({s: x[None] for s, x in draws.items()}))
        extra["divergences"] = int(np.sum(mcmc.get_extra_fields()["diverging"]))
    return Answer(draws=draws, diagnosis=diagnosis, extra=extra)


def is_trusted(extra: dict[str, Any]) -> bool:
    """Whether the chain mixed."""
    return (
        extra["r_hat"] <= R_HAT
        and extra["effective_draws"] >= EFFECTIVE
        and extra["divergences"] <= DIVERGENT * CHAIN
    )


def moments_of(draws: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Mean and sd of each number, by site."""
    return {
        "mean": {site: x.mean(0).tolist() for site, x in draws.items()},
        "sd": {site: x.std(0, ddof=1).tolist() for site, x in draws.items()},
    }


def path_of(results: Path, name: str) -> Path:
    return results / "reference" / f"{name}.json"


def stored(results: Path, name: str) -> dict[str, Any] | None:
    """Moments of the reference; None where there is none."""
    path = path_of(results, name)
    return json.loads(path.read_text()) if path.exists() else None
