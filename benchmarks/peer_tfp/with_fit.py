"""Takes a task and a family; gives the seconds of one whole `asvi.fit`, in a fresh process."""

from __future__ import annotations

import json
import sys
import time

import jax

import asvi

FAMILIES = {"coupled": None, "convex": asvi.families.ConvexUpdate()}


def main(name: str, family: str) -> None:
    task = asvi.tasks.get(name)
    begun = time.perf_counter()
    result = asvi.fit(
        task.model, *task.args, key=jax.random.key(0), family=FAMILIES[family], progress=False
    )
    seconds = time.perf_counter() - begun
    row = {"task": name, "library": family, "seconds": seconds, "neg_elbo": -result.elbo}
    print(json.dumps({**row, "steps": result.steps}))


if __name__ == "__main__":
    main(*sys.argv[1:])
