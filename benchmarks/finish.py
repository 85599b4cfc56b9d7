"""Takes a few fits; gives what a deterministic finish would gain: fixed draws, L-BFGS, held out.

``python -m benchmarks.finish``: after a fit of at most 6,500 steps, 60 steps of L-BFGS on the ELBO
over N fixed draws, judged on 4,000 others.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import asvi
from benchmarks.everyday.suite import SUITE
from benchmarks.harness import save, table

NAMES = ("eight-schools", "brownian-global", "garch11", "lotka-volterra")
STEPS, HELD_OUT = 60, 4000


def problem_of(name: str) -> tuple[Any, tuple, dict[str, Any]]:
    if name in asvi.tasks.names():
        task = asvi.tasks.get(name)
        return task.model, task.args, {}
    entry = SUITE[name]
    return entry.model, entry.args, entry.kwargs


def finishes(name: str) -> list[dict[str, Any]]:
    model, args, kwargs = problem_of(name)
    fit = asvi.fit(
        model,
        *args,
        rng_key=jax.random.key(0),
        effort="thorough",
        training=asvi.Training(num_steps=6500),
        progress_bar=False,
        **kwargs,
    )
    problem = fit.problem
    free = {n: problem._transforms[n].inv(v) for n, v in sorted(fit.params.items())}
    start = ravel_pytree(free)[0]
    moves = ravel_pytree({n: jnp.full(v.shape, float("/frame/" not in n)) for n, v in free.items()})
    others = jax.random.split(jax.random.key(77), HELD_OUT)

    def mean_elbo(vector, keys):
        return jax.lax.map(lambda k: problem.elbo(vector, k), keys, batch_size=64)

    judge = jax.jit(lambda vector: mean_elbo(vector, others))
    before = np.asarray(judge(start))
    rows = []
    for count in (256, 1024):
        keys = jax.random.split(jax.random.key(5), count)

        def loss(change, keys=keys):
            return -jnp.mean(mean_elbo(start + change * moves[0], keys))

        optimizer = optax.lbfgs(memory_size=20)
        slope = optax.value_and_grad_from_state(loss)

        @jax.jit
        def run(change, loss=loss, slope=slope, optimizer=optimizer):
            def step(carry, _):
                change, state = carry
                value, gradient = slope(change, state=state)
                updates, state = optimizer.update(
                    gradient, state, change, value=value, grad=gradient, value_fn=loss
                )
                return (optax.apply_updates(change, updates), state), value

            (change, _), values = jax.lax.scan(step, (change, optimizer.init(change)), length=STEPS)
            return change, values

        begun = time.perf_counter()
        change, values = jax.block_until_ready(run(jnp.zeros_like(start)))
        seconds = time.perf_counter() - begun
        gain = np.asarray(judge(start + change * moves[0])) - before
        rows.append(
            {
                "model": name,
                "parameters": problem.size,
                "fixed draws": count,
                "gain on them": float(values[0] - values[-1]),
                "gain on others": float(gain.mean()),
                "error": float(gain.std() / len(gain) ** 0.5),
                "seconds, to those of the fit": round(seconds / fit.seconds, 2),
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    rows = [row for name in NAMES for row in finishes(name)]
    print(table(rows))
    save("finish", rows)


if __name__ == "__main__":
    main()
