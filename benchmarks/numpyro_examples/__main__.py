"""Takes names of models; gives their fits beside NUTS, and a table.

``python -m benchmarks.numpyro_examples`` runs what is not stored yet: for each model NUTS, then
``asvi.fit`` with nothing set, each in a process of its own. ``--only NAME ...`` runs these alone,
``--again`` also what is stored, ``--summary`` writes the table and runs nothing.
"""

from __future__ import annotations

import argparse
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.numpyro_examples import table
from benchmarks.numpyro_examples.one import METHODS
from benchmarks.numpyro_examples.suite import SUITE, THEMES
from benchmarks.race import lanes
from benchmarks.race.__main__ import Progress
from benchmarks.race.record import Fit, read_all

RESULTS = Path(__file__).parent.parent / "results" / "numpyro_examples"
LIMIT = 120.0


class Said(Progress):
    """Progress, NUTS's without errors: it is the reference."""

    def __call__(self, event: str, fit: Fit, record: dict[str, Any] | None) -> None:
        if record is not None and fit.method == "nuts" and record["status"] == "answered":
            record = {**record, "mean_error": 0.0, "sd_error": 0.0}
        super().__call__(event, fit, record)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.numpyro_examples")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(SUITE))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a fit")
    parser.add_argument("--nuts-limit", type=float, default=300.0, help="seconds of NUTS")
    parser.add_argument("--again", action="store_true", help="also what is stored already")
    parser.add_argument("--summary", action="store_true", help="the table alone")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no process is left behind
    if not asked.summary:
        fits = [
            Fit(name, THEMES[name], method)
            for name in asked.only or SUITE
            for method in METHODS
            if method in asked.methods
        ]
        limits = {"nuts": asked.nuts_limit, "asvi": asked.limit}
        left = [
            fit
            for fit in fits
            if asked.again or lanes.missing([fit], asked.results, limits[fit.method])
        ]
        print(f"{len(fits)} fits, {len(fits) - len(left)} of them stored already")
        begin = partial(lanes.start, module="benchmarks.numpyro_examples.one")

        def begin_within(fit: Fit, results: Path, _: float, core: int | None) -> lanes.Running:
            return begin(fit, results, limits[fit.method], core)

        progress = Said(len(fits), len(fits) - len(left))
        lanes.run(left, asked.results, asked.limit, 1, progress, begin_within)
    rows = read_all(asked.results)
    if not rows:
        raise SystemExit(f"no fits are stored in {asked.results}")
    print(table.write(rows, asked.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
