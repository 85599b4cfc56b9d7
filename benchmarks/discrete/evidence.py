"""Takes models with discrete sites and exact answers; gives how far default calls are from these.

``python -m benchmarks.discrete.evidence [--keys 10]``:

- a mixture of 50 points, two unknown means, explicit assignments: a grid over the means;
- a hidden Markov model of 50 steps with explicit states, nothing else unknown: the forward and
  backward recursions, written here;
- counts with a change point, rates before and after it unknown: gamma integrals, summed.

Errors are those of the log evidence, in nats, and of the worst probability of a discrete value.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

import asvi
from benchmarks.discrete.fits import hmm_data, mixture_data
from benchmarks.discrete.models import TABLE, hmm
from benchmarks.harness import save, table


def mixture(y):
    mean = numpyro.sample("mean", dist.Normal(jnp.array([-1.0, 1.0]), 1.0).to_event(1))
    with numpyro.plate("point", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.6, 0.4])))
        numpyro.sample("y", dist.Normal(mean[z], 0.8), obs=y)


def change(y):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
    z = numpyro.sample("z", dist.DiscreteUniform(0, len(y) - 1))
    late = (jnp.arange(len(y)) >= z).astype(int)
    with numpyro.plate("time", len(y)):
        numpyro.sample("y", dist.Poisson(rate[late]), obs=y)


def counts() -> np.ndarray:
    rng = np.random.default_rng(2)
    return np.concatenate([rng.poisson(3.0, 24), rng.poisson(1.2, 16)]).astype(float)


def exact_mixture(y: np.ndarray) -> tuple[float, np.ndarray]:
    grid = np.linspace(-4.0, 4.0, 801)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    logs = norm.logpdf(a, -1, 1) + norm.logpdf(b, 1, 1) + 2 * np.log(grid[1] - grid[0])
    second = []
    for value in y:
        first = np.log(0.6) + norm.logpdf(value, a, 0.8)
        other = np.log(0.4) + norm.logpdf(value, b, 0.8)
        both = np.logaddexp(first, other)
        logs, share = logs + both, other - both
        second.append(share)
    weights = np.exp(logs - logsumexp(logs))
    return float(logsumexp(logs)), np.array([np.sum(weights * np.exp(s)) for s in second])


def exact_hmm(y: np.ndarray) -> tuple[float, np.ndarray]:
    rows = np.log(np.asarray(TABLE, float))
    seen = norm.logpdf(y[:, None], 2.0 * np.arange(2), 1.0)
    ahead, behind = [rows[0] + seen[0]], [np.zeros(2)]
    for values in seen[1:]:
        ahead.append(logsumexp(ahead[-1][:, None] + rows, axis=0) + values)
    for values in seen[:0:-1]:
        behind.append(logsumexp(rows + values + behind[-1], axis=1))
    joint = np.array(ahead) + np.array(behind[::-1])
    evidence = logsumexp(ahead[-1])
    return float(evidence), np.exp(joint[:, 1] - evidence)


def exact_change(y: np.ndarray) -> tuple[float, np.ndarray]:
    def part(some: np.ndarray) -> float:
        total, shape = some.sum(), 2.0 + some.sum()
        own = gammaln(shape) - gammaln(2.0) - shape * np.log(1.0 + len(some))
        return float(own - gammaln(some + 1).sum() + 0 * total)

    logs = np.array([part(y[:k]) + part(y[k:]) for k in range(len(y))]) - np.log(len(y))
    return float(logsumexp(logs)), np.exp(logs - logsumexp(logs))


def probabilities(name: str, draws: np.ndarray, count: int) -> np.ndarray:
    if name == "change point":
        return np.bincount(draws, minlength=count) / len(draws)
    return draws.mean(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10)
    keys = parser.parse_args().keys
    cases: dict[str, tuple[Any, np.ndarray, Any]] = {
        "mixture of 50": (mixture, np.asarray(mixture_data(), float), exact_mixture),
        "HMM of 50 steps": (hmm, np.asarray(hmm_data(), float), exact_hmm),
        "change point": (change, counts(), exact_change),
    }
    rows = []
    for name, (model, y, exact) in cases.items():
        evidence, shares = exact(y)
        off, worst, seconds, verdicts = [], [], [], []
        for key in range(keys):
            begun = time.process_time()
            result = asvi.fit(
                model, jnp.asarray(y), rng_key=jax.random.key(key), progress_bar=False
            )
            seconds.append(time.process_time() - begun)
            off.append(result.log_evidence - evidence)
            found = probabilities(name, result.correction.pool.flat()["z"], len(y))
            worst.append(np.abs(found - shares).max())
            verdicts.append(result.diagnose().verdict)
            print(name, key, off[-1], worst[-1], verdicts[-1], flush=True)
        rows.append(
            {
                "model": name,
                "keys": keys,
                "log evidence": round(evidence, 3),
                "largest error [nat]": round(float(np.abs(off).max()), 4),
                "worst probability off by": round(float(np.max(worst)), 4),
                "called good": verdicts.count("good"),
                "first call [cpu s]": round(seconds[0], 2),
                "later calls [cpu s]": round(float(np.median(seconds[1:])), 2),
            }
        )
    print(table(rows))
    save("discrete_evidence", rows)


if __name__ == "__main__":
    main()
