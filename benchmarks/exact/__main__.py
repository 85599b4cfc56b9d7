"""Takes nothing; gives `src/asvi/tasks/data/exact.json`: run ``python -m benchmarks.exact``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

import asvi
from benchmarks.exact import particles, quadrature

TARGET = Path(asvi.__file__).parent / "tasks" / "data" / "exact.json"


def compute() -> dict[str, dict[str, Any]]:
    """All exact answers, by task; about ten minutes on two cores."""
    jax.config.update("jax_enable_x64", True)
    args = {name: asvi.tasks.get(name).args for name in asvi.tasks.names()}
    return {
        "brownian": quadrature.brownian(*args["brownian"]),
        "brownian-global": quadrature.brownian_global(*args["brownian-global"]),
        "lorenz": particles.lorenz(*args["lorenz"], unknown_scales=False, particles=2_000_000),
        "lorenz-global": particles.lorenz(
            *args["lorenz-global"], unknown_scales=True, particles=2_000_000
        ),
        "eight-schools": quadrature.eight_schools(*args["eight-schools"]),
        "radon": quadrature.radon(*args["radon"]),
    }


def main() -> None:
    answers = compute()
    kept = ("log_evidence", "log_evidence_error", "method", "mean", "sd")
    stored = {}
    for name, answer in answers.items():
        stored[name] = {k: answer[k] for k in kept if k in answer}
        edge = answer.get("mass_at_edge")
        print(
            f"{name:16} log evidence {answer['log_evidence']:.5f} "
            f"± {answer['log_evidence_error']:.1e} ({answer['method']})"
            + (f", posterior mass at the grid's edge {edge:.0e}" if edge is not None else "")
        )
    to_lists = lambda x: np.round(x, 8).tolist() if isinstance(x, np.ndarray | np.generic) else x  # noqa: E731
    TARGET.write_text(json.dumps(jax.tree.map(to_lists, stored), indent=1) + "\n")


if __name__ == "__main__":
    main()
