"""Takes nothing; gives the everyday suite by name, and the stored truth of each entry.

>>> from benchmarks.everyday.suite import SUITE, stored_truth
>>> entry, truth = SUITE["linear-raw"], stored_truth("linear-raw")
>>> result = asvi.fit(entry.model, *entry.args, **entry.kwargs)
>>> gap = truth["log_evidence"] - result.elbo
>>> draws = entry.comparable(result.posterior.sample(key, (1000,)))
>>> off = (draws["sigma"].mean(0) - truth["mean"]["sigma"]) / truth["sd"]["sigma"]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.everyday import generalised, hierarchies, linear, others, series
from benchmarks.everyday.entry import Everyday

__all__ = ["ENTRIES", "SUITE", "TRUTH", "Everyday", "stored_truth"]

TRUTH = Path(__file__).parent.parent / "results" / "everyday" / "truth"

ENTRIES = [
    *linear.ENTRIES,
    *generalised.ENTRIES,
    *hierarchies.ENTRIES,
    *series.ENTRIES,
    *others.ENTRIES,
]
SUITE: dict[str, Everyday] = {entry.name: entry for entry in ENTRIES}


def stored_truth(name: str) -> dict[str, Any]:
    """What ``python -m benchmarks.everyday.truth`` stored; moments by site as nested lists."""
    return json.loads((TRUTH / f"{name}.json").read_text())
