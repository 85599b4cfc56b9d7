"""Takes stored fits; gives the race's tables: by method, by half, by group, by problem."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.race.methods import METHODS, REFERENCE
from benchmarks.race.problems import GROUPS
from benchmarks.race.record import checked
from benchmarks.race.tables import Table, cell

Row = dict[str, Any]

LARGEST_MEAN_ERROR = 0.1  # reference sds, of the worst number
LARGEST_SD_ERROR = 0.1  # relative, of the worst number
LARGEST_EVIDENCE_ERROR = 0.1  # nats

SUMMARY_HEAD = (
    "method",
    "fits",
    "answered",
    "refused",
    "failed",
    "too long",
    "first call (s)",
    "later call (s)",
    "diagnosis (s)",
    "first / NUTS",
    "later / NUTS",
    "cpu / NUTS",
    "slower than NUTS",
    "means right",
    "sds right",
    "right",
    "wrong, called good",
    "wrong, called usable",
    "evidence right",
    "evidence known",
)

PROBLEMS_HEAD = (
    "problem",
    "group",
    "half",
    "method",
    "status",
    "first (s)",
    "cpu (s)",
    "later (s)",
    "diagnosis (s)",
    "worst mean (sd)",
    "worst sd",
    "evidence (nat)",
    "verdict",
)

HEADLINE_HEAD = (
    "method",
    "problems",
    "right",
    "wrong, called good",
    "first call (s)",
    "later call (s)",
    "cpu / NUTS",
    "slower than NUTS",
)

VERDICTS_HEAD = (
    "method",
    "verdict",
    "fits, half tuning",
    "of them right",
    "fits, half held-out",
    "right of these",
)
JUDGED = ("asvi", "structured-normal")  # methods whose verdict is in words
VERDICTS = {
    "good": ("good",),
    "usable": ("usable", "usable with resampling"),
    "not trustworthy": ("not trustworthy",),
}

ABOUT = """# The race: error against seconds

A fit is *right* where each posterior mean is within 0.1 sd and each sd within 10% of the reference.
Seconds are medians over the fits that have an answer: from the call to its draws, without imports
and without diagnosis. *First* is the first call of a process, *later* a second one with another
key. Ratios to NUTS are medians over the problems that both methods answered; *cpu* is that of the
processor's seconds of first calls, which a busy machine changes least. *Slower than NUTS* counts
problems, by processor's seconds. Evidence is right within 0.1 nat. Settings are chosen on the half
*tuning*; the half *held-out* tells what they are worth.
"""


def errors_of(row: Row) -> tuple[float, float]:
    """The worst errors of means and of sds; infinite where draws were not finite."""
    found = [row["mean_error"], row["sd_error"]]
    mean, sd = (float("inf") if x is None else x for x in found)
    return mean, sd


def answered(row: Row) -> bool:
    return row["status"] == "answered"


def means_right(row: Row) -> bool:
    return answered(row) and errors_of(row)[0] <= LARGEST_MEAN_ERROR


def sds_right(row: Row) -> bool:
    return answered(row) and errors_of(row)[1] <= LARGEST_SD_ERROR


def right(row: Row) -> bool:
    return means_right(row) and sds_right(row)


def evidence_right(row: Row) -> bool:
    gap = row["log_evidence_error"]
    return answered(row) and gap is not None and abs(gap) <= LARGEST_EVIDENCE_ERROR


def ratios(rows: Iterable[Row], method: str, column: str) -> dict[tuple[str, int], float]:
    """A method's seconds over those of NUTS, by problem and key, where both have an answer."""
    seconds: dict[str, dict[tuple[str, int], float]] = {method: {}, REFERENCE: {}}
    for row in rows:
        if row["method"] in seconds and answered(row) and row[column] is not None:
            seconds[row["method"]][row["problem"], row["key"]] = row[column]
    theirs = seconds[REFERENCE]
    return {at: s / theirs[at] for at, s in seconds[method].items() if at in theirs}


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def of_method(rows: list[Row], method: str) -> Row:
    """A method's row of the summary; ``rows`` has all methods' fits."""
    own = [row for row in rows if row["method"] == method]
    good = [row for row in own if answered(row)]

    def wrong(verdict: str) -> int:
        return sum(row["verdict"] == verdict and not right(row) for row in good)

    return {
        "method": method,
        "fits": len(own),
        "answered": len(good),
        "refused": sum(row["status"] == "refused" for row in own),
        "failed": sum(row["status"] == "failed" for row in own),
        "too long": sum(row["status"] == "too long" for row in own),
        "first call (s)": median(row["first_seconds"] for row in good),
        "later call (s)": median(row["later_seconds"] for row in good),
        "diagnosis (s)": median(row["diagnosis_seconds"] for row in good),
        "first / NUTS": median(ratios(rows, method, "first_seconds").values()),
        "later / NUTS": median(ratios(rows, method, "later_seconds").values()),
        "cpu / NUTS": median(ratios(rows, method, "first_cpu_seconds").values()),
        "slower than NUTS": sum(r > 1 for r in ratios(rows, method, "first_cpu_seconds").values()),
        "means right": sum(map(means_right, own)),
        "sds right": sum(map(sds_right, own)),
        "right": sum(map(right, own)),
        "wrong, called good": wrong("good"),
        "wrong, called usable": wrong("usable") + wrong("usable with resampling"),
        "evidence right": sum(map(evidence_right, own)),
        "evidence known": sum(row["log_evidence_error"] is not None for row in good),
    }


def summarise(rows: list[Row]) -> Table:
    """A row for each method that has fits, in the order of the table of methods."""
    for row in rows:
        checked(row)
    present = {row["method"]: None for row in rows}
    known = [name for name in METHODS if name in present]
    others = [name for name in present if name not in METHODS]
    return Table(SUMMARY_HEAD, [of_method(rows, name) for name in known + others])


def parts(rows: list[Row]) -> dict[str, list[Row]]:
    """All fits; those of each half; those of each group."""

    def where(column: str) -> Callable[[str], list[Row]]:
        return lambda value: [row for row in rows if row[column] == value]

    found = {"All problems": rows}
    found |= {f"Half: {name}": where("half")(name) for name in ("tuning", "held-out")}
    found |= {f"Group: {name}": where("group")(name) for name in GROUPS}
    return {title: part for title, part in found.items() if part}


def by_problem(rows: list[Row]) -> Table:
    """A row for each fit; the fits of a problem stand together."""
    groups, methods = list(GROUPS), list(METHODS)

    def place(row: Row) -> tuple:
        known = row["method"] in methods
        method = methods.index(row["method"]) if known else len(methods)
        return groups.index(row["group"]), row["problem"], row["key"], method

    def error(row: Row, which: str) -> str | None:
        if not answered(row):
            return None
        mean, sd = errors_of(row)
        return f"{cell(mean if which == 'mean' else sd)} ({row[f'{which}_error_of']})"

    lines = [
        {
            "problem": row["problem"] if row["key"] == 0 else f"{row['problem']}, key {row['key']}",
            "group": row["group"],
            "half": row["half"],
            "method": row["method"],
            "status": row["status"] if answered(row) else f"{row['status']}: {row['message']}",
            "first (s)": row["first_seconds"],
            "cpu (s)": row["first_cpu_seconds"],
            "later (s)": row["later_seconds"],
            "diagnosis (s)": row["diagnosis_seconds"],
            "worst mean (sd)": error(row, "mean"),
            "worst sd": error(row, "sd"),
            "evidence (nat)": row["log_evidence_error"],
            "verdict": row["verdict"],
        }
        for row in sorted(rows, key=place)
    ]
    return Table(PROBLEMS_HEAD, lines)


def by_verdict(rows: list[Row]) -> Table:
    """How many fits had a verdict, and how many of these were right, by half."""
    lines = []
    for method in JUDGED:
        for verdict, words in VERDICTS.items():
            own = [r for r in rows if r["method"] == method and r["verdict"] in words]
            halves = [[r for r in own if r["half"] == name] for name in ("tuning", "held-out")]
            counts = [n for half in halves for n in (len(half), sum(map(right, half)))]
            lines.append(dict(zip(VERDICTS_HEAD, (method, verdict, *counts))))
    return Table(VERDICTS_HEAD, [line for line in lines if any(list(line.values())[2:])])


def versions(rows: list[Row]) -> str:
    """Every version that made a fit, by library: several where fits were made at several times."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        for library, number in row["versions"].items():
            found.setdefault(library, {})[number] = None
    return "; ".join(f"{library} {', '.join(numbers)}" for library, numbers in found.items())


def write(rows: list[Row], results: Path) -> str:
    """Write the tables, ``headline.md`` the shortest; give the summary of all fits."""
    tables = {title: summarise(part) for title, part in parts(rows).items()}
    text = ABOUT + "".join(f"\n## {t}\n\n{table.markdown()}" for t, table in tables.items())
    (results / "table.md").write_text(f"{text}\n<sub>{versions(rows)}</sub>\n")
    problems = "# The race, fit by fit\n\n" + by_problem(rows).markdown()
    (results / "problems.md").write_text(problems)
    rows_of = ({**row, "problems": row["fits"]} for row in tables["All problems"].rows)
    headline = [{name: row[name] for name in HEADLINE_HEAD} for row in rows_of]
    (results / "headline.md").write_text(Table(HEADLINE_HEAD, headline).markdown())
    (results / "verdicts.md").write_text(by_verdict(rows).markdown())
    stored = {"summary": {title: table.rows for title, table in tables.items()}, "fits": rows}
    (results / "table.json").write_text(json.dumps(stored, indent=1, allow_nan=False) + "\n")
    return tables["All problems"].markdown()
