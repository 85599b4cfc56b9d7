"""The tree: import contracts, entries at the top, lengths of files and functions, dependencies."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest

from tests.support.sources import PACKAGE, ROOT, SOURCES, Source

MAX_ENTRIES_AT_THE_TOP = 14
MAX_LINES_OF_A_FILE, MAX_MEDIAN = 400, 200
MAX_LINES_OF_A_FUNCTION = 60
# `asvi.fit` itself: its doc-string is the manual of the library.
LONG_FUNCTIONS = {("results/fit.py", "fit")}
# Not needed to run the library: they come with a user's own networks, who has them installed.
OF_THE_USER = {"flax", "equinox"}

# One folder for each thing that people add: a new one of its kind is written there.
FOLDERS = {
    "distribution": "distributions",
    "family": "families",
    "gradient estimator": "objective",
    "diagnostic": "fitting/diagnostics",
    "rung": "fitting/rungs",
    "output format": "results",
    "device": "fitting",  # in a folder `placement`, when there is something to place
    "front end": "cli",
}


def test_contracts_of_imports_hold():
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_few_entries_stand_at_the_top():
    entries = [p.name for p in PACKAGE.iterdir() if not p.name.startswith((".", "__pycache__"))]
    assert len(entries) <= MAX_ENTRIES_AT_THE_TOP, sorted(entries)


def test_every_package_has_its_contract():
    """A new package at the top is placed among the levels, so that its imports are checked."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    levels = next(c["layers"] for c in contracts if c.get("containers") == ["asvi"])
    named = {name.strip() for level in levels for name in re.split(r"[|:]", level)}
    # `plain` modules of the top: those that the contract does not know are entry points.
    there = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()}
    assert there <= named


@pytest.mark.parametrize("change", FOLDERS)
def test_each_kind_of_change_has_its_folder(change):
    folder = PACKAGE / FOLDERS[change]
    assert (folder / "__init__.py").exists(), f"a new {change} belongs into {folder}"


def test_no_file_is_long():
    lengths = {s.path: len(s.text.splitlines()) for s in SOURCES}
    assert {p: n for p, n in lengths.items() if n > MAX_LINES_OF_A_FILE} == {}
    assert statistics.median(lengths.values()) <= MAX_MEDIAN


def test_no_function_is_long():
    long = {}
    for source in SOURCES:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                if lines > MAX_LINES_OF_A_FUNCTION:
                    long[source.path, node.name] = lines
    assert {where: n for where, n in long.items() if where not in LONG_FUNCTIONS} == {}


def imported_at_run_time(source: Source) -> set[str]:
    """The top-level packages that a file imports anywhere but under ``TYPE_CHECKING``."""
    found: set[str] = set()

    def visit(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(source.tree)
    return found


def test_every_import_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {normal(re.match(r"[\w.-]+", line)[0]) for line in project["dependencies"]}
    imported = set().union(*map(imported_at_run_time, SOURCES))
    foreign = imported - set(sys.stdlib_module_names) - {"asvi"} - OF_THE_USER
    distributions = packages_distributions()
    missing = {
        name
        for name in foreign
        if not declared & {normal(d) for d in distributions.get(name, [name])}
    }
    assert not missing


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
