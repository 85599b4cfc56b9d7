"""Takes nothing; gives how often verdicts are right, over good and deliberately bad fits.

``python -m benchmarks.verdicts``: every task, fitted well and in six other ways
(mean field, other families, a bad start, stopped at 1%). A fit is *off* where the posterior mean
of some site, averaged over the site's numbers, is more than 0.3 true standard deviations from the
truth, and *good* where the means are not and its standard deviations are within 30%.
"""

from __future__ import annotations

import argparse
from functools import partial
from multiprocessing import get_context

import jax
import numpy as np

import asvi
from asvi.families import ConvexUpdate, Coupled, MeanField
from asvi.families.baselines import AR1, MultivariateNormal
from benchmarks.harness import save, table

OFF = 0.3
WAYS = {
    "coupled": (Coupled(), {}),
    "convex update": (ConvexUpdate(), {}),
    "mean field": (MeanField(), {}),
    "full-rank Gaussian": (MultivariateNormal(), {}),
    "AR(1)": (AR1(), {}),
    "bad start": (ConvexUpdate(initial_prior_weight=0.5, start="random"), {}),
    "stopped at 1%": (ConvexUpdate(), {"training": asvi.Training(num_steps=250)}),
    "mean field stopped at 1%": (MeanField(), {"training": asvi.Training(num_steps=250)}),
}


def site_errors(result: asvi.Fit, task: asvi.tasks.Task) -> tuple[list[float], list[float]]:
    """Errors of posterior means and sds in true standard deviations, averaged over each site."""
    draws = result.posterior.sample(jax.random.key(99), (10_000,))
    of_means, of_sds = [], []
    for name, truth in task.moments.mean.items():
        x, sd = np.asarray(draws[name], float), task.moments.sd[name]
        of_means.append(float(np.mean(np.abs(x.mean(0) - truth) / sd)))
        of_sds.append(float(np.mean(np.abs(x.std(0) - sd) / sd)))
    return of_means, of_sds


def errors(result: asvi.Fit, task: asvi.tasks.Task) -> tuple[float, float]:
    """Errors of means and of sds, of the worst site."""
    of_means, of_sds = site_errors(result, task)
    return max(of_means), max(of_sds)


def average_errors(result: asvi.Fit, task: asvi.tasks.Task) -> tuple[float, float]:
    """Errors of means and of sds, averaged over sites."""
    of_means, of_sds = site_errors(result, task)
    return float(np.mean(of_means)), float(np.mean(of_sds))


def judge_task(name: str, seeds: range) -> list[dict]:
    """All fits of one task."""
    task, fits = asvi.tasks.get(name), []
    for way, (family, settings) in WAYS.items():
        for seed in seeds:
            result = asvi.fit(
                task.model,
                *task.args,
                rng_key=jax.random.key(seed),
                family=family,
                progress_bar=False,
                **settings,
            )
            report = result.diagnose()
            of_means, of_sds = errors(result, task)
            fits.append(
                {
                    "task": name,
                    "fit": way,
                    "seed": seed,
                    "gap": round(task.log_evidence - result.elbo, 2),
                    "mean error": round(of_means, 3),
                    "sd error": round(of_sds, 3),
                    "k-hat": round(report.k_hat, 2),
                    "effective draws": round(report.effective_draws),
                    "shift": round(max(report.mean_shift_sd.values()), 2),
                    "evidence gain": round(report.evidence_gain, 2),
                    "last gain": round(result.run.gains[-1], 2) if result.run.gains else None,
                    "verdict": report.verdict,
                }
            )
            print(fits[-1], flush=True)
    return fits


def summarize(fits: list[dict]) -> list[dict]:
    """How many fits of each quality were flagged."""
    off = [fit for fit in fits if fit["mean error"] > OFF]
    good = [fit for fit in fits if fit["mean error"] <= OFF and fit["sd error"] <= OFF]
    between = [fit for fit in fits if fit not in off and fit not in good]
    return [
        {
            "fits": label,
            "number": len(group),
            "flagged": sum(fit["verdict"] == "not trustworthy" for fit in group),
        }
        for label, group in (
            ("means off by more than 0.3 sd", off),
            ("means within 0.3 sd, sds within 30%", good),
            ("means right, sds wrong", between),
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=2, help="the rule was set on 0 and 1")
    parser.add_argument("--tasks", default=",".join(asvi.tasks.names()))
    parser.add_argument("--jobs", type=int, default=1, help="tasks judged side by side")
    arguments = parser.parse_args()
    names = arguments.tasks.split(",")
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    judge = partial(judge_task, seeds=seeds)
    if arguments.jobs > 1:
        with get_context("spawn").Pool(arguments.jobs, maxtasksperchild=1) as pool:
            fits = [fit for found in pool.imap(judge, names) for fit in found]
    else:
        fits = [fit for name in names for fit in judge(name)]
    summary = summarize(fits)
    print(table(summary))
    save("verdicts", {"summary": summary, "fits": fits})


if __name__ == "__main__":
    main()
