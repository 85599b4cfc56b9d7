"""The benchmark command: cells are whole, resumed, refused when foreign; tables read them."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import asvi
from asvi.cli.bench import run_cells as bench_run
from asvi.cli.bench.protocol import Protocol
from asvi.cli.bench.run_cells import run_cells
from asvi.cli.bench.store import CellStore
from asvi.cli.bench.write_report import write_report
from asvi.errors import AsviError

# One worker, so that the fits that these tests share are made once.
pytestmark = pytest.mark.xdist_group("test_bench")

SMALL = Protocol(steps=40, seeds=2, evaluation_draws=50, moment_draws=(20, 40))


@pytest.fixture
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "run"
    cells = run_cells(out, SMALL, ["eight-schools"], ["asvi"], progress=False)
    return out, cells | run_cells(out, SMALL, ["lorenz"], ["ar1"], progress=False)


def cells_hold_every_seed_and_no_elbo_beats_the_evidence(finished):
    _out, cells = finished
    assert set(cells) == {("eight-schools", "asvi"), ("lorenz", "ar1")}
    cell = cells["eight-schools", "asvi"]
    assert len(cell["neg_elbo"]) == 2
    assert cell["neg_elbo"][0] != cell["neg_elbo"][1]
    assert np.shape(cell["curves"])[0] == 2
    assert all(v > 36.13 for v in cell["neg_elbo"])
    assert np.shape(cell["mean_error_40"]) == (2,)


def a_second_run_trains_nothing_again(finished, monkeypatch):
    out, cells = finished

    def never(*_args, **_kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(bench_run, "train_cell", never)
    again = run_cells(out, SMALL, ["eight-schools"], ["asvi"], progress=False)
    assert again["eight-schools", "asvi"] == cells["eight-schools", "asvi"]


def reports_are_written(finished, tmp_path):
    _, cells = finished
    text = write_report("table1", cells, tmp_path)
    assert "| eight-schools | 36.13 |" in text
    assert "gap" in text
    assert "paper 36.5 ± 0.04" in text
    rows = json.loads((tmp_path / "table1.json").read_text())["rows"]
    row = next(r for r in rows if r["task"] == "eight-schools")
    assert row["gap"] == pytest.approx(row["neg_elbo"] - 36.1308, abs=1e-3)
    assert (tmp_path / "losses.png").stat().st_size > 1000
    assert (tmp_path / "lorenz.png").stat().st_size > 1000
    text = write_report("table2", cells, tmp_path)
    assert "(20 draws)" in text
    assert "(40 draws)" in text
    assert "| lorenz | particle filter |" in text


def test_cells_resumption_and_reports(finished, monkeypatch, tmp_path):
    """One test, so that the cells are trained once wherever it runs."""
    cells_hold_every_seed_and_no_elbo_beats_the_evidence(finished)
    reports_are_written(finished, tmp_path)
    a_second_run_trains_nothing_again(finished, monkeypatch)


@pytest.mark.slow
def test_the_best_protocol_is_a_fit_with_nothing_set(tmp_path):
    protocol = Protocol.named("best", steps=500, seeds=2)
    assert Protocol.named("best").families == ("coupled", "asvi-steep-gate")
    cells = run_cells(tmp_path / "run", protocol, ["brownian"], ["coupled"], progress=False)
    cell = cells["brownian", "coupled"]
    task = asvi.tasks.get("brownian")
    result = asvi.fit(
        task.model,
        *task.args,
        rng_key=jax.random.key(1),
        training=asvi.Training(num_steps=500),
        progress_bar=False,
    )
    assert cell["neg_elbo"][1] == pytest.approx(-result.elbo, abs=1e-5)
    assert cell["seconds"][0] > cell["seconds"][1]
    assert max(cell["mean_error_10000"]) < 0.03  # the family holds the exact posterior
    text = write_report("table1", cells, tmp_path / "run")
    assert re.search(r"gap -?0\.00.*worst -?0\.00.*; \d+ s, then \d+ s", text)
    with pytest.raises(AsviError, match="There is no protocol"):
        Protocol.named("bset")


@pytest.mark.slow
def test_a_killed_run_leaves_only_whole_cells(tmp_path):
    """Killed while the second cell is at work: the first is there, and is kept by the next run."""
    out = tmp_path / "run"
    program = f"""
import os, signal
from asvi.bench import run
from asvi.bench.protocol import Protocol
train = run.train_cell
def train_one(task, *rest):
    if task.name != "eight-schools":
        os.kill(os.getpid(), signal.SIGKILL)
    return train(task, *rest)
run.train_cell = train_one
protocol = Protocol(steps=40, seeds=2, evaluation_draws=50, moment_draws=(20, 40))
run.run_cells({str(out)!r}, protocol, ["eight-schools", "brownian"], ["asvi"], progress=False)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == -9
    store = CellStore(out, SMALL)
    assert store.has("eight-schools", "asvi")
    assert not store.has("brownian", "asvi")
    assert list(store.load_all()) == [("eight-schools", "asvi")]


def test_a_folder_of_another_version_is_refused_and_left_alone(tmp_path):
    (tmp_path / "bench.json").write_text('{"format": 0, "protocol": {}}')
    with pytest.raises(AsviError, match=r"format 0, and this version writes format 1(?s:.*)--out"):
        run_cells(tmp_path, SMALL, ["brownian"], ["asvi"], progress=False)
    assert [p.name for p in tmp_path.iterdir()] == ["bench.json"]
    assert json.loads((tmp_path / "bench.json").read_text())["format"] == 0


def test_a_folder_of_other_settings_or_other_things_is_refused(tmp_path):
    CellStore(tmp_path / "a", SMALL)
    with pytest.raises(AsviError, match=r"other settings \(seeds: 2 there, 15 now"):
        CellStore(tmp_path / "a", Protocol(steps=40, evaluation_draws=50, moment_draws=(20, 40)))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("dear")
    with pytest.raises(AsviError, match="left untouched"):
        CellStore(tmp_path / "b", SMALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "lorentz"], "no task 'lorentz'. Did you mean 'lorenz'"),
        (["--families", "asvii"], "no family 'asvii'. Did you mean 'asvi'"),
        (["--protocol", "beste"], "no protocol 'beste'"),
        (["--tasks", "radon", "--families", "ar1"], "they need a chain"),
    ],
)
def test_unknown_names_list_the_known_ones(arguments, message, tmp_path, monkeypatch, capsys):
    from asvi.cli.app import main

    out = tmp_path / "new"
    monkeypatch.setattr(sys, "argv", ["asvi", "bench", "table1", *arguments, "--out", str(out)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


def test_the_command_lists_the_tasks(monkeypatch, capsys):
    from asvi.cli.app import main

    monkeypatch.setattr(sys, "argv", ["asvi", "tasks"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "brownian-global" in text
    assert "1.1877" in text
