"""Takes the committed results; puts them as tables between the markers in README and docs.

``python -m benchmarks.report`` after a benchmark: a page says ``<!-- begin: foundation/Cost of a
step -->`` and ``<!-- end -->``, and what stands between is made from ``results/foundation.json``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.harness import RESULTS, table

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "docs" / "gallery" / "index.md",
]
MARKED = re.compile(r"(<!-- begin: (?P<name>[^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def rows_of(name: str) -> str:
    """The table ``file`` or ``file/title``, or a whole Markdown file of the results folder.

    A path that begins with ``experiments/`` is a Markdown file, or a JSON list of rows, there.
    """
    if name.startswith("experiments/") or name.endswith(".md"):
        path = (ROOT if name.startswith("experiments/") else RESULTS) / name
        text = path.read_text()
        shown = text.strip() if path.suffix == ".md" else table(json.loads(text))
        return f"\n{shown}\n\n<sub>{path.relative_to(ROOT)}</sub>\n\n"
    file, _, title = name.partition("/")
    stored = json.loads((RESULTS / f"{file}.json").read_text())
    rows = stored["rows"][title] if title else stored["rows"]
    versions = ", ".join(f"{k} {v}" for k, v in stored["versions"].items())
    return f"\n{table(rows)}\n\n<sub>benchmarks/results/{file}.json: {versions}</sub>\n\n"


def filled(text: str) -> str:
    """A page with every marked table made anew."""
    return MARKED.sub(lambda m: m[1] + rows_of(m["name"]) + m[4], text)


def main() -> None:
    for page in PAGES:
        before = page.read_text()
        after = filled(before)
        if after != before:
            page.write_text(after)
            print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
