"""Takes nothing; gives ratios of ours to the peers: run ``python -m benchmarks.peer_tfp``.

Makes its own environments (TFP's ASVI needs an old JAX) in ``out/peer_tfp``. Every measurement is a
process of its own, so that its peak memory is its own; ours and the peer's follow each other.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from asvi import tasks
from benchmarks.harness import RESULTS, save, table

HERE = Path(__file__).parent
OUT = HERE.parent.parent / "out" / "peer_tfp"
STEPS = 20_000
LIMIT = 600.0  # seconds: TFP's attempt at a loop is bounded

TFP = ["tensorflow-probability==0.25.0", "jax==0.4.35", "jaxlib==0.4.35", "numpy<2.1", "optax"]
TFP += ["tf-keras", "typing_extensions"]
PYRO = ["torch==2.13.0", "pyro-ppl"]


def environment(name: str, packages: list[str]) -> str | None:
    """The Python of a virtual environment with these packages; None where they do not install."""
    folder = OUT / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        done = subprocess.run([python, "-m", "pip", "install", "-q", *packages])
        if done.returncode:
            print(f"{name} does not install here; left out")
            return None
        (folder / "ready").touch()
    return str(python)


def measure(python: str, program: str, *arguments: str, limit: float = LIMIT) -> dict[str, Any]:
    """One process; its JSON line, or what became of it."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [python, str(HERE / program), *arguments]
    library = program.removeprefix("with_").removesuffix(".py")
    if library == "numpyro":
        library = arguments[1]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, text=True)
    try:
        text, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        peak = _resident_mib(process.pid)
        process.kill()
        process.communicate()
        return {
            "task": arguments[0],
            "library": library,
            "outcome": f"no result after {limit:.0f} s, stopped",
            "peak_memory_mib": peak,
        }
    if process.returncode:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        return {
            "task": arguments[0],
            "library": library,
            "outcome": f"failed with exit code {process.returncode}",
            "peak_memory_mib": round(usage),
        }
    return {**json.loads(text.strip().splitlines()[-1]), "outcome": "finished"}


def _resident_mib(pid: int) -> int | None:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return None
    peak = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return int(peak[0].split()[1]) // 1024 if peak else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", default=",".join([*tasks.names(), "brownian-loop"]))
    parser.add_argument(
        "--peers", default="tfp,pyro,AutoNormal,AutoMultivariateNormal,AutoIAFNormal"
    )
    arguments = parser.parse_args()
    peers = arguments.peers.split(",")
    OUT.mkdir(parents=True, exist_ok=True)
    tfp = environment("tfp", TFP) if "tfp" in peers else None
    pyro = environment("pyro", PYRO) if "pyro" in peers else None
    measured = _earlier()
    for name in arguments.tasks.split(","):
        task = tasks.get(name.removesuffix("-loop"))
        data = OUT / f"{name}.npz"
        np.savez(data, **{f"arg{i}": x for i, x in enumerate(task.args)})
        rows = [measure(sys.executable, "with_numpyro.py", name, "asvi", str(STEPS))]
        if tfp:
            rows.append(measure(tfp, "with_tfp.py", name, str(data), str(STEPS)))
        if pyro and name in ("brownian-loop", "eight-schools", "radon"):
            rows.append(measure(pyro, "with_pyro.py", name, str(data), "2000"))
        for guide in peers:
            if guide.startswith("Auto") and name != "brownian-loop":
                rows.append(measure(sys.executable, "with_numpyro.py", name, guide, str(STEPS)))
        for row in rows:
            print(row, flush=True)
            measured[row["task"], row["library"]] = row
    ratios, unfinished = [], []
    for (name, library), row in measured.items():
        ours = measured[name, "asvi"]
        if row is ours:
            continue
        if row["outcome"] != "finished":
            unfinished.append({"task": name, "peer": library, "outcome": row["outcome"]})
            continue
        ratios.append(
            {
                "task": name,
                "peer": library,
                "steps per second, ours / peer": _ratio(ours, row, "steps_per_second"),
                "compile time, peer / ours": _ratio(row, ours, "compile_seconds"),
                "peak memory, peer / ours": _ratio(row, ours, "peak_memory_mib"),
                "-ELBO ours": ours["neg_elbo"],
                "-ELBO peer": row["neg_elbo"],
            }
        )
    print(table(ratios))
    found = {"ratios": ratios, "unfinished": unfinished, "measured": list(measured.values())}
    save("peer_tfp", found)


def _earlier() -> dict[tuple[str, str], dict[str, Any]]:
    """What an earlier run measured; this run's tasks and peers take its place."""
    path = RESULTS / "peer_tfp.json"
    if not path.exists():
        return {}
    rows = json.loads(path.read_text())["rows"]["measured"]
    return {(row["task"], row["library"]): row for row in rows}


def _ratio(a: dict[str, Any], b: dict[str, Any], key: str) -> float:
    return round(a[key] / b[key], 2)


if __name__ == "__main__":
    main()
