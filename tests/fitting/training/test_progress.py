"""The line that says how a training goes."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from asvi.fitting.request import is_shown
from asvi.fitting.training.asked import settings_for
from asvi.fitting.training.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_it_is_shown_where_somebody_can_look(monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not is_shown(None)
    assert is_shown(True)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert is_shown(None)
    assert not is_shown(False)
    monkeypatch.setattr(sys, "stderr", None)
    assert not is_shown(None)
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    assert is_shown(None)


@pytest.mark.parametrize("shown", [True, False])
def test_it_says_phase_and_elbo(shown, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    state = SimpleNamespace(phase="descend", losses=[36.25], noise=float("nan"), work=2)
    with ProgressLine(settings_for(None), shown) as line:
        line.show(state)
    told = sys.stderr.getvalue()
    assert ("descend" in told and "ELBO=-36.250" in told) == shown
    assert bool(told) == shown
    assert "noise" not in told
