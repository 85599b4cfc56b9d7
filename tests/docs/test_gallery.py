"""The gallery's pages run, print what they say, and have a picture and data with a licence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import matplotlib.pyplot as plt
import pytest

from benchmarks.gallery import FOLDER, PAGES, outputs, printed

ROOT = FOLDER.parent.parent
QUICK = ("eight_schools", "coal_mines", "radon")
TEXTS = {name: (FOLDER / f"{name}.md").read_text() for name in PAGES}
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
WORK = re.compile(r"\((?:draws|guide) [^)]*? s\)", re.S)
"""Seconds, and what was done: it may be more or less on another machine, with the same answer."""


def test_every_page_is_known():
    pages = {path.stem for path in FOLDER.glob("*.md")} - {"index"}
    assert pages == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_short_and_has_what_it_shows(name):
    text = TEXTS[name]
    assert f"({name}.md)" in (FOLDER / "index.md").read_text()
    assert len(text.splitlines()) <= 150
    assert "LEARN" not in text
    assert f"({name}.png)" in text
    assert (FOLDER / f"{name}.png").stat().st_size <= 80_000
    assert text.count("asvi.fit(") == 1
    assert not re.search(r"\b(draws|steps|progress|key)=", "".join(calls(text)))


def calls(text: str) -> list[str]:
    return [line for line in text.splitlines() if "asvi." in line or "result." in line]


def test_data_have_a_licence():
    licences = (FOLDER / "data" / "README.md").read_text()
    for path in (FOLDER / "data").glob("*.csv"):
        assert path.stat().st_size < 150_000
        row = re.search(rf"^\| `{path.name}` \|.*$", licences, re.MULTILINE)
        assert row is not None, path.name
        assert all(cell.strip() for cell in row[0].strip("|").split("|"))
    for name, text in TEXTS.items():
        for file in re.findall(r'"data/([\w.]+)"', text):
            assert (FOLDER / "data" / file).exists(), (name, file)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow])
        for n in PAGES
        if n != "digits"
    ],
)
def test_a_page_prints_what_it_says(name):
    found = printed(name, {"__name__": name})
    plt.close("all")
    said = outputs(name)
    assert len(found) == len(said)
    for ours, theirs in zip(found, said, strict=True):
        assert_same(ours, theirs)


@pytest.mark.slow
def test_the_page_that_trains_a_network_prints_what_it_says():
    """Its 24,000 steps want the compiler's passes, and its map may come out turned."""
    run = "import json, benchmarks.gallery as g; print(json.dumps(g.printed('digits', {})))"
    fresh = {k: x for k, x in os.environ.items() if k != "XLA_FLAGS"}
    fresh["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", run], env=fresh, cwd=ROOT, capture_output=True, text=True, check=True
    )
    turned = re.compile(r"^( z\[|  - ).*\n", re.MULTILINE)
    for ours, theirs in zip(json.loads(done.stdout), outputs("digits"), strict=True):
        assert_same(turned.sub("", ours), turned.sub("", theirs))


def assert_same(found: str, said: str) -> None:
    """The same words, and numbers within 10% or 0.2."""
    found, said = WORK.sub("", found), WORK.sub("", said)
    assert NUMBER.sub("#", found).split() == NUMBER.sub("#", said).split()
    for one, other in zip(NUMBER.findall(found), NUMBER.findall(said), strict=True):
        a, b = (float(x.replace(",", "")) for x in (one, other))
        assert abs(a - b) <= max(0.2, 0.1 * abs(b)), (one, other)
