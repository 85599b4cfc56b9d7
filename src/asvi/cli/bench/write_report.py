"""Takes a table's name and its cells; gives JSON, Markdown and figures in the results folder."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from asvi.cli.bench.figures import lorenz_picture, loss_curves
from asvi.cli.bench.store import write_whole
from asvi.cli.bench.tables import table1, table2, to_markdown

__all__ = ["write_report"]


def write_report(kind: str, cells: dict[tuple[str, str], dict[str, Any]], out: Path) -> str:
    """Write ``{kind}.json``, ``{kind}.md`` and, for Table 1, the figures; gives the Markdown."""
    rows = (table1 if kind == "table1" else table2)(cells)
    versions = {"python": platform.python_version()}
    versions |= {name: version(name) for name in ("jax", "numpyro", "optax")}
    text = to_markdown(rows, kind)
    if kind == "table1" and any("cpu" not in row["device"].lower() for row in rows):
        text += "\n\n\\* trained on a GPU"
    write_whole(out / f"{kind}.json", json.dumps({"versions": versions, "rows": rows}, indent=1))
    write_whole(out / f"{kind}.md", text + "\n")
    if kind == "table1":
        loss_curves(cells, out / "losses.png")
        for name in ("lorenz", "lorenz-global"):
            lorenz_picture(cells, out / f"{name}.png", name)
    return text
