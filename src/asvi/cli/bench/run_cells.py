"""Takes names of tasks and columns; gives their finished cells, training what is missing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from asvi import tasks
from asvi.cli.bench.fit_cell import fit_cell
from asvi.cli.bench.protocol import Protocol, column
from asvi.cli.bench.store import CellStore
from asvi.cli.bench.train_cell import train_cell
from asvi.errors import AsviError

__all__ = ["HAS_CHAIN", "run_cells"]

HAS_CHAIN = ("brownian", "brownian-global", "lorenz", "lorenz-global")


def run_cells(
    out: str | Path,
    protocol: Protocol,
    task_names: Iterable[str] | None = None,
    families: Iterable[str] | None = None,
    progress: bool = True,
) -> dict[tuple[str, str], dict[str, Any]]:
    """Every wanted cell, trained now or found in ``out`` from an earlier run.

    A kill loses only the cell at work; the next run goes on from the finished ones.
    """
    task_names = tuple(task_names or tasks.names())
    families = tuple(families or protocol.families)
    make_cell = fit_cell if protocol.name == "best" else train_cell
    wanted = []
    for name in task_names:  # names are checked before anything is trained
        task = tasks.get(name)
        for family in families:
            kind = column(family)
            if name in HAS_CHAIN or not kind.needs_chain:
                wanted.append((task, family, kind))
    if not wanted:
        raise AsviError(
            f"None of {', '.join(families)} applies to {', '.join(task_names)}: they need a chain."
        )
    store = CellStore(Path(out), protocol)
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description:32}"),
        BarColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not progress,
        transient=True,
    )
    with bar:
        for task, family, kind in wanted:
            if store.has(task.name, family):
                console.print(f"{task.name} × {family}: found", highlight=False)
                continue
            line = bar.add_task(f"{task.name} × {family}", total=protocol.steps, loss="compiling")

            def report(step: int, loss: float, line=line) -> None:
                bar.update(line, completed=step, loss=f"loss {loss:9.3f}")

            cell = make_cell(task, kind, protocol, report)
            store.save(task.name, family, cell)
            bar.remove_task(line)
            elbos = cell["neg_elbo"]
            console.print(
                f"{task.name} × {family}: -ELBO {elbos.mean():.3f} ± {elbos.std(ddof=1):.3f}, "
                f"{cell['compile_seconds']:.0f} s to compile, "
                f"{cell['train_seconds']:.0f} s to train",
                highlight=False,
            )
    found = store.load_all()
    return {(t.name, f): found[t.name, f] for t, f, _ in wanted}
