"""Takes a problem and a key; gives the answers of NumPyro's own methods: NUTS and autoguides."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from benchmarks.race.answer import Answer, as_numpy, stopwatch

WARM_UP, CHAIN = 1000, 1000
STEPS, RATE = 20_000, 1e-2
DRAWS = 4000


@cache
def _sampler(problem: Any) -> Any:
    """One sampler a problem: a later run of it does not compile again."""
    from numpyro.infer import MCMC, NUTS

    return MCMC(
        NUTS(problem.model),
        num_warmup=WARM_UP,
        num_samples=CHAIN,
        num_chains=1,
        progress_bar=False,
    )


def nuts(problem: Any, key: Any) -> Answer:
    """NUTS as it comes: one chain, 1,000 steps of warm-up, 1,000 draws."""
    mcmc = _sampler(problem)
    mcmc.run(key, *problem.args, extra_fields=("diverging",), **problem.kwargs)
    draws = as_numpy(mcmc.get_samples())
    with stopwatch() as diagnosis:
        extra = chain_diagnostics({site: x[None] for site, x in draws.items()})
        extra["divergences"] = int(np.sum(mcmc.get_extra_fields()["diverging"]))
    return Answer(draws=draws, diagnosis=diagnosis, extra=extra)


def chain_diagnostics(draws: dict[str, np.ndarray]) -> dict[str, float]:
    """The largest split R-hat and the fewest effective draws; ``draws``: chains, draws, site."""
    from numpyro.diagnostics import summary

    with np.errstate(divide="ignore", invalid="ignore"):
        found = summary(draws).values()
        # Constants have no R-hat.
        return {
            "r_hat": float(np.nanmax([np.nanmax(one["r_hat"]) for one in found])),
            "effective_draws": float(np.nanmin([np.nanmin(one["n_eff"]) for one in found])),
        }


def auto_normal(problem: Any, key: Any) -> Answer:
    """Mean field: an independent normal for each unconstrained number."""
    return _trained("AutoNormal", problem, key)


def auto_mvn(problem: Any, key: Any) -> Answer:
    """One normal of full rank over the unconstrained numbers."""
    return _trained("AutoMultivariateNormal", problem, key)


def auto_laplace(problem: Any, key: Any) -> Answer:
    """The normal at the posterior's mode."""
    return _trained("AutoLaplaceApproximation", problem, key)


def _trained(kind: str, problem: Any, key: Any) -> Answer:
    """20,000 steps of Adam at 0.01, one draw a step."""
    import jax
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    run_key, draw_key = jax.random.split(key)
    guide = getattr(autoguide, kind)(problem.model)
    svi = SVI(problem.model, guide, numpyro.optim.Adam(RATE), Trace_ELBO())
    run = svi.run(
        run_key,
        STEPS,
        *problem.args,
        progress_bar=False,
        stable_update=True,  # else one gradient that is not finite ends many of the runs
        **problem.kwargs,
    )
    draws = as_numpy(guide.sample_posterior(draw_key, run.params, sample_shape=(DRAWS,)))
    losses = np.asarray(run.losses, float)
    last = losses[-STEPS // 10 :]
    evidence, se = -last.mean(), last.std() / np.sqrt(len(last))
    if kind == "AutoLaplaceApproximation":
        # Its loss is the log density at the mode; the normal's volume is not in it.
        factor = np.asarray(guide.get_posterior(run.params).scale_tril, float)
        volume = len(factor) / 2 * np.log(2 * np.pi) + np.log(np.diagonal(factor)).sum()
        evidence, se = volume - losses[-1], 0.0
    return Answer(
        draws=draws,
        log_evidence=float(evidence),
        log_evidence_se=float(se),
        extra={"last_loss": float(losses[-1])},
    )
