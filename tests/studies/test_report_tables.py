"""Every table of the pages is the one that its stored results give, and the check would see it."""

from __future__ import annotations

import json

import pytest

import asvi
from benchmarks import checks, harness, report, stored

PAGE = """# A study

<!-- begin: gaps -->
{table}
<!-- end -->
"""
ROWS = [{"task": "radon", "gap": 4.98}, {"task": "lorenz", "gap": 0.2}]


def test_all_tables_are_those_of_the_stored_results():
    assert not report.check()


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page with a table of ``ROWS``, whose stored file was written by this module."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(stored, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "ROOT", tmp_path)
    monkeypatch.setattr(stored, "ROOT", tmp_path)
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    (tmp_path / "study.py").write_text("def save(harness, rows):\n    harness.save('gaps', rows)\n")
    scope = {"__file__": str(tmp_path / "study.py")}
    exec((tmp_path / "study.py").read_text(), scope)
    scope["save"](harness, ROWS)
    return stored.filled(PAGE.format(table=""))


def test_a_page_as_it_is_stored_has_no_fault(page):
    assert "4.98" in page
    assert not checks.faults(page)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("4.98", "0.204", "differs from the stored results"),
        ("| radon | 4.98 |", "| radon | 4.98 | 7 |", "3 cells, its head 2"),
        ("begin: gaps", "begin: gap", "no table 'gap'"),
        ("<!-- end -->", "", "never closed"),
        ("<!-- begin: gaps -->", "", "out of place"),
        ("begin: gaps", "begin: gaps/all", "no table 'gaps/all'"),
    ],
)
def test_a_fault_is_seen(page, old, new, said):
    assert old in page
    assert any(said in fault for fault in checks.faults(page.replace(old, new, 1)))


def test_numbers_that_no_command_makes_are_seen():
    table = harness.table(ROWS)
    assert "no command makes" in checks.faults(table)[0]
    assert not checks.faults(f"```text\n{table}\n```\n")
    assert not checks.faults("| verdict | do this |\n|---|---|\n| good | use them |\n")


def test_a_benchmark_that_has_changed_is_seen(page, tmp_path):
    study = tmp_path / "study.py"
    text = study.read_text()
    study.write_text('"""It has a doc-string now."""\n\n# and a comment\n' + text)
    assert not checks.faults(page)
    study.write_text(text.replace("rows)\n", "rows[:1])\n"))
    assert any("has changed since it was run" in fault for fault in checks.faults(page))


def test_another_release_of_asvi_is_seen(page, monkeypatch):
    monkeypatch.setattr(asvi, "__version__", "99.0.0")
    assert any("made with asvi" in fault for fault in checks.faults(page))


def test_rows_that_differ_in_columns_are_no_table():
    with pytest.raises(ValueError, match="its table"):
        harness.table([*ROWS, {"task": "robust", "seconds": 1.0}])


def test_the_races_tables_are_those_of_its_fits(tmp_path):
    from benchmarks.race import summary

    folder = report.RESULTS / "race"
    rows = json.loads((folder / "table.json").read_text())["fits"]
    summary.write(rows, tmp_path)
    for name in ("headline.md", "verdicts.md", "table.md", "problems.md"):
        assert (tmp_path / name).read_text() == (folder / name).read_text(), name
