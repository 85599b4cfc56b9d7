"""Import paths and names of 0.1: they lead to what they led to, and say where it is today."""

from __future__ import annotations

import subprocess
import sys

import pytest

import asvi
from asvi.results.old_names import MOVED
from tests.support.sources import ROOT

# In processes of their own: what is imported once is not looked for again.
BEFORE = """
import contextlib, importlib, sys, warnings
import asvi

@contextlib.contextmanager
def told(where):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FutureWarning)
        yield
    texts = [str(w.message) for w in caught if w.category is FutureWarning]
    assert texts == [] if where is None else len(texts) == 1 and where in texts[0], texts
    assert all("old_names" not in w.filename for w in caught)
"""

PLOTS = """
assert "matplotlib" not in sys.modules
with told(None):
    assert asvi.plot.pairs and "matplotlib" in sys.modules
    import asvi.plot
    from asvi import plot
    from asvi.plot import marginals
from asvi.results import plot as today
assert asvi.plot is plot is today and marginals is today.marginals
"""

MODULES = """
with told("asvi.program.control_flow.interpretation"):
    from asvi.interpretation import Frame, Interpretation
assert Interpretation is asvi.Interpretation and Frame.__name__ == "Body"
with told("asvi.fitting.correction.pareto_smoothing"):
    assert asvi.psis.smooth is asvi.psis.pareto_smooth

from asvi.results.old_names import MOVED
for name, moved in MOVED.items():
    again = moved.is_public or name in ("interpretation", "psis")
    with told(None if again else moved.to):
        old = importlib.import_module(f"asvi.{name}")
    today = importlib.import_module(moved.to)
    assert all(getattr(old, n) is getattr(today, n) for n in today.__all__)
    assert all(getattr(old, a) is getattr(today, b) for a, b in moved.renamed.items())
    assert getattr(asvi, name) is old
assert asvi.posterior.Posterior is asvi.Posterior and callable(asvi.fit)

for name in ("asvi.nothing", "asvi.families.posterior", "posterior"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(name)
"""


@pytest.mark.parametrize("checks", [PLOTS, MODULES], ids=["plots", "modules"])
def test_paths_of_0_1_lead_where_they_led(checks):
    command = [sys.executable, "-c", BEFORE + checks]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("old", "today"), [("WholeFamily", "JointFamily"), ("ContextFamily", "Family")]
)
def test_families_of_0_1_have_names_of_today(old, today):
    with pytest.warns(FutureWarning, match=f"families.{old} is now {today};"):
        found = getattr(asvi.families, old)
    assert found is getattr(asvi.families, today)
    assert not hasattr(asvi, "nothing")
    assert not hasattr(asvi.families, "nothing")


def test_public_paths_are_no_old_ones():
    assert [name for name, moved in MOVED.items() if moved.is_public] == ["plot"]
