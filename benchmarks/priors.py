"""Takes priors that people write; gives the gap of zero-argument fits to the exact evidence.

``python -m benchmarks.priors`` fits three small models, in which one number has each prior in turn,
with three keys: a scale (12 normal data of unknown mean), a location (12 normal data of known
scale), and a chance (3 of 10). One integral is left, by quadrature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats
from scipy.special import logsumexp

import asvi
from benchmarks.harness import save, table

KEYS = 3
GAP, SHIFT, WIDTH = 0.05, 0.1, 0.1
Y = np.random.default_rng(1).normal(1.5, 0.7, size=12)
MEAN_SD = 5.0

SCALES = [
    dist.HalfNormal(5.0),
    dist.HalfCauchy(5.0),
    dist.Exponential(1.0),
    dist.FoldedDistribution(dist.StudentT(3.0, 0.0, 2.5)),
    dist.FoldedDistribution(dist.Normal(0.0, 2.5)),
    dist.TruncatedNormal(0.0, 5.0, low=0.0),
    dist.TruncatedCauchy(0.0, 5.0, low=0.0),
    dist.Gamma(2.0, 0.1),
    dist.InverseGamma(1.0, 1.0),
    dist.InverseGamma(0.01, 0.01),
    dist.LogNormal(0.0, 1.0),
    dist.Weibull(2.0, 1.5),
    dist.Chi2(3.0),
    dist.Uniform(0.0, 10.0),
    dist.LogUniform(0.01, 10.0),
    dist.Pareto(0.1, 1.0),
    dist.Gompertz(1.0, 1.0),
    dist.Levy(0.0, 1.0),
]
LOCATIONS = [
    dist.Normal(0.0, 1000.0),
    dist.Cauchy(0.0, 2.5),
    dist.StudentT(2.0, 0.0, 2.5),
    dist.Laplace(0.0, 1.0),
    dist.AsymmetricLaplace(0.0, 1.0, 1.5),
    dist.SoftLaplace(0.0, 1.0),
    dist.Logistic(0.0, 1.0),
    dist.Gumbel(0.0, 2.0),
    dist.Uniform(-3.0, 3.0),
    dist.TruncatedNormal(0.0, 2.0, low=-1.0, high=3.0),
    dist.MixtureSameFamily(
        dist.Categorical(jnp.array([0.5, 0.5])),
        dist.Normal(jnp.array([-2.0, 2.0]), jnp.array([0.5, 0.5])),
    ),
]
CHANCES = [
    dist.Uniform(0.0, 1.0),
    dist.Beta(1.0, 1.0),
    dist.Beta(0.5, 0.5),
    dist.BetaProportion(0.3, 4.0),
    dist.Kumaraswamy(2.0, 2.0),
]


def of_scale(prior: dist.Distribution) -> Callable:
    def model(y):
        x = numpyro.sample("x", prior)
        mean = numpyro.sample("mean", dist.Normal(0.0, MEAN_SD))
        with numpyro.plate("row", len(Y)):
            numpyro.sample("y", dist.Normal(mean, x), obs=y)

    return model


def of_location(prior: dist.Distribution) -> Callable:
    def model(y):
        x = numpyro.sample("x", prior)
        with numpyro.plate("row", len(Y)):
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    return model


def of_chance(prior: dist.Distribution) -> Callable:
    def model(y):
        x = numpyro.sample("x", prior)
        numpyro.sample("y", dist.Binomial(10, x), obs=y)

    return model


def log_likelihoods() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Of each kind: a grid and the log likelihood there, the unknown mean integrated out."""
    n, squares, total = len(Y), np.sum(Y**2), np.sum(Y)
    s = np.exp(np.linspace(np.log(0.02), np.log(60.0), 40_001))
    share = MEAN_SD**2 * n / s**2
    of_s = -n / 2 * np.log(2 * np.pi) - n * np.log(s) - 0.5 * np.log1p(share)
    of_s -= 0.5 * (squares - MEAN_SD**2 * total**2 / s**2 / (1 + share)) / s**2
    x = np.linspace(-6.0, 6.0, 40_001)
    of_x = stats.norm.logpdf(Y[:, None], x).sum(0)
    p = np.linspace(1e-7, 1 - 1e-7, 40_001)
    return {"scale": (s, of_s), "location": (x, of_x), "chance": (p, stats.binom.logpmf(3, 10, p))}


def truth(prior: dist.Distribution, grid: np.ndarray, log_lik: np.ndarray) -> tuple[float, ...]:
    """Log evidence, posterior mean and standard deviation."""
    middle = float(grid[len(grid) // 2])
    inside = np.asarray(prior.support(jnp.asarray(grid)))
    log_prior = np.asarray(prior.log_prob(jnp.asarray(np.where(inside, grid, middle))), float)
    mass = np.where(inside, log_lik + log_prior, -np.inf) + np.log(np.gradient(grid))
    evidence = logsumexp(mass)
    share = np.exp(mass - evidence)
    mean = share @ grid
    return float(evidence), float(mean), float(np.sqrt(share @ (grid - mean) ** 2))


CUT = (
    dist.FoldedDistribution,
    dist.LeftTruncatedDistribution,
    dist.TwoSidedTruncatedDistribution,
)


def name_of(prior: Any) -> str:
    kind = type(prior).__name__.replace("Distribution", "")
    if isinstance(prior, CUT):
        return f"{kind} {name_of(prior.base_dist)}"
    own = [getattr(prior, n, None) for n in prior.arg_constraints]
    inner = ", ".join(f"{float(x):g}" for x in own if x is not None and np.ndim(x) == 0)
    return f"{kind}({inner})" if inner else kind


def main() -> None:
    kinds = {
        "scale": (SCALES, of_scale, Y),
        "location": (LOCATIONS, of_location, Y),
        "chance": (CHANCES, of_chance, np.array(3)),
    }
    grids, rows = log_likelihoods(), []
    for kind, (priors, model_of, data) in kinds.items():
        for prior in priors:
            evidence, mean, sd = truth(prior, *grids[kind])
            model, found = model_of(prior), []
            for seed in range(KEYS):
                result = asvi.fit(
                    model, data, rng_key=jax.random.key(seed), effort="thorough", progress_bar=False
                )
                x = np.asarray(result.posterior.sample(jax.random.key(99), (10_000,))["x"])
                found.append(
                    (
                        evidence - result.elbo,
                        abs(x.mean() - mean) / sd,
                        abs(x.std() / sd - 1),
                        result.diagnose().verdict,
                    )
                )
            gaps, shifts, widths, verdicts = zip(*found, strict=True)
            right = [g < GAP and m < SHIFT and w < WIDTH for g, m, w, _ in found]
            rows.append(
                {
                    "number": kind,
                    "prior": name_of(prior),
                    "worst gap": round(float(max(gaps)), 4),
                    "mean off (sd)": round(float(max(shifts)), 3),
                    "sd off": round(float(max(widths)), 3),
                    "right": f"{sum(right)} of {KEYS}",
                    "verdicts": ", ".join(sorted(set(verdicts))),
                }
            )
            print(rows[-1], flush=True)
    save("priors", rows)
    print(table(rows))


if __name__ == "__main__":
    main()
