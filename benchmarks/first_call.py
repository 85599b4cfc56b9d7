"""Takes twelve everyday models; gives processor seconds of StructuredNormal, first call and later.

``python -m benchmarks.first_call --beside OTHER`` runs this checkout and another one in turn, a
fresh process a fit. Processor seconds mean something on a busy machine, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import save, table

__all__ = ["main"]

HERE = Path(__file__).parent.parent
MODELS = (
    "linear-raw", "logistic-cauchy", "poisson-exposure", "robust", "schools-centred", "seeds",
    "varying-slopes", "ar2", "garch11", "mixture", "michaelis-menten", "survival",
)  # fmt: skip
ONE = """
import json, sys, time
import numpy as np, jax, asvi
from benchmarks.everyday.suite import SUITE
entry, seconds = SUITE[sys.argv[1]], []
for key in (0, 1):
    begun = time.process_time()
    asvi.fit(entry.model, *entry.args, **entry.kwargs, key=jax.random.key(key), progress=False,
             family=asvi.families.StructuredNormal())
    seconds.append(time.process_time() - begun)
print(json.dumps(seconds))
"""


def measured(checkout: Path, name: str) -> list[float]:
    """Seconds of the first and the second call in a fresh process."""
    paths = os.pathsep.join([str(checkout / "src"), str(checkout)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ONE, name],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path, help="another checkout, for comparison")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    checkouts = {"now": HERE} | ({"before": given.beside.resolve()} if given.beside else {})
    rows = []
    for name in MODELS:
        seconds: dict[str, list[list[float]]] = {kind: [] for kind in checkouts}
        for _ in range(given.repeats):
            for kind, checkout in checkouts.items():
                seconds[kind].append(measured(checkout, name))
        row = {"model": name}
        for kind, found in seconds.items():
            first, later = (statistics.median(x) for x in zip(*found, strict=True))
            row |= {f"first call {kind} [s]": first, f"later call {kind} [s]": later}
        rows.append(row)
        print(row, flush=True)
    print(table(rows))
    save("first_call", rows)


if __name__ == "__main__":
    main()
