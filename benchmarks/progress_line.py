"""Takes nothing; gives what the line of progress costs: fits with and without it, in turn.

``python -m benchmarks.progress_line``: later calls of ``asvi.fit`` (nothing is compiled), whose
line is written to a terminal of its own. Each pair has the same key; the median of the ratios of
their times is shown.
"""

from __future__ import annotations

import os
import pty
import sys
import threading
import time

import jax
import numpy as np

import asvi
from benchmarks.harness import save, table

PAIRS = 24
NAMES = ("eight-schools", "brownian")


def shown_on_a_terminal() -> None:
    """Make standard error a terminal that somebody reads."""
    ours, theirs = pty.openpty()
    sys.stderr = os.fdopen(theirs, "w")

    def read() -> None:
        while os.read(ours, 4096):
            pass

    threading.Thread(target=read, daemon=True).start()


def seconds(name: str, key: int, progress: bool) -> float:
    task = asvi.tasks.get(name)
    begun = time.perf_counter()
    asvi.fit(
        task.model,
        *task.args,
        rng_key=jax.random.key(key),
        effort="thorough",
        progress_bar=progress,
    )
    return time.perf_counter() - begun


def row_of(name: str) -> dict[str, object]:
    """One task: seconds with and without the line."""
    seconds(name, 0, True)
    pairs = []
    for key in range(PAIRS):
        order = (True, False) if key % 2 else (False, True)
        found = {shown: seconds(name, key, shown) for shown in order}
        pairs.append((found[True], found[False]))
    with_line, without = np.array(pairs).T
    return {
        "task": name,
        "pairs": PAIRS,
        "with the line [s]": round(float(np.median(with_line)), 2),
        "without [s]": round(float(np.median(without)), 2),
        "median ratio": round(float(np.median(with_line / without)), 3),
    }


def main() -> None:
    shown_on_a_terminal()
    rows = [row_of(name) for name in NAMES]
    print(table(rows))
    save("progress_line", rows)


if __name__ == "__main__":
    main()
