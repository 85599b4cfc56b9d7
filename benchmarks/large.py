"""Takes nothing; gives whole calls of ``asvi.fit`` on models of many groups, beside the truth.

``python -m benchmarks.large [--groups N ...]``: five observations in each group, known neither mean
nor scales. Groups are integrated out in closed form and so is their mean, the two scales by
quadrature: evidence and moments are exact.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import asvi
from benchmarks.harness import save, table

EACH = 5
PRIOR = {"mu": 5.0, "tau": 2.0, "sigma": 2.0}  # scales of a normal and two half-normals
GRID = 201


def model(y: jax.Array) -> None:
    """Groups (groups, EACH) around a common mean."""
    mu = numpyro.sample("mu", dist.Normal(0.0, PRIOR["mu"]))
    tau = numpyro.sample("tau", dist.HalfNormal(PRIOR["tau"]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(PRIOR["sigma"]))
    with numpyro.plate("group", y.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        each = jnp.broadcast_to(theta[:, None], y.shape)
        numpyro.sample("y", dist.Normal(each, sigma).to_event(1), obs=y)


def data(groups: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    theta = 1.0 + 0.7 * rng.normal(size=(groups, 1))
    return (theta + rng.normal(size=(groups, EACH))).astype(np.float32)


def given_scales(y: np.ndarray, tau: Any, sigma: Any) -> tuple[Any, Any, Any]:
    """Log p(y | scales), and mean and precision of mu given them.

    Group means are N(mu, tau² + sigma²/EACH), independent of the squares within groups.
    """
    groups, means = len(y), y.mean(1)
    within = np.sum((y - means[:, None]) ** 2)
    v = tau**2 + sigma**2 / EACH
    precision = groups / v + PRIOR["mu"] ** -2
    centre = np.sum(means) / v / precision
    log = (
        -0.5 * groups * np.log(v)
        - 0.5 * (np.sum(means**2) / v - precision * centre**2)
        - 0.5 * np.log(precision * PRIOR["mu"] ** 2)
        - groups * (EACH - 1) * np.log(sigma)
        - 0.5 * within / sigma**2
        - 0.5 * groups * (EACH * np.log(2 * np.pi) + np.log(EACH))
    )
    return log, centre, precision


def truth(y: np.ndarray) -> tuple[float, dict[str, tuple[float, float]]]:
    """Log evidence, and mean and sd of the globals."""
    y = np.asarray(y, float)
    groups = len(y)
    sigma0 = np.sqrt(y.var(1, ddof=1).mean())
    tau0 = np.sqrt(y.mean(1).var() - sigma0**2 / EACH)
    # Eight standard deviations to either side, as they are in large samples.
    sigmas = sigma0 * (1 + 8 * np.linspace(-1, 1, GRID) / np.sqrt(2 * groups * (EACH - 1)))
    spread = (1 + sigma0**2 / EACH / tau0**2) / np.sqrt(2 * groups)
    taus = tau0 * (1 + 8 * np.linspace(-1, 1, GRID) * spread)
    if not taus[0] > 0:
        raise ValueError(f"{groups} groups are too few for the quadrature; take 500 or more.")
    tau, sigma = np.meshgrid(taus, sigmas, indexing="ij")
    log, centre, precision = given_scales(y, tau, sigma)
    for x, scale in ((tau, PRIOR["tau"]), (sigma, PRIOR["sigma"])):
        log += 0.5 * np.log(2 / np.pi) - np.log(scale) - 0.5 * (x / scale) ** 2
    weights = np.exp(log - log.max())
    cell = (taus[1] - taus[0]) * (sigmas[1] - sigmas[0])
    evidence = float(log.max() + np.log(weights.sum() * cell))
    weights /= weights.sum()

    def moments(x: np.ndarray, inner: np.ndarray | float = 0.0) -> tuple[float, float]:
        mean = float(np.sum(weights * x))
        return mean, float(np.sqrt(np.sum(weights * ((x - mean) ** 2 + inner))))

    found = {"mu": moments(centre, 1 / precision), "tau": moments(tau), "sigma": moments(sigma)}
    return evidence, found


def beside_truth(
    model: Callable, y: np.ndarray, evidence: float, exact: dict[str, tuple[float, float]]
) -> dict[str, Any]:
    """A fit with nothing set, beside the log evidence and moments of some sites."""
    begun = time.monotonic()
    result = asvi.fit(model, y, effort="thorough", progress_bar=False)
    seconds = time.monotonic() - begun
    draws = result.posterior.sample(jax.random.key(9), (4000,))
    row: dict[str, Any] = {
        "parameters": result.problem.size,
        "family": type(result.problem.family).__name__,
        "start": result.run.start,
        "seconds": round(seconds, 1),
        "steps": result.num_steps,
        "gap": round(evidence - result.elbo, 3),
        "error": round(result.elbo_se, 3),
        "verdict": result.diagnose().verdict,
    }
    for name, (mean, sd) in exact.items():
        x = np.asarray(draws[name], float)
        row[f"{name}: mean off (sd)"] = round(float(abs(x.mean() - mean) / sd), 2)
        row[f"{name}: sd / true sd"] = round(float(x.std() / sd), 2)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="*", default=[300, 1000, 10_000])
    rows = []
    for groups in parser.parse_args().groups:
        y = data(groups)
        rows.append({"groups": groups, **beside_truth(model, y, *truth(y))})
        print(rows[-1], flush=True)
    print(table(rows))
    save("large", rows)


if __name__ == "__main__":
    main()
