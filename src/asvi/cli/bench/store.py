"""Takes finished cells; gives them back after a kill: one JSON file each, written whole or not."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asvi.cli.bench.protocol import Protocol
from asvi.errors import AsviError
from asvi.fitting.archive import whole_file

__all__ = ["FORMAT", "CellStore", "write_whole"]

#: format: version of the cells' contents; a folder of another version is refused.
FORMAT = 1


class CellStore:
    """A results folder: ``bench.json`` says what it holds, ``cells/`` has one file per cell.

    Refuses, and leaves untouched, a folder of another format or protocol.
    """

    def __init__(self, folder: Path, protocol: Protocol):
        self.folder, self.protocol = Path(folder), protocol
        self.cells = self.folder / "cells"
        header = {"format": FORMAT, "protocol": json.loads(json.dumps(asdict(protocol)))}
        about = self.folder / "bench.json"
        if about.exists():
            try:
                found = json.loads(about.read_text())
            except ValueError:
                found = {}
            if found.get("format") != FORMAT:
                raise AsviError(
                    f"{self.folder} holds results of format {found.get('format')}, and this "
                    f"version writes format {FORMAT}. The folder was left untouched.\n"
                    "Choose another with --out, or move it away."
                )
            if found["protocol"] != header["protocol"]:
                differs = [
                    f"{k}: {found['protocol'].get(k)} there, {v} now"
                    for k, v in header["protocol"].items()
                    if found["protocol"].get(k) != v
                ]
                raise AsviError(
                    f"{self.folder} holds results of other settings ({'; '.join(differs)}). The "
                    "folder was left untouched.\nUse the same settings, or another --out."
                )
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise AsviError(
                f"{self.folder} is not empty and holds no benchmark (no bench.json). It was left "
                "untouched.\nChoose an empty or new folder with --out."
            )
        else:
            self.cells.mkdir(parents=True)
            write_whole(about, json.dumps(header, indent=1) + "\n")
        self.cells.mkdir(exist_ok=True)

    def path(self, task: str, family: str) -> Path:
        return self.cells / f"{task}.{family}.json"

    def has(self, task: str, family: str) -> bool:
        return self.path(task, family).exists()

    def save(self, task: str, family: str, cell: dict[str, Any]) -> None:
        cell = {"task": task, "family": family, **jax.tree.map(_plain, cell)}
        write_whole(self.path(task, family), json.dumps(cell) + "\n")

    def load(self, task: str, family: str) -> dict[str, Any]:
        return json.loads(self.path(task, family).read_text())

    def load_all(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Every finished cell, by task and family."""
        cells = (json.loads(path.read_text()) for path in sorted(self.cells.glob("*.json")))
        return {(cell["task"], cell["family"]): cell for cell in cells}


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a kill leaves the old one or the new one, never a part."""
    with whole_file(path) as partial:
        partial.write_text(text)


def _plain(x: Any) -> Any:
    if isinstance(x, np.ndarray | np.generic | jax.Array):
        return [*np.asarray(x, float).round(6).tolist()] if np.ndim(x) else float(x)
    return round(x, 3) if isinstance(x, float) and abs(x) > 1 else x
