"""Takes an entry and ``asvi`` or ``nuts``; gives the stored record of one fit in a fresh process.

``python -m benchmarks.numpyro_examples.one NAME METHOD --out FILE``. The record has the columns of
the race's.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

from benchmarks.numpyro_examples.entry import Example
from benchmarks.race.answer import stopwatch
from benchmarks.race.one import measure, versions
from benchmarks.race.problem import Errors, RaceProblem, compare_with, moments_by_number
from benchmarks.race.record import Fit, store

METHODS = ("nuts", "asvi")


def problem_of(entry: Example, theme: str, reference: dict[str, Any] | None) -> RaceProblem:
    """The entry as a problem of the race; without a reference all errors are None."""

    def compare(draws: dict[str, Any]) -> Any:
        if reference is None:
            return Errors(None, None, None, None)
        moments = moments_by_number(reference["mean"], reference["sd"])
        return compare_with(moments, reference["mean"], entry.comparable(draws))

    return RaceProblem(entry.name, theme, entry.model, entry.args, entry.kwargs, compare=compare)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--key", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=float, required=True)
    parser.add_argument("--core", type=int, help="the only core that the fit may use")
    asked = parser.parse_args()
    if asked.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {asked.core})
    warnings.simplefilter("ignore")
    with stopwatch() as importing:
        import asvi  # noqa: F401
        from benchmarks.numpyro_examples import reference
        from benchmarks.numpyro_examples.suite import SUITE, THEMES
        from benchmarks.race import ours
        from benchmarks.race.methods import Method

    entry, results = SUITE[asked.name], asked.out.parent.parent
    theme = THEMES[asked.name]
    about = {"import_seconds": importing.wall, "versions": versions()}

    def keep(row: dict[str, Any]) -> None:
        store(asked.out, {**row, **about})

    if asked.method == "asvi":
        run, moments = ours.default, reference.stored(results, asked.name)
    else:
        moments = None

        def run(problem: Any, key: Any) -> Any:
            found = reference.nuts(entry, key)
            path = reference.path_of(results, asked.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(reference.moments_of(found.draws), indent=1) + "\n")
            return found

    fit = Fit(asked.name, theme, asked.method, asked.key)
    method = Method(run, (), asked.method)
    measure(fit, method, problem_of(entry, theme, moments), asked.limit, keep, later=False)


if __name__ == "__main__":
    main()
