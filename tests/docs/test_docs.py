"""Every Python block of README, site, benchmarks and studies runs, and prints what its page shows.

Blocks of one page run in order and share one namespace.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import numpyro.distributions as dist
import pytest

from asvi.distributions.registry import is_registered
from tests.support.pages import blocks, difference, run_page

ROOT = Path(__file__).parents[2]
OWN_DISTRIBUTIONS = (ROOT / "docs" / "guides" / "your-own.md").read_text()
FOLDERS = ("docs/**/*.md", "benchmarks/*.md", "experiments/*/README.md")
FOUND = [ROOT / "README.md", *(page for path in FOLDERS for page in sorted(ROOT.glob(path)))]
GALLERY = ROOT / "docs" / "gallery"  # has a test of its own
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in FOUND
    if GALLERY not in page.parents and any(blocks(page.read_text()))
}
MADE = {"race.png": ("benchmarks/results/race/race.png",)}  # by docs/hooks.py
SLOW = {  # their subjects have tests of their own
    "docs/guides/check-the-model.md",
    "docs/guides/discrete-latents.md",
    "docs/guides/effort-and-family.md",
    "docs/guides/groups.md",
    "docs/guides/large-data.md",
    "docs/guides/nuts.md",
    "docs/guides/predict.md",
    "docs/guides/save-and-report.md",
    "docs/guides/speed.md",
    "docs/guides/svi-loop.md",
    "docs/guides/time-series.md",
    "experiments/neural_sde/README.md",
}


def test_the_page_counts_what_the_registry_holds():
    classes = [getattr(dist, name) for name in dist.__all__]
    kinds = [is_registered(cls) for cls in classes if isinstance(cls, type)]
    words = re.search(
        r"(\d+) of NumPyro's distribution classes(?s:.*?)the other (\d+)", OWN_DISTRIBUTIONS
    )
    assert words is not None
    # Newer releases of NumPyro may have more; the page speaks of the one that it was made with.
    assert int(words[1]) <= kinds.count("supported")
    assert int(words[2]) == kinds.count("refused")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in PAGES]
)
def test_blocks_run_and_print_what_the_page_shows(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    run_page(PAGES[name])


@pytest.mark.parametrize("page", FOUND, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_that_there_are(page):
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", text):
        places = (page.parent / link, *(ROOT / name for name in MADE.get(link, ())))
        assert any(place.exists() for place in places), link


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("mu 5.80\n", "mu     5.91"),  # within 10%
        ("gap 0.01", "gap 0.15"),  # within 0.2
        ("done in 3.5 s", "done in 31 s"),
        ("1,024 of 4,000 draws", "1024 of 4,100 draws"),
        ("name\n----------\n", "name\n---\n"),
    ],
)
def test_outputs_that_are_the_same(printed, shown):
    assert difference(printed, shown) is None


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("gap 0.204", "gap 4.98"),
        ("verdict: good", "verdict: usable"),
        ("1 2 3", "1 2"),
        ("x -5.0", "x 5.0"),
        ("", "something"),
    ],
)
def test_outputs_that_differ(printed, shown):
    assert difference(printed, shown) is not None


@pytest.mark.parametrize("page", FOUND, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_short(page):
    most = {ROOT / "README.md": 130, ROOT / "docs" / "guides" / "errors.md": 700}
    if page == ROOT / "README.md" or ROOT / "docs" in page.parents:
        assert len(page.read_text().splitlines()) <= most.get(page, 150)
