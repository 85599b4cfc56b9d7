"""Takes the small models; gives each estimator's mean gradient against brute force, and variances.

``python -m benchmarks.discrete.gradients [--draws 40000]``. The reference stands by itself: every
configuration of the discrete sites is put into guide and model, one by one, and weighted by
its probability; continuous sites are averaged over as many draws again.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import asvi
from asvi.program.run_trace import log_density, trace_of
from benchmarks.discrete.models import MODELS, Small, hmm
from benchmarks.harness import save, table

#: Values of one element, by model and site; written down, not asked of the library.
VALUES: dict[str, dict[str, Any]] = {
    "loop": {"z0": 2, "z1": 2, "z2": 2},
    "mixture": {"z": 3},
    "mixture-subsampled": {"z": 3},
    "mixture-learned": {"z": 2},
    "hmm": {"z": 2},
    "hmm-with-plate": {"z": 2},
    "switching": {"s": 2},
    "branch": {"gate": 2},
    "branch-discrete": {"gate": 2, "k": 3},
    "active": {"count": 3},
    "chosen": {"k": 3},
    "counted": {"z": 2},
    "back-into-the-plate": {"z": 2},
    "nested": {"a": 2, "b": 2},
    "binomial": {"k": 4},
    "poisson": {"k": 25},
    "multinomial": {"k": [c for c in itertools.product(range(3), repeat=3) if sum(c) == 2]},
}
BATCH = 500


def prepared(small: Small) -> tuple[Any, dict[str, jax.Array], Callable]:
    """A guide, parameters somewhere off its start, and how to make a vector of them."""
    guide = asvi.AutoASVI(small.model)
    first = trace_of(guide, jax.random.key(0), {}, {}, small.args, {})
    params = {n: s["value"] for n, s in first.items() if s["type"] == "param"}
    constraints = {n: s["kwargs"]["constraint"] for n, s in first.items() if s["type"] == "param"}
    moved = {}
    from numpyro.distributions import biject_to

    for i, (name, value) in enumerate(sorted(params.items())):
        free = biject_to(constraints[name]).inv(value)
        noise = jax.random.normal(jax.random.key(100 + i), jnp.shape(free))
        # Prior weights start near their bound, where every gradient is small.
        free = 0.3 * free + 0.5 * noise if name.endswith("prior_weight") else free + 0.3 * noise
        moved[name] = free
    flat, unravel = ravel_pytree(moved)

    def constrained(vector: jax.Array) -> dict[str, jax.Array]:
        return {n: biject_to(constraints[n])(x) for n, x in unravel(vector).items()}

    return guide, {"flat": flat}, constrained


def shapes_of(small: Small, guide: Any, names: list[str]) -> dict[str, tuple[int, ...]]:
    drawn = trace_of(guide, jax.random.key(0), {}, {}, small.args, {})
    return {name: jnp.shape(drawn[name]["value"]) for name in names}


def brute_force(name: str, small: Small, guide: Any, constrained: Callable) -> Callable:
    """One draw's ELBO with all discrete sites summed out, configuration by configuration."""
    known = VALUES[name]
    shapes = shapes_of(small, guide, list(known))
    each = []
    for site, values in known.items():
        if isinstance(values, int):
            cells = itertools.product(range(values), repeat=int(np.prod(shapes[site], dtype=int)))
            each.append([np.array(c).reshape(shapes[site]) for c in cells])
        else:
            each.append([np.array(v) for v in values])
    table_of = list(itertools.product(*each))
    stacked = {s: np.stack([row[i] for row in table_of]) for i, s in enumerate(known)}

    def elbo(vector: jax.Array, key: jax.Array) -> jax.Array:
        params = constrained(vector)

        def one(values):
            guide_key, model_key = jax.random.split(key)
            drawn = trace_of(guide, guide_key, params, values, small.args, {})
            latent = {n: s for n, s in drawn.items() if s["type"] == "sample"}
            given = {n: s["value"] for n, s in drawn.items() if s["type"] in ("sample", "plate")}
            met = trace_of(small.model, model_key, params, given, small.args, {})
            log_p = sum(log_density(s) for s in met.values() if s["type"] == "sample")
            log_q = sum(log_density(s) for s in latent.values())
            weight = sum(jnp.sum(latent[n]["fn"].log_prob(latent[n]["value"])) for n in known)
            return jnp.exp(weight) * (log_p - log_q)

        return jnp.sum(jax.vmap(one)(stacked))

    return elbo


def moments(gradient: Callable, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of independent gradients, (parameters,)."""
    run = jax.jit(jax.vmap(gradient))
    total, squares = 0.0, 0.0
    for i in range(draws // BATCH):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), i), BATCH)
        found = np.asarray(run(keys), float)
        total, squares = total + found.sum(0), squares + (found**2).sum(0)
    mean = total / draws
    return mean, np.maximum(squares / draws - mean**2, 0.0)


def errors(name: str, small: Small, draws: int) -> list[dict[str, Any]]:
    """One line for each way of taking the gradient."""
    guide, start, constrained = prepared(small)
    flat = start["flat"]
    elbo = brute_force(name, small, guide, constrained)
    gradient = jax.grad(elbo)
    truth, spread = moments(lambda key: gradient(flat, key), draws, 1)
    rows = []
    for way in small.ways:
        loss = asvi.ELBO(num_particles=2, discrete=way)

        def one(key, loss=loss):
            return -jax.grad(
                lambda v: loss.loss(key, constrained(v), small.model, guide, *small.args)
            )(flat)

        # Two draws a gradient: the fewest that have a baseline.
        mean, variance = moments(one, draws // 2, 2)
        se = np.sqrt(variance / (draws // 2) + spread / draws)
        direction = truth / np.linalg.norm(truth)
        row = {"model": name, "way": way, "parameters": len(truth)}
        row["relative error"] = float(np.linalg.norm(mean - truth) / np.linalg.norm(truth))
        if np.sqrt(se @ se) > 1e-5 * np.linalg.norm(truth):
            z = (mean - truth)[se > 0] / se[se > 0]
            along = abs((mean - truth) @ direction) / np.sqrt((se**2) @ direction**2)
            row["error along the gradient / se"] = round(float(along), 2)
            row["rms of errors / se"] = round(float(np.sqrt(np.mean(z**2))), 2)
            row["largest error / se"] = round(float(np.abs(z).max()), 2)
        else:  # no noise to compare with: exact but for rounding
            names = ("error along the gradient / se", "rms of errors / se", "largest error / se")
            row |= dict.fromkeys(names, "exact")
        rows.append({**row, "variance": float(variance.sum())})
        print(rows[-1], flush=True)
    return rows


def plain_score(small: Small, guide: Any, constrained: Callable, draws: int) -> Callable:
    """REINFORCE as it stands in books: the whole ELBO times the score, no baseline."""

    def loss(vector, key):
        params = constrained(vector)

        def one(key):
            guide_key, model_key = jax.random.split(key)
            drawn = trace_of(guide, guide_key, params, {}, small.args, {})
            given = {n: s["value"] for n, s in drawn.items() if s["type"] == "sample"}
            met = trace_of(small.model, model_key, params, given, small.args, {})
            log_p = sum(log_density(s) for s in met.values() if s["type"] == "sample")
            log_q = sum(log_density(s) for s in drawn.values() if s["type"] == "sample")
            return log_q * jax.lax.stop_gradient(log_p - log_q)

        return jnp.mean(jax.vmap(one)(jax.random.split(key, draws)))

    return jax.grad(loss)


def variance_on_hmm(draws: int) -> list[dict[str, Any]]:
    """Variance of the gradient of a 4-step HMM under scan, at 2 and 8 draws a gradient."""
    small = Small(hmm, (jnp.array([-1.3, 0.2, 2.5, 1.0]),))
    guide, start, constrained = prepared(small)
    rows = []
    for each in (2, 8):
        book = plain_score(small, guide, constrained, each)
        loss = asvi.ELBO(num_particles=each, discrete="score")

        def ours(key, loss=loss):
            return jax.grad(
                lambda v: loss.loss(key, constrained(v), small.model, guide, *small.args)
            )(start["flat"])

        plain = moments(lambda key, book=book: book(start["flat"], key), draws, 3)[1].sum()
        score = moments(ours, draws, 4)[1].sum()
        rows.append(
            {
                "draws per gradient": each,
                "plain REINFORCE": float(plain),
                "asvi.ELBO, score": float(score),
                "ratio": round(float(plain / score), 1),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=40_000)
    parser.add_argument("--only", nargs="*", default=list(MODELS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [row for n in arguments.only for row in errors(n, MODELS[n], arguments.draws)]
    variances = variance_on_hmm(10_000)
    print(table(rows), table(variances), sep="\n\n")
    if set(arguments.only) == set(MODELS):
        save("discrete_gradients", {"errors": rows, "variance": variances})


if __name__ == "__main__":
    main()
