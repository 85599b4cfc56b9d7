"""Takes a head and rows; gives a table that fails where a row's columns differ from its head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows under a head."""

    head: tuple[str, ...]
    rows: list[dict[str, Any]]

    def __post_init__(self) -> None:
        for row in self.rows:
            if tuple(row) != self.head:
                raise ValueError(f"a row has the columns {tuple(row)}, its head {self.head}")

    def markdown(self) -> str:
        """The table in Markdown; numbers are on the right."""
        numbers = {
            name: any(isinstance(row[name], int | float) for row in self.rows) for name in self.head
        }
        lines = [list(self.head), ["---:" if numbers[name] else "---" for name in self.head]]
        lines += [[cell(row[name]) for name in self.head] for row in self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def cell(value: Any) -> str:
    """A value in a cell: three digits of a number, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 and value < 1e6 else f"{value:.3g}"
    return str(value).replace("|", "\\|")
