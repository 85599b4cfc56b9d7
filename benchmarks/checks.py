"""Takes the text of a page; gives what is wrong with its tables.

1. A row has another number of cells than its table's head.
2. A marker names a stored file or a table that there is not, or it is never closed.
3. A table differs from what its stored file gives.
4. A stored file was made by another benchmark than the one there is now, or by another version of
   asvi: files written by :func:`benchmarks.harness.save` say which.
5. A table of numbers stands outside the markers, so that no command makes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import asvi
from benchmarks.harness import fingerprint, release
from benchmarks.stored import MARKED, ROOT, shown, source_of, without_code

MARKER = re.compile(r"<!-- (begin: [^>]+?|end) -->")
TABLE = re.compile(r"^\|[^\n]*\n\|[ :|-]+\|\n(?:\|[^\n]*(?:\n|\Z))*", re.MULTILINE)
NUMERIC = re.compile(r"[-+−]?[\d.,]+(e[-+]?\d+)?%?( ?±.*)?")
MANY = 0.5  # share of numbers, first column apart, from which on a table is one of measurements


def faults(text: str) -> list[str]:
    """What is wrong with the tables of a page, as ``line: what``."""
    bare = without_code(text)
    found = [*_uneven(bare), *_markers(bare), *_outdated(bare), *_unmarked(bare)]
    return [f"{line}: {what}" for line, what in sorted(found)]


def _uneven(text: str) -> Iterator[tuple[int, str]]:
    for match in TABLE.finditer(text):
        rows = match[0].splitlines()
        head = len(_cells(rows[0]))
        for k, row in enumerate(rows):
            if len(_cells(row)) != head:
                line = _line(text, match.start()) + k
                yield line, f"a row has {len(_cells(row))} cells, its head {head}: {row[:60]}"


def _markers(text: str) -> Iterator[tuple[int, str]]:
    is_open = None
    for match in MARKER.finditer(text):
        begins = match[1] != "end"
        if begins == (is_open is not None):
            yield _line(text, match.start()), f"the marker {match[0]} is out of place"
        is_open = match if begins else None
    if is_open is not None:
        yield _line(text, is_open.start()), f"the marker {is_open[0]} is never closed"


def _outdated(text: str) -> Iterator[tuple[int, str]]:
    for match in MARKED.finditer(text):
        line, name = _line(text, match.start()), match["name"]
        try:
            now = shown(name)
        except (OSError, KeyError, TypeError, ValueError) as error:
            yield line, f"no table {name!r}: {type(error).__name__}: {error}"
            continue
        if match[3] != now:
            yield line, f"{name}: the page differs from the stored results (benchmarks.report)"
        changed = _changed_since(name)
        if changed:
            yield line, f"{name}: {changed}"


def _changed_since(name: str) -> str:
    """What made a stored file and is another now; nothing where the file does not say."""
    path, _ = source_of(name)
    stored = json.loads(path.read_text()) if path.suffix == ".json" else None
    if not isinstance(stored, dict) or "made_by" not in stored:
        return ""
    module = ROOT / stored["made_by"]["module"]
    made_with = stored["versions"]["asvi"]
    if release(made_with) != release(asvi.__version__):
        return f"made with asvi {made_with}, and this is {asvi.__version__}"
    if not module.exists() or fingerprint(module) != stored["made_by"]["fingerprint"]:
        return f"{stored['made_by']['module']} has changed since it was run"
    return ""


def _unmarked(text: str) -> Iterator[tuple[int, str]]:
    bare = MARKED.sub(lambda m: _blank(m[0]), text)
    for match in TABLE.finditer(bare):
        rows = [_cells(row)[1:] for row in match[0].splitlines()[2:]]
        cells = [cell.strip(" *`") for row in rows for cell in row]
        numbers = sum(bool(NUMERIC.fullmatch(cell)) for cell in cells)
        if cells and numbers > MANY * len(cells):
            line = _line(bare, match.start())
            yield line, "numbers that no command makes: put them between markers"


def _cells(row: str) -> list[str]:
    return re.split(r"(?<!\\)\|", row.strip().strip("|"))


def _blank(text: str) -> str:
    return "\n" * text.count("\n")


def _line(text: str, at: int) -> int:
    return text[:at].count("\n") + 1
