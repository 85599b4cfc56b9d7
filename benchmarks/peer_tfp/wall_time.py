"""Takes nothing; gives whole calls of ours beside 100,000 steps of TFP's ASVI, compile included.

``python -m benchmarks.peer_tfp.wall_time``: each in a process of its own, one after the other.
TFP's chains are written with its ``MarkovChain``, the faster way.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from asvi import tasks
from benchmarks.harness import save, table
from benchmarks.peer_tfp.__main__ import OUT, TFP, environment, measure

STEPS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", default=",".join(tasks.names()))
    names = parser.parse_args().tasks.split(",")
    OUT.mkdir(parents=True, exist_ok=True)
    python = environment("tfp", TFP)
    if python is None:
        return
    rows: list[dict[str, Any]] = []
    for name in names:
        task = tasks.get(name)
        data = OUT / f"{name}.npz"
        np.savez(data, **{f"arg{i}": x for i, x in enumerate(task.args)})
        peer = measure(python, "with_tfp.py", name, str(data), str(STEPS))
        seconds = peer["compile_seconds"] + STEPS / peer["steps_per_second"]
        for family in ("convex", "coupled"):
            ours = measure(sys.executable, "with_fit.py", name, family, str(peer["neg_elbo"]))
            rows.append(
                {
                    "task": name,
                    "family": family,
                    "TFP [s]": round(seconds, 1),
                    "asvi.fit [s]": round(ours["seconds"], 1),
                    "TFP's ELBO reached after [s]": round(ours["reached"], 1),
                    "TFP / reached": round(seconds / ours["reached"], 2),
                    "TFP / whole call": round(seconds / ours["seconds"], 2),
                    "-ELBO of TFP": peer["neg_elbo"],
                    "-ELBO of ours": round(ours["neg_elbo"], 3),
                }
            )
            print(rows[-1], flush=True)
    print(table(rows))
    save("peer_tfp_wall_time", rows)


if __name__ == "__main__":
    main()
