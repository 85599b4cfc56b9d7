"""Every Python block of README and docs runs, in order, one namespace per file."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import numpyro.distributions as dist
import pytest

from asvi.distributions.registry import is_registered

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SLOW = ("amortised.md", "discrete.md", "neural-sde.md")  # their subjects have tests of their own


def test_the_readme_counts_what_the_registry_holds():
    classes = [getattr(dist, name) for name in dist.__all__]
    kinds = [is_registered(cls) for cls in classes if isinstance(cls, type)]
    words = re.search(r"(\d+) of NumPyro's distribution classes(?s:.*?)the other (\d+)", README)
    assert words is not None
    # Newer releases of NumPyro may have more; the page speaks of the one that it was made with.
    assert int(words[1]) <= kinds.count("supported")
    assert int(words[2]) == kinds.count("refused")


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, id=p.name, marks=[pytest.mark.slow] if p.name in SLOW else []) for p in PAGES],
)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    names: dict = {"__name__": page.stem}
    for match in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        line = page.read_text()[: match.start()].count("\n") + 1
        code = compile("\n" * line + match.group(1), str(page), "exec")
        exec(code, names)
