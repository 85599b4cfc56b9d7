"""Takes a fit's measurements; gives one JSON file a fit, whole or not there at all."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.race.problem import half

COLUMNS = (
    "problem",
    "group",
    "half",
    "method",
    "key",
    "status",  # answered, refused, failed, or too long
    "message",  # the first line of why there is no answer
    "limit_seconds",
    "import_seconds",
    "first_seconds",  # to the draws of a first call; neither imports nor diagnosis
    "first_cpu_seconds",
    "later_seconds",  # to the draws of a second call in the same process, with another key
    "diagnosis_seconds",
    "draws",
    "mean_error",  # of the worst number, in reference sds
    "mean_error_of",
    "sd_error",  # of the worst number, relative
    "sd_error_of",
    "log_evidence",
    "log_evidence_se",
    "log_evidence_error",
    "verdict",
    "extra",
    "versions",
)


@dataclass(frozen=True)
class Fit:
    """What is run in one process: a problem, a method, a key."""

    problem: str
    group: str
    method: str
    key: int = 0

    @property
    def name(self) -> str:
        more = f".key{self.key}" if self.key else ""
        return f"{self.problem}.{self.method}{more}"

    def path(self, results: Path) -> Path:
        return results / "fits" / f"{self.name}.json"

    def record(self, **found: Any) -> dict[str, Any]:
        """A row with every column; what is not given is None."""
        about = {
            "problem": self.problem,
            "group": self.group,
            "half": half(self.problem),
            "method": self.method,
            "key": self.key,
            "extra": {},
            "versions": {},
        }
        return checked(dict.fromkeys(COLUMNS) | about | found)


def checked(row: dict[str, Any]) -> dict[str, Any]:
    """The row, if it has the columns and no others."""
    if set(row) != set(COLUMNS):
        odd = sorted(set(row) ^ set(COLUMNS))
        raise ValueError(f"a fit's columns differ from the race's: {', '.join(odd)}")
    return row


def store(path: Path, row: dict[str, Any]) -> None:
    """Write the row in one step: a kill leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(_plain(checked(row)), indent=1, allow_nan=False) + "\n")
    os.replace(draft, path)


def _plain(value: Any) -> Any:
    """JSON has no infinity: what is not finite is null, and null among errors is infinite."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if hasattr(value, "item"):  # a number of NumPy's
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read(path: Path) -> dict[str, Any]:
    return checked(json.loads(path.read_text()))


def read_all(results: Path) -> list[dict[str, Any]]:
    """All stored fits, by the names of their files."""
    return [read(path) for path in sorted((results / "fits").glob("*.json"))]


def is_done(path: Path, limit: float) -> bool:
    """Whether there is a fit that a run with this limit need not repeat."""
    if not path.exists():
        return False
    row = read(path)
    return not (row["status"] == "too long" and (row["limit_seconds"] or 0.0) < limit)
