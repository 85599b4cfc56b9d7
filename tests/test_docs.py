"""Every Python block of README and docs runs, in order, one namespace per file."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    names: dict = {"__name__": page.stem}
    for match in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        line = page.read_text()[: match.start()].count("\n") + 1
        code = compile("\n" * line + match.group(1), str(page), "exec")
        exec(code, names)
