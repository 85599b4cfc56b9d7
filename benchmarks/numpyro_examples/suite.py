"""Takes nothing; gives all entries by name, and the theme of each: the file that it stands in."""

from __future__ import annotations

from benchmarks.numpyro_examples import discrete, pooling, processes, regression, series, supports
from benchmarks.numpyro_examples.entry import Example

__all__ = ["SUITE", "THEMES"]

_THEMES = {
    "pooling": pooling,
    "regression": regression,
    "processes": processes,
    "series": series,
    "discrete": discrete,
    "supports": supports,
}
THEMES: dict[str, str] = {
    entry.name: theme for theme, module in _THEMES.items() for entry in module.ENTRIES
}
SUITE: dict[str, Example] = {
    entry.name: entry for module in _THEMES.values() for entry in module.ENTRIES
}
