"""Takes a problem and a key; gives asvi's answer, by default or by one family alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.race.answer import Answer, as_numpy, stopwatch

DRAWS = 4000
RESAMPLED = 1000
OTHERS = 1_000_000  # what a key of draws is beyond the fit's


def default(problem: Any, key: Any) -> Answer:
    """``asvi.fit`` with nothing set."""
    return _fitted(problem, key)


def structured_normal(problem: Any, key: Any) -> Answer:
    """The structured normal, whatever its distance from the posterior."""
    import asvi

    return _fitted(problem, key, family=asvi.families.StructuredNormal())


def _fitted(problem: Any, key: Any, **options: Any) -> Answer:
    import jax

    import asvi

    # Another key for draws. (A split would be compiled first, and nobody's fit asks for one.)
    draw_key = jax.random.key(OTHERS + int(np.asarray(jax.random.key_data(key)).ravel()[-1]))
    result = asvi.fit(
        problem.model, *problem.args, rng_key=key, progress_bar=False, **options, **problem.kwargs
    )
    with stopwatch() as diagnosis:
        report = result.diagnose()
    # The user does what the verdict says.
    if report.verdict == "usable" and result.correction is None:
        draws = result.guide.resample(draw_key, RESAMPLED)
    else:
        draws = result.posterior.sample(draw_key, (DRAWS,))
    evidence = result.log_evidence
    return Answer(
        draws=as_numpy(draws),
        # The bound stands in for the evidence where a fit has no better number.
        log_evidence=float(result.elbo if evidence is None else evidence),
        log_evidence_se=float(result.elbo_se if evidence is None else result.log_evidence_se),
        verdict=report.verdict,
        diagnosis=diagnosis,
        extra={
            "k_hat": report.k_hat if np.isfinite(report.k_hat) else None,
            "rung": result.correction.rung if result.correction else None,
            "moves": result.correction.checks.moves if result.correction else None,
            "effective_draws": report.effective_draws,
            "elbo": result.elbo,
            "steps": result.num_steps,
            "converged": result.converged,
            "family": result.family_reason,
            "how": report.how,
            "reasons": list(report.reasons),
        },
    )
