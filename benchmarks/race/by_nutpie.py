"""Takes a problem that has a PyMC version, and a key; gives nutpie's answer."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from benchmarks.race.answer import Answer, stopwatch
from benchmarks.race.by_numpyro import chain_diagnostics
from benchmarks.race.pymc_models import MODELS


@cache
def _compiled(problem: Any) -> Any:
    """Compiled once a problem: a later run does not compile again."""
    import nutpie

    return nutpie.compile_pymc_model(MODELS[problem.name](*problem.args, **problem.kwargs))


def nutpie(problem: Any, key: Any) -> Answer:
    """nutpie as it comes, one chain: its own warm-up, 1,000 draws."""
    import jax
    import nutpie

    trace = nutpie.sample(
        _compiled(problem),
        draws=1000,
        chains=1,
        cores=1,
        seed=int(jax.random.key_data(key)[-1]),
        progress_bar=False,
        save_warmup=False,
    )
    chains = {str(site): np.asarray(x.values) for site, x in trace.posterior.items()}
    draws = {site: x[0] for site, x in chains.items()}
    with stopwatch() as diagnosis:
        extra = chain_diagnostics(chains)
        extra["divergences"] = int(np.sum(trace.sample_stats["diverging"].values))
    return Answer(draws=draws, diagnosis=diagnosis, extra=extra)
