"""Takes the name of a table; gives it in Markdown, as the stored results have it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, table

ROOT = Path(__file__).parent.parent
MARKED = re.compile(r"(<!-- begin: (?P<name>[^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


FENCED = re.compile(r"^ *(```|~~~).*?^ *\1[^\n]*$", re.DOTALL | re.MULTILINE)


def source_of(name: str) -> tuple[Path, str]:
    """The stored file that a marker's name means, and the title of a table in it.

    A path that begins with ``experiments/`` is a Markdown file, or a JSON list of rows, there.
    """
    if name.startswith("experiments/"):
        return ROOT / name, ""
    if name.endswith(".md"):
        return RESULTS / name, ""
    file, _, title = name.partition("/")
    return RESULTS / f"{file}.json", title


def shown(name: str) -> str:
    """What stands between the markers of ``name``: the table, and where it comes from."""
    path, title = source_of(name)
    place = path.relative_to(ROOT)
    if path.suffix == ".md":
        return f"\n{path.read_text().strip()}\n\n<sub>{place}</sub>\n\n"
    stored = json.loads(path.read_text())
    if isinstance(stored, list):
        return f"\n{table(stored)}\n\n<sub>{place}</sub>\n\n"
    rows: Any = stored["rows"][title] if title else stored["rows"]
    versions = ", ".join(f"{k} {v}" for k, v in stored["versions"].items())
    return f"\n{table(rows)}\n\n<sub>{place}: {versions}</sub>\n\n"


def filled(text: str) -> str:
    """A page with every marked table made anew; markers in blocks of code are examples."""
    made, at = [], 0
    for match in MARKED.finditer(without_code(text)):
        made += [text[at : match.start(3)], shown(match["name"])]
        at = match.end(3)
    return "".join([*made, text[at:]])


def without_code(text: str) -> str:
    """A page with its blocks of code blanked out, place by place."""
    return FENCED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
