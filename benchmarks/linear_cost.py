"""Takes nothing; gives time per step and memory of large models by both families, as they grow.

``python -m benchmarks.linear_cost``: a hierarchy with 10³ to 10⁵ groups and a chain of 10² to 10⁴
steps, each by the convex update and by the coupled family, a process of its own for each, one after
another. A step is one draw's ELBO and its gradient under Adam, in compiled chunks. ``ratio`` is the
coupled family's time over the convex update's; both should grow in proportion to the size.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks.harness import save, table

SIZES = {"groups": (1_000, 10_000, 100_000), "chain": (100, 1_000, 10_000)}
FAMILIES = ("convex", "coupled")
ROUNDS = 7


def groups(y):
    """Groups with an effect each, seen once."""
    import numpyro
    import numpyro.distributions as dist

    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    with numpyro.plate("group", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def chain(y):
    """A random walk of unknown step, seen with noise."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))

    def step(x, y_t):
        x = numpyro.sample("x", dist.Normal(x, scale))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y_t)
        return x, None

    scan(step, 0.0, y)


def measure(kind: str, size: int, family: str) -> dict[str, Any]:
    """Median time of a step, peak memory and parameters of one family at one size."""
    import jax
    import jax.numpy as jnp
    import optax
    from numpyro.infer import SVI

    import asvi

    model = {"groups": groups, "chain": chain}[kind]
    y = jnp.asarray(np.random.default_rng(0).normal(size=size), jnp.float32)
    chosen = {"convex": asvi.families.ConvexUpdate(), "coupled": asvi.families.Coupled()}[family]
    guide = asvi.AutoASVI(model, family=chosen)
    svi = SVI(model, guide, optax.adam(1e-3), asvi.ELBO())
    steps = max(2, 200_000 // size)
    state = svi.init(jax.random.key(0), y)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @jax.jit
    def chunk(state):
        return jax.lax.scan(lambda s, _: svi.update(s, y), state, length=steps)

    begun = time.perf_counter()
    state, losses = jax.block_until_ready(chunk(state))
    first = time.perf_counter() - begun
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        state, losses = jax.block_until_ready(chunk(state))
        times.append((time.perf_counter() - begun) / steps)
    assert np.isfinite(np.asarray(losses)).all()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "parameters": sum(np.size(x) for x in jax.tree.leaves(svi.get_params(state))),
        "step_ms": 1e3 * float(np.median(times)),
        "first_chunk_s": first,
        "memory_mb": peak / 1024,
        "memory_of_the_run_mb": (peak - before) / 1024,
    }


def rows(kind: str) -> list[dict[str, Any]]:
    """One row per size: both families and their ratio."""
    found = []
    for size in SIZES[kind]:
        by = {}
        for family in FAMILIES:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.linear_cost", "--one", kind, str(size), family],
                capture_output=True,
                text=True,
                check=True,
            )
            by[family] = json.loads(done.stdout.splitlines()[-1])
        convex, coupled = by["convex"], by["coupled"]
        found.append(
            {
                "size": size,
                "parameters, convex": convex["parameters"],
                "parameters, coupled": coupled["parameters"],
                "step, convex [ms]": round(convex["step_ms"], 3),
                "step, coupled [ms]": round(coupled["step_ms"], 3),
                "ratio of time": round(coupled["step_ms"] / convex["step_ms"], 2),
                "memory, convex [MB]": round(convex["memory_mb"]),
                "memory, coupled [MB]": round(coupled["memory_mb"]),
                "ratio of memory": round(coupled["memory_mb"] / convex["memory_mb"], 2),
            }
        )
        print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", nargs=3, metavar=("KIND", "SIZE", "FAMILY"))
    chosen = parser.parse_args()
    if chosen.one:
        kind, size, family = chosen.one
        print(json.dumps(measure(kind, int(size), family)))
        return
    found = {kind: rows(kind) for kind in SIZES}
    for kind, lines in found.items():
        print(f"\n{kind}\n{table(lines)}")
    save("linear_cost", found)


if __name__ == "__main__":
    main()
