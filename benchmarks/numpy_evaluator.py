"""Takes eight everyday models; gives what NumPy's evaluator saves beside compiling everything.

``python -m benchmarks.numpy_evaluator`` makes each fit by the default call, in a fresh process with
nothing compiled before, with ``EvaluatorSettings.use_numpy`` on and off. Wall seconds are what a
user waits; processor seconds mean something on a busy machine, too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import partial
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import Any

import asvi
import asvi.results.fit
from asvi.density.settings import DensitySettings, EvaluatorSettings
from asvi.fitting.request import Request
from benchmarks.everyday.suite import SUITE
from benchmarks.harness import save, table

__all__ = ["main"]

MODELS = (
    "linear-known-noise", "logistic-raw", "robust", "schools-centred", "bioassay", "mixture",
    "varying-slopes", "garch11",
)  # fmt: skip
WAYS = {"numpy": True, "compiled": False}


def fitted(name: str, use_numpy: bool) -> dict[str, float]:
    """Seconds of the first call, of one with another key, and of ArviZ data, in this process."""
    warnings.simplefilter("ignore")
    density = DensitySettings(evaluator=EvaluatorSettings(use_numpy=use_numpy))
    made = Request.of
    asked = SimpleNamespace(of=lambda *about: replace(made(*about), density=density))
    vars(asvi.results.fit)["Request"] = asked  # no user's affair
    entry, found = SUITE[name], {}

    def measure(what: str, call: Any) -> Any:
        wall, processor = perf_counter(), process_time()
        result = call()
        found[what] = perf_counter() - wall
        found[f"{what}, processor"] = process_time() - processor
        return result

    for what, key in (("first", 0), ("later", 1)):
        fit = partial(asvi.fit, entry.model, *entry.args, **entry.kwargs, progress_bar=False)
        result = measure(what, lambda key=key, fit=fit: fit(rng_key=key))
    measure("arviz", result.to_arviz)
    return {**found, "evidence": float(result.log_evidence or result.elbo)}


def in_fresh_process(name: str, way: str) -> dict[str, float]:
    environment = {n: x for n, x in os.environ.items() if n != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.numpy_evaluator", name, way],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(fitted(sys.argv[1], WAYS[sys.argv[2]])))
        return
    rows = []
    for name in MODELS:
        found = {way: in_fresh_process(name, way) for way in WAYS}
        row: dict[str, Any] = {"model": name}
        for what in ("first", "first, processor", "later", "arviz"):
            row |= {f"{what} {way} [s]": found[way][what] for way in WAYS}
        row["evidence differs by [nat]"] = abs(
            found["numpy"]["evidence"] - found["compiled"]["evidence"]
        )
        rows.append(row)
        print(row, flush=True)
    medians = {n: statistics.median(row[n] for row in rows) for n in rows[0] if n != "model"}
    rows.append({"model": "median", **medians})
    print(table(rows))
    save("numpy_evaluator", rows)


if __name__ == "__main__":
    main()
