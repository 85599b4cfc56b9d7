"""Takes problems and methods; gives the race's fits, its tables and its pictures.

``python -m benchmarks.race`` runs what is not stored yet. See ``benchmarks/race/README.md``.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.race import lanes, summary
from benchmarks.race.methods import METHODS
from benchmarks.race.one import LIMIT
from benchmarks.race.problems import SMALL, groups_by_name
from benchmarks.race.record import Fit, read_all

RESULTS = Path(__file__).parent.parent / "results" / "race"
SMALL_METHODS = ("asvi", "structured-normal", "nuts")


@dataclass
class Progress:
    """Prints a line when a fit begins and one when it ends."""

    everything: int
    done: int
    begun: float = field(default_factory=time.monotonic)
    now: int = 0

    def __call__(self, event: str, fit: Fit, record: dict[str, Any] | None) -> None:
        if record is None:
            print(f"[{self.done}/{self.everything}] {fit.name} …", flush=True)
            return
        self.done, self.now = self.done + 1, self.now + 1
        passed = time.monotonic() - self.begun
        ahead = passed / self.now * (self.everything - self.done)
        print(
            f"[{self.done}/{self.everything}] {fit.name}: {in_words(record)}"
            f" | {clock(passed)} so far, about {clock(ahead)} to go",
            flush=True,
        )


def in_words(row: dict[str, Any]) -> str:
    """A fit in one line."""
    if row["status"] != "answered":
        return f"{row['status']} ({row['message']})"
    later = "" if row["later_seconds"] is None else f", then {row['later_seconds']:.1f} s"
    mean, sd = summary.errors_of(row)
    verdict = f", {row['verdict']}" if row["verdict"] else ""
    return f"{row['first_seconds']:.1f} s{later}; off by {mean:.3f} sd, {sd:.1%} of an sd{verdict}"


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def planned(asked: argparse.Namespace, groups: dict[str, str]) -> list[Fit]:
    """The fits that were asked for: for each problem its methods, one after the other."""
    problems = asked.only_problems or (SMALL if asked.small else list(groups))
    methods = asked.methods or (SMALL_METHODS if asked.small else list(METHODS))
    unknown = [name for name in problems if name not in groups and name not in SMALL]
    if unknown:
        raise SystemExit(f"no problem {', '.join(unknown)}; there are: {', '.join(groups)}")
    return [
        Fit(name, groups[name], method, key)
        for name in problems
        if name in groups  # a small problem may need a database that is not at hand
        for key in range(asked.keys)
        for method in methods
        if METHODS[method].takes(name)
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race")
    parser.add_argument("--small", action="store_true", help="twelve problems, three methods")
    parser.add_argument("--only-problems", nargs="+", metavar="NAME")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), metavar="NAME")
    parser.add_argument("--keys", type=int, default=1, help="fits of each, with keys 0, 1, ...")
    parser.add_argument("--lanes", type=int, choices=(1, 2), default=1, help="problems at a time")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a fit")
    parser.add_argument("--again", action="store_true", help="also what is stored already")
    parser.add_argument("--summary", action="store_true", help="tables and pictures alone")
    parser.add_argument("--posteriordb", metavar="PATH", help="of posterior_database")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no process is left behind
    if asked.posteriordb:
        os.environ["POSTERIORDB"] = asked.posteriordb
    if not asked.summary:
        groups = groups_by_name()
        if "posteriordb" not in groups.values():
            print("posteriordb is left out: --posteriordb PATH or POSTERIORDB leads to it.")
        fits = planned(asked, groups)
        left = fits if asked.again else lanes.missing(fits, asked.results, asked.limit)
        print(f"{len(fits)} fits, {len(fits) - len(left)} of them stored already")
        progress = Progress(len(fits), len(fits) - len(left))
        lanes.run(left, asked.results, asked.limit, asked.lanes, progress)
    rows = read_all(asked.results)
    if not rows:
        raise SystemExit(f"no fits are stored in {asked.results}")
    print(summary.write(rows, asked.results))
    from benchmarks.race import pictures

    pictures.draw(rows, asked.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
