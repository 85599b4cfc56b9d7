"""Takes nothing; gives how often verdicts are right, over good and deliberately bad fits.

``python -m benchmarks.verdicts``: every task, fitted well and in six other ways
(mean field, other families, a bad start, stopped at 1%). A fit is *off* where the posterior mean
of some site, averaged over the site's numbers, is more than 0.3 true standard deviations from the
truth.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np

import asvi
from asvi.families import AR1, ConvexUpdate, MeanField, MultivariateNormal
from benchmarks.harness import save, table

OFF = 0.3
WAYS = {
    "convex update": (ConvexUpdate(), {}),
    "mean field": (MeanField(), {}),
    "full-rank Gaussian": (MultivariateNormal(), {}),
    "AR(1)": (AR1(), {}),
    "bad start": (ConvexUpdate(initial_prior_weight=0.5, start="random"), {}),
    "stopped at 1%": (ConvexUpdate(), {"steps": 250}),
    "mean field stopped at 1%": (MeanField(), {"steps": 250}),
}


def mean_error(result: asvi.Fit, task: asvi.tasks.Task) -> tuple[float, float]:
    """Errors of the posterior means in true standard deviations: worst site, and over all."""
    draws = result.posterior.sample(jax.random.key(99), (10_000,))
    by_site, everything = [], []
    for name, truth in task.moments.mean.items():
        found = np.asarray(draws[name], float).mean(0)
        error = np.abs(found - truth) / task.moments.sd[name]
        by_site.append(float(np.mean(error)))
        everything.append(np.ravel(error))
    return max(by_site), float(np.mean(np.concatenate(everything)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    fits = []
    for name in asvi.tasks.names():
        task = asvi.tasks.get(name)
        for way, (family, settings) in WAYS.items():
            for seed in range(arguments.seeds):
                result = asvi.fit(
                    task.model,
                    *task.args,
                    key=jax.random.key(seed),
                    family=family,
                    progress=False,
                    **settings,
                )
                report = result.diagnose()
                worst, overall = mean_error(result, task)
                fits.append(
                    {
                        "task": name,
                        "fit": way,
                        "seed": seed,
                        "gap": round(task.log_evidence - result.elbo, 2),
                        "worst mean error": round(worst, 3),
                        "mean error": round(overall, 3),
                        "k_hat": round(report.k_hat, 2),
                        "effective draws": round(report.effective_draws),
                        "shift": round(max(report.shift.values()), 2),
                        "evidence gain": round(report.evidence_gain, 2),
                        "converged": result.converged,
                        "verdict": report.verdict,
                    }
                )
                print(fits[-1], flush=True)
    off = [fit for fit in fits if fit["worst mean error"] > OFF]
    fine = [fit for fit in fits if fit["worst mean error"] <= OFF]
    flagged = sum(fit["verdict"] == "not trustworthy" for fit in off)
    alarms = sum(fit["verdict"] == "not trustworthy" for fit in fine)
    summary = [
        {"fits": "means off by more than 0.3 sd", "number": len(off), "flagged": flagged},
        {"fits": "means within 0.3 sd", "number": len(fine), "flagged": alarms},
    ]
    print(table(summary))
    save("verdicts", {"summary": summary, "fits": fits})


if __name__ == "__main__":
    main()
