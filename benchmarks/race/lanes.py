"""Takes fits in an order; gives their stored records, each from a process with a core of its own.

A *lane* is a core. It takes one problem and runs all methods on it, one after the other: the
methods' seconds on a problem are taken side by side. Records are stored as soon as they are there,
so that a race that was stopped goes on where it was.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.race.record import Fit, is_done, read, store

GRACE = 60.0  # seconds beyond the limit: imports, data, comparison
POLL = 0.1

ONE_CORE = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "TQDM_DISABLE": "1",
}


@dataclass
class Running:
    """A fit in its process, with a folder for what the process writes besides."""

    fit: Fit
    process: subprocess.Popen
    folder: tempfile.TemporaryDirectory
    begun: float
    limit: float

    def ended(self) -> bool:
        over = time.monotonic() > self.begun + self.limit + GRACE
        return self.process.poll() is not None or over

    def end(self) -> None:
        """End what is left of the process, and what it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def complaint(self) -> str:
        """The last line that the process wrote about its end."""
        lines = (Path(self.folder.name) / "stderr").read_text(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return said[-1] if said else f"the process ended with {self.process.returncode}"


def start(
    fit: Fit, results: Path, limit: float, core: int | None, module: str = "benchmarks.race.one"
) -> Running:
    """Begin a fit in a fresh process, which runs ``module``."""
    path = fit.path(results)
    path.unlink(missing_ok=True)  # what is found there later is from this process
    folder = tempfile.TemporaryDirectory()
    command = [sys.executable, "-m", module, fit.problem, fit.method]
    command += ["--key", str(fit.key), "--out", str(path), "--limit", str(limit)]
    command += [] if core is None else ["--core", str(core)]
    with (Path(folder.name) / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            command,
            env=environment(folder.name),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    return Running(fit, process, folder, time.monotonic(), limit)


def environment(folder: str) -> dict[str, str]:
    """Of a fit: one thread, and nothing that another process has compiled."""
    mine = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION_CACHE")}
    return mine | ONE_CORE | {"PYTENSOR_FLAGS": f"base_compiledir={folder}"}


def finish(running: Running, results: Path) -> dict[str, Any]:
    """The fit's record: its own, or one that says why there is none."""
    path = running.fit.path(results)
    late = running.process.poll() is None
    running.end()
    if not path.exists():
        code = running.process.returncode
        if late:
            found = {"status": "too long", "message": f"more than {running.limit:.0f} s"}
        elif code < 0:
            found = {"status": "failed", "message": f"ended by {signal.Signals(-code).name}"}
        else:
            found = {"status": "failed", "message": running.complaint()}
        store(path, running.fit.record(limit_seconds=running.limit, **found))
    running.folder.cleanup()
    return read(path)


def missing(fits: Iterable[Fit], results: Path, limit: float) -> list[Fit]:
    """The fits of which there is no stored record."""
    return [fit for fit in fits if not is_done(fit.path(results), limit)]


def run(
    fits: list[Fit],
    results: Path,
    limit: float,
    lanes: int,
    tell: Callable[[str, Fit, dict[str, Any] | None], None],
    begin: Callable[[Fit, Path, float, int | None], Running] = start,
) -> None:
    """Run the fits; ``tell`` hears ``"begins"`` and ``"ends"`` of each, the end with its record."""
    problems = deque(deque(of) for _, of in groupby(fits, key=lambda fit: fit.problem))
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    free: deque[int | None] = deque([*cores[-lanes:][::-1], *[None] * max(0, lanes - len(cores))])
    running: dict[int, tuple[Running, int | None, deque[Fit]]] = {}
    lane = 0

    def go_on(core: int | None, waiting: deque[Fit]) -> None:
        nonlocal lane
        fit = waiting.popleft()
        tell("begins", fit, None)
        running[lane] = (begin(fit, results, limit, core), core, waiting)
        lane += 1

    try:
        while problems or running:
            while problems and free:
                go_on(free.popleft(), problems.popleft())
            for number, (one, core, waiting) in list(running.items()):
                if not one.ended():
                    continue
                record = finish(one, results)
                del running[number]
                tell("ends", one.fit, record)
                if waiting:
                    go_on(core, waiting)
                else:
                    free.append(core)
            time.sleep(POLL)
    finally:  # stopped by hand: leave no process behind
        for one, _, _ in running.values():
            one.end()
            one.folder.cleanup()
