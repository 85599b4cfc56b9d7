"""Takes a problem, a method and a key; gives the stored record of one fit in a fresh process.

``python -m benchmarks.race.one PROBLEM METHOD --key K --out FILE``
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.race.answer import Answer, Refused, Seconds, stopwatch
from benchmarks.race.methods import METHODS, Method
from benchmarks.race.record import Fit, store

LIMIT = 600.0
ANOTHER_KEY = 1000  # what the later call adds to the key
LONG = 60.0  # seconds of a first call after which there is no later one
LIBRARIES = ("asvi", "jax", "jaxlib", "numpyro", "numpy", "blackjax", "nutpie", "pymc")


def measure(
    fit: Fit,
    method: Method,
    problem: Any,
    limit: float,
    keep: Callable[[dict[str, Any]], None],
    later: bool = True,
) -> dict[str, Any]:
    """Run the method twice, and compare the first draws with the answer.

    ``keep`` gets the record as soon as the first call's is whole, and again after the later call,
    of which there is none without ``later``.
    """
    import jax

    found: dict[str, Any] = {"limit_seconds": limit}
    try:
        answer, first = timed(method, problem, jax.random.key(fit.key))
        found |= {
            "first_seconds": first.wall,
            "first_cpu_seconds": first.cpu,
            "diagnosis_seconds": answer.diagnosis.wall,
        }
        if first.wall > limit:
            found |= {"status": "too long", "message": f"more than {limit:.0f} s"}
        else:
            found |= {"status": "answered"} | judged(answer, problem)
    except Exception as error:  # whatever a method raises is its result on this model
        found |= failure(error)
    record = fit.record(**found)
    keep(record)
    if later and record["status"] == "answered" and record["first_seconds"] <= LONG:
        try:
            _, second = timed(method, problem, jax.random.key(fit.key + ANOTHER_KEY))
            record["later_seconds"] = second.wall
        except Exception as error:
            record["message"] = f"the later call: {failure(error)['message']}"
        keep(record)
    return record


def timed(method: Method, problem: Any, key: Any) -> tuple[Answer, Seconds]:
    """An answer, and the seconds to its draws: diagnosis is taken off."""
    with stopwatch() as whole:
        answer = method.run(problem, key)
    return answer, whole - answer.diagnosis


def judged(answer: Answer, problem: Any) -> dict[str, Any]:
    """The columns that an answer fills."""
    errors = problem.compare(answer.draws)
    gap = None
    if answer.log_evidence is not None and problem.log_evidence is not None:
        gap = answer.log_evidence - problem.log_evidence
    return {
        "draws": len(next(iter(answer.draws.values()))),
        "mean_error": errors.mean,
        "mean_error_of": errors.mean_of,
        "sd_error": errors.sd,
        "sd_error_of": errors.sd_of,
        "log_evidence": answer.log_evidence,
        "log_evidence_se": answer.log_evidence_se,
        "log_evidence_error": gap,
        "verdict": answer.verdict,
        "extra": answer.extra,
    }


def failure(error: Exception) -> dict[str, str]:
    """``refused`` where a method says that it does not take such a model; else ``failed``."""
    from asvi.errors import AsviError

    refused = isinstance(error, (Refused, AsviError, NotImplementedError))
    first = next(iter(str(error).strip().splitlines()), "")
    return {
        "status": "refused" if refused else "failed",
        "message": f"{type(error).__name__}: {first}",
    }


def versions() -> dict[str, str]:
    """Of the libraries that are there; and the commit of asvi's source, where it has one."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    source = find_spec("asvi")
    if source is not None and source.origin is not None:
        folder = str(Path(source.origin).parent)
        git = ["git", "-C", folder, "describe", "--always", "--dirty", "--exclude=*"]
        try:
            done = subprocess.run(git, capture_output=True, text=True, check=True)
            found["asvi commit"] = done.stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            pass
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem")
    parser.add_argument("method", choices=list(METHODS))
    parser.add_argument("--key", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--core", type=int, help="the only core that the fit may use")
    asked = parser.parse_args()
    if asked.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {asked.core})
    warnings.simplefilter("ignore")
    method = METHODS[asked.method]
    with stopwatch() as importing:
        try:
            for package in method.packages:
                importlib.import_module(package)
            missing = None
        except ImportError as error:
            missing = error
    from benchmarks.race.problems import load

    problem = load(asked.problem)
    fit = Fit(asked.problem, problem.group, asked.method, asked.key)
    about = {"import_seconds": importing.wall, "versions": versions()}
    if missing is not None:
        store(asked.out, fit.record(**failure(missing), **about, limit_seconds=asked.limit))
        return
    measure(fit, method, problem, asked.limit, lambda row: store(asked.out, {**row, **about}))


if __name__ == "__main__":
    main()
