"""Takes a folder; gives the large-IAF column of Table 1 as cells there: meant for a GPU.

``python -m benchmarks.large_iaf out/gpu`` trains what the folder lacks; copy ``cells/`` into the
folder of the other columns afterwards. ``--stop-after`` bounds the seconds after which no new cell
is begun.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from asvi import tasks
from asvi.cli.bench.protocol import Protocol, column
from asvi.cli.bench.store import CellStore
from asvi.cli.bench.train_cell import train_cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--stop-after", type=float, default=float("inf"))
    arguments = parser.parse_args()
    begin = time.monotonic()
    store = CellStore(arguments.out, Protocol())
    for name in tasks.names():
        if store.has(name, "iaf-large") or time.monotonic() - begin > arguments.stop_after:
            continue
        print(name, flush=True)
        cell = train_cell(tasks.get(name), column("iaf-large"), Protocol(), print)
        store.save(name, "iaf-large", cell)
        values = cell["neg_elbo"]
        print(f"{name}: {values.mean():.3f} ± {values.std(ddof=1):.3f}, {cell['train_seconds']} s")


if __name__ == "__main__":
    main()
