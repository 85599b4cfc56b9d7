"""Takes nothing; gives whole calls of ours beside 100,000 steps of TFP's ASVI, compile included.

``python -m benchmarks.peer_tfp.wall_time``: each in a process of its own, one after the other.
TFP's chains are written with its ``MarkovChain``, the faster way. Its seconds are those of building
the guide and its first parameters, compiling, and 100,000 steps, without the estimate of its ELBO;
ours are those of the call, with it. A pair of TFP and the structured normal is run several times,
and ratios are medians over the pairs.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median
from typing import Any

import numpy as np

from asvi import tasks
from benchmarks.harness import save, table
from benchmarks.peer_tfp.__main__ import OUT, TFP, environment, measure

STEPS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", default=",".join(tasks.names()))
    parser.add_argument("--pairs", type=int, default=5)
    asked = parser.parse_args()
    names = asked.tasks.split(",")
    OUT.mkdir(parents=True, exist_ok=True)
    python = environment("tfp", TFP)
    if python is None:
        return
    rows: list[dict[str, Any]] = []
    for name in names:
        task = tasks.get(name)
        data = OUT / f"{name}.npz"
        np.savez(data, **{f"arg{i}": x for i, x in enumerate(task.args)})
        pairs: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
        for k in range(asked.pairs):
            peer = measure(python, "with_tfp.py", name, str(data), str(STEPS))
            for family in ("structured", "default", "convex"):
                if k == 0 or family == "structured":
                    target = str(peer["neg_elbo"])
                    ours = measure(sys.executable, "with_fit.py", name, family, target)
                    pairs.setdefault(family, []).append((peer, ours))
        for family, found in pairs.items():
            peer, ours = found[0]
            rows.append(
                {
                    "task": name,
                    "family": family,
                    "pairs": len(found),
                    "TFP [s]": round(median(p["seconds"] for p, _ in found), 1),
                    "asvi.fit [s]": round(median(o["seconds"] for _, o in found), 1),
                    "TFP's ELBO reached after [s]": round(
                        median(o["reached"] for _, o in found), 1
                    ),
                    "TFP / reached": round(
                        median(p["seconds"] / o["reached"] for p, o in found), 2
                    ),
                    "TFP / whole call": round(
                        median(p["seconds"] / o["seconds"] for p, o in found), 2
                    ),
                    "-ELBO of TFP": peer["neg_elbo"],
                    "-ELBO of ours": round(ours["neg_elbo"], 3),
                }
            )
            print(rows[-1], flush=True)
    print(table(rows))
    save("peer_tfp_wall_time", rows)


if __name__ == "__main__":
    main()
