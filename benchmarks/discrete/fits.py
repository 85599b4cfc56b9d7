"""Takes three larger models; gives zero-argument fits against the best that the family can reach.

``python -m benchmarks.discrete.fits [--seeds 10]``:

- a mixture of 50 points with explicit assignments and unknown components. The best is that of long
  fits, gradients by enumeration;
- a hidden Markov model of 50 steps with explicit states. The ELBO of the convex update is computed
  exactly, by a forward recursion over the states written here, and maximised from several starts;
  a fit is judged by the same recursion at its parameters;
- a branching program whose posterior the family contains: the exact log evidence.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax

import asvi
from asvi.families import ConvexUpdate
from benchmarks.discrete.models import TABLE, branch, hmm, mixture_learned
from benchmarks.harness import save, table

POINTS = 50


def mixture_data() -> jax.Array:
    rng = np.random.default_rng(0)
    which = rng.random(POINTS) < 0.4
    return jnp.asarray(np.where(which, 1.4, -1.2) + 0.8 * rng.normal(size=POINTS), jnp.float32)


def hmm_data() -> jax.Array:
    rng = np.random.default_rng(1)
    z, rows = 0, []
    for _ in range(POINTS):
        z = int(rng.random() < TABLE[z, 1])
        rows.append(2.0 * z + rng.normal())
    return jnp.asarray(rows, jnp.float32)


def best_mixture(y: jax.Array) -> float:
    found = [
        asvi.fit(
            mixture_learned,
            y,
            rng_key=jax.random.key(100 + seed),
            family=ConvexUpdate(),
            discrete="enumerate",
            training=asvi.Training(num_steps=60_000, elbo_tolerance=1e-4),
            progress_bar=False,
        ).elbo
        for seed in range(3)
    ]
    return max(found)


def hmm_elbo(prior_weight: jax.Array, data_term: jax.Array, y: jax.Array) -> jax.Array:
    """Exact, with q(z_t | z_{t-1}) = λ_t P[z_{t-1}] + (1 - λ_t) α_t; weights (T,), terms (T, 2)."""

    def step(marginal, inputs):
        weight, alpha, y_t = inputs
        q = weight * TABLE + (1 - weight) * alpha
        gain = jnp.log(TABLE) + dist.Normal(2.0 * jnp.arange(2), 1.0).log_prob(y_t) - jnp.log(q)
        joint = marginal[:, None] * q
        return joint.sum(0), jnp.sum(joint * gain)

    return jnp.sum(jax.lax.scan(step, jnp.array([1.0, 0.0]), (prior_weight, data_term, y))[1])


def best_hmm(y: jax.Array, starts: int = 5, steps: int = 20_000) -> float:
    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, steps))

    def loss(free):
        return -hmm_elbo(jax.nn.sigmoid(free[:, 0]), jax.nn.softmax(free[:, 1:]), y)

    @jax.jit
    def run(key):
        free = jax.random.normal(key, (POINTS, 3))

        def step(state, _):
            free, memory = state
            updates, memory = optimizer.update(jax.grad(loss)(free), memory)
            return (optax.apply_updates(free, updates), memory), None

        return -loss(jax.lax.scan(step, (free, optimizer.init(free)), length=steps)[0][0])

    return max(float(run(key)) for key in jax.random.split(jax.random.key(0), starts))


def at_fit(result: asvi.Fit, y: jax.Array) -> float:
    params = result.params
    weight, term = params["auto/z/probs/prior_weight"], params["auto/z/probs/data_term"]
    return float(hmm_elbo(jnp.reshape(weight, (POINTS,)), term, y))


def branch_evidence(y: float) -> float:
    left = dist.Normal(2.0, 2.0**0.5).log_prob(y) + jnp.log(0.4)
    right = dist.Normal(-1.0, 1.25**0.5).log_prob(y) + jnp.log(0.6)
    return float(jnp.logaddexp(left, right))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    points, series, seen = mixture_data(), hmm_data(), 0.6
    convex: dict[str, Any] = {"family": ConvexUpdate(), "progress_bar": False}
    cases = {
        "mixture of 50 (enumerated)": (mixture_learned, points, convex, 0.1),
        "mixture of 50 (score)": (mixture_learned, points, {**convex, "discrete": "score"}, 0.1),
        "HMM of 50 steps": (hmm, series, convex, 0.1),
        "branching program": (branch, seen, {"progress_bar": False}, 0.01),
    }
    mixed = best_mixture(points)
    best = {
        "mixture of 50 (enumerated)": mixed,
        "mixture of 50 (score)": mixed,
        "HMM of 50 steps": best_hmm(series),
        "branching program": branch_evidence(seen),
    }
    rows, fits = [], []
    for name, (model, data, settings, target) in cases.items():
        gaps, seconds = [], []
        for seed in range(seeds):
            begun = time.perf_counter()
            result = asvi.fit(model, data, rng_key=jax.random.key(seed), **settings)
            seconds.append(time.perf_counter() - begun)
            reached = at_fit(result, data) if model is hmm else result.elbo
            error = 0.0 if model is hmm else result.elbo_se
            gaps.append(best[name] - reached)
            fits.append({"case": name, "seed": seed, "gap": gaps[-1], "error": error})
            print(fits[-1], result.num_steps, result.diagnose().verdict, flush=True)
        rows.append(
            {
                "case": name,
                "best": best[name],
                "target": target,
                "under the target": f"{int(np.sum(np.array(gaps) <= target))} of {seeds}",
                "median gap": float(np.median(gaps)),
                "worst gap": float(np.max(gaps)),
                "first call [s]": round(seconds[0], 1),
                "later calls [s]": round(float(np.median(seconds[1:])), 1),
            }
        )
    print(table(rows))
    save("discrete_fits", {"cases": rows, "fits": fits})


if __name__ == "__main__":
    main()
