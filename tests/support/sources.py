"""The source files of the package, read and parsed once."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

__all__ = ["PACKAGE", "ROOT", "SOURCES", "Source"]

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "asvi"


class Source(NamedTuple):
    """A file: its path below the package, its text, its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.path.partition("/")[0]

    def said_at(self, line: int) -> str:
        """A line of the file and the comment above it."""
        lines = self.text.splitlines()
        return "\n".join(lines[max(line - 2, 0) : line])


def _read(path: Path) -> Source:
    text = path.read_text()
    return Source(path.relative_to(PACKAGE).as_posix(), text, ast.parse(text))


SOURCES = [_read(path) for path in sorted(PACKAGE.rglob("*.py"))]
