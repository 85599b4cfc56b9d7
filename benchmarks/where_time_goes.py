"""Takes a few models; gives the processor's seconds of each stage of a first call of ``asvi.fit``.

``python -m benchmarks.where_time_goes``: one process a model, one core, nothing compiled before.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import reduce
from importlib import import_module
from typing import Any

from benchmarks.harness import save, table

MODELS = ("robust", "eight-schools", "radon", "gp-poisson")
STAGES = {
    "look at the model": ("asvi.fitting.rungs.gaussian", "Problem"),
    "record its density": ("asvi.fitting.gaussian.search", "block_density"),
    "find the Gaussian": ("asvi.fitting.gaussian.search", "_Search.run"),
    "ask NumPyro": ("asvi.fitting.rungs.gaussian", "_check_density"),
    "correct the draws": ("asvi.fitting.rungs.gaussian", "correct_gaussian"),
}


def measure(name: str) -> dict[str, float]:
    """Seconds of each stage, in this process."""
    import asvi
    from benchmarks.race.problems import load

    problem, spent = load(name), dict.fromkeys(STAGES, 0.0)

    def watched(stage: str, function: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            before = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent[stage] += time.process_time() - before

        return run

    for stage, (module, attribute) in STAGES.items():
        *owner, name = attribute.split(".")
        at = reduce(getattr, owner, import_module(module))
        setattr(at, name, watched(stage, getattr(at, name)))
    before = time.process_time()
    asvi.fit(problem.model, *problem.args, progress_bar=False, **problem.kwargs)
    whole = time.process_time() - before
    return {**spent, "the whole call": whole}


IMPORTS = """
import time
import numpyro
before = time.process_time()
import asvi
print(time.process_time() - before)
"""


def run(*command: str) -> str:
    """What a fresh process prints last."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        return
    rows = []
    for name in MODELS:
        seconds = {"import asvi": float(run("-c", IMPORTS))}
        seconds |= json.loads(run("-m", "benchmarks.where_time_goes", name))
        rows.append({"model": name, **{stage: round(s, 2) for stage, s in seconds.items()}})
        print(rows[-1])
    print(table(rows))
    save("where_time_goes", rows)


if __name__ == "__main__":
    main()
