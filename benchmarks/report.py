"""Takes the committed results; puts them as tables between the markers in README, pages and site.

``python -m benchmarks.report`` after a benchmark: a page says ``<!-- begin: foundation/Cost of a
step -->`` and ``<!-- end -->``, and what stands between is made from ``results/foundation.json``.
``python -m benchmarks.report --check`` writes nothing, and fails where :mod:`benchmarks.checks`
finds something.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.checks import faults
from benchmarks.stored import filled

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def pages() -> list[Path]:
    """README, the site, a page for each study of benchmarks, and the studies of experiments."""
    found = [ROOT / "README.md"]
    for folder in ("docs/**/*.md", "benchmarks/**/*.md", "experiments/*/README.md"):
        found += sorted(ROOT.glob(folder))
    return [page for page in found if RESULTS not in page.parents]


def check() -> list[str]:
    """What is wrong with the tables of all pages, a line each."""
    return [
        f"{page.relative_to(ROOT)}:{fault}"
        for page in pages()
        for fault in faults(page.read_text())
    ]


def fill() -> None:
    """Put what is stored into all pages."""
    for page in pages():
        before = page.read_text()
        after = filled(before)
        if after != before:
            page.write_text(after)
            print(f"wrote {page.relative_to(ROOT)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report")
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a fault")
    if not parser.parse_args().check:
        fill()
    found = check()
    print("\n".join(found) if found else "all tables are those of the stored results")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
