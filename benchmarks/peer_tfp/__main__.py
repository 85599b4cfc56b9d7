"""Takes nothing; gives ratios of ours to the peers: run ``python -m benchmarks.peer_tfp``.

Makes its own environments (TFP's ASVI needs an old JAX) in ``out/peer_tfp``. Every measurement is a
process of its own, so that its peak memory is its own; ours and the peer's follow each other.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from asvi import tasks
from benchmarks.harness import save, table

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
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, text=True)
    try:
        text, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        peak = _resident_mib(process.pid)
        process.kill()
        process.communicate()
        return {
            "task": arguments[0],
            "library": program.removeprefix("with_").removesuffix(".py"),
            "outcome": f"no result after {limit:.0f} s, stopped",
            "peak_memory_mib": peak,
        }
    if process.returncode:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        return {
            "task": arguments[0],
            "library": program,
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
    OUT.mkdir(parents=True, exist_ok=True)
    tfp, pyro = environment("tfp", TFP), environment("pyro", PYRO)
    names = [*tasks.names(), "brownian-loop"]
    measured, ratios = [], []
    for name in names:
        task = tasks.get(name.removesuffix("-loop"))
        data = OUT / f"{name}.npz"
        np.savez(data, **{f"arg{i}": x for i, x in enumerate(task.args)})
        rows = [measure(sys.executable, "with_numpyro.py", name, "asvi", str(STEPS))]
        if tfp:
            rows.append(measure(tfp, "with_tfp.py", name, str(data), str(STEPS)))
        if pyro and name in ("brownian-loop", "eight-schools", "radon"):
            rows.append(measure(pyro, "with_pyro.py", name, str(data), "2000"))
        if name != "brownian-loop":
            for guide in ("AutoNormal", "AutoMultivariateNormal", "AutoIAFNormal"):
                rows.append(measure(sys.executable, "with_numpyro.py", name, guide, str(STEPS)))
        for row in rows:
            print(row, flush=True)
        measured += rows
        ours = rows[0]
        for row in rows[1:]:
            if row["outcome"] != "finished":
                ratios.append({"task": name, "peer": row["library"], "outcome": row["outcome"]})
                continue
            ratios.append(
                {
                    "task": name,
                    "peer": row["library"],
                    "steps per second, ours / peer": _ratio(ours, row, "steps_per_second"),
                    "compile time, peer / ours": _ratio(row, ours, "compile_seconds"),
                    "peak memory, peer / ours": _ratio(row, ours, "peak_memory_mib"),
                    "-ELBO ours": ours["neg_elbo"],
                    "-ELBO peer": row["neg_elbo"],
                }
            )
    finished = [row for row in ratios if "outcome" not in row]
    print(table(finished))
    save(
        "peer_tfp",
        {
            "ratios": finished,
            "unfinished": [r for r in ratios if "outcome" in r],
            "measured": measured,
        },
    )


def _ratio(a: dict[str, Any], b: dict[str, Any], key: str) -> float:
    return round(a[key] / b[key], 2)


if __name__ == "__main__":
    main()
