"""The race: errors of draws, resumption, counts of right and wrong, columns; one real fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks.race import lanes, summary
from benchmarks.race.answer import Answer, Refused
from benchmarks.race.by_pathfinder import importance_evidence
from benchmarks.race.methods import METHODS, REFERENCE, Method
from benchmarks.race.one import measure
from benchmarks.race.problem import (
    RaceProblem,
    by_number,
    half,
    moments_by_number,
    with_sites,
    worst_errors,
)
from benchmarks.race.problems import SMALL, groups_by_name, load
from benchmarks.race.pymc_models import MODELS
from benchmarks.race.record import COLUMNS, Fit, is_done, read, read_all, store
from benchmarks.race.tables import Table

# ------------------------------------------------------------------------------------- problems


def test_the_worst_errors_are_found_and_named():
    rng = np.random.default_rng(0)
    numbers = by_number("theta", rng.normal(size=(100_000, 3)) * [1.0, 2.0, 0.0] + [0.0, 1.0, 5.0])
    reference = moments_by_number({"theta": [0.0, 0.0, 7.0]}, {"theta": [2.0, 2.0, 0.0]})
    found = worst_errors(numbers, reference)
    # theta[2] is a constant, whatever its draws.
    assert (found.mean_of, found.sd_of) == ("theta[1]", "theta[0]")
    assert found.mean == pytest.approx(0.5, abs=0.01)
    assert found.sd == pytest.approx(0.5, abs=0.01)


def test_draws_that_are_not_finite_are_infinitely_wrong():
    found = worst_errors({"mu": np.array([0.0, np.nan])}, {"mu": (0.0, 1.0)})
    assert (found.mean, found.sd) == (np.inf, np.inf)
    assert summary.errors_of({"mean_error": None, "sd_error": 0.1}) == (np.inf, 0.1)


def test_numbers_have_names():
    x = np.ones((5, 2, 2))
    assert list(by_number("a", x)) == ["a[0,0]", "a[0,1]", "a[1,0]", "a[1,1]"]
    assert list(by_number("a", x[:, 0, 0])) == ["a"]
    assert all(draws.shape == (5,) for draws in by_number("a", x).values())


def test_the_problems_are_89_in_two_halves(monkeypatch):
    monkeypatch.setenv("POSTERIORDB", "anywhere")
    groups = groups_by_name()
    counts = {group: list(groups.values()).count(group) for group in groups.values()}
    assert counts == {"everyday": 37, "tasks": 6, "posteriordb": 46}
    assert [half(name) for name in groups].count("tuning") == 47
    assert set(SMALL) <= set(groups)
    assert set(MODELS) <= set(groups)
    # The halves are fixed: work that was tuned on one must not meet it in the other.
    assert (half("radon"), half("pumps"), half("robust")) == ("tuning", "tuning", "held-out")


def test_without_a_database_its_problems_are_left_out(monkeypatch):
    monkeypatch.delenv("POSTERIORDB", raising=False)
    monkeypatch.delenv("POSTERIOR_DB_PATH", raising=False)
    assert len(groups_by_name()) == 43
    with pytest.raises(KeyError, match="linear-raw"):
        load("kidiq-kidscore_momiq")


def test_deterministic_sites_that_a_method_left_out_are_computed():
    problem = load("schools-non-centred")
    draws = {"mu": np.array([1.0, 2.0]), "tau": np.array([3.0, 4.0]), "z": np.ones((2, 10))}
    found = with_sites(problem, draws, ("mu", "theta"))["theta"]
    np.testing.assert_allclose(found[:, 7], [4.0, 6.0])


# -------------------------------------------------------------------------------------- methods


def test_the_table_of_methods():
    assert REFERENCE in METHODS
    assert list(METHODS)[:3] == ["asvi", "structured-normal", "nuts"]
    assert METHODS["nutpie"].takes("radon")
    assert not METHODS["nutpie"].takes("gp-poisson")
    assert all(method.takes("gp-poisson") for n, method in METHODS.items() if n != "nutpie")


def test_evidence_from_importance_ratios():
    rng = np.random.default_rng(0)
    x = rng.normal(size=20_000) * 1.5
    log_q = -0.5 * (x / 1.5) ** 2 - np.log(1.5)
    found, se = importance_evidence(3.0 - 0.5 * x**2 - log_q)
    assert abs(found - 3.0) < 4 * se
    assert importance_evidence(np.full(3, -np.inf)) == (None, None)


def test_the_table_of_methods_imports_no_method():
    """Imports are measured: nothing may be imported before."""
    code = "import sys, benchmarks.race.one; assert not {'jax', 'asvi'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("name", ["schools-non-centred", "radon"])
def test_pymc_versions_have_the_same_density(name, float64):
    pytest.importorskip("pymc")
    import pytensor
    from numpyro.infer.util import log_density

    problem = load(name)
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        model = MODELS[name](*problem.args, **problem.kwargs)
        joint = model.compile_logp(jacobian=False)
    values, point = {}, {}
    for i, site in enumerate(model.free_RVs):
        free = model.rvs_to_values[site].name
        shape = np.shape(model.initial_point()[free])
        x = (0.3 + 0.1 * np.cos(i + np.arange(np.prod(shape)))).reshape(shape)
        values[site.name], point[free] = x, np.log(x) if free.endswith("_log__") else x
    ours, _ = log_density(problem.model, problem.args, problem.kwargs, values)
    assert float(joint(point)) == pytest.approx(float(ours), rel=1e-6)


def made_up(run) -> tuple[Fit, Method, RaceProblem]:
    def compare(draws):
        return worst_errors(draws, {"mu": (0.0, 1.0)})

    problem = RaceProblem("made-up", "tasks", lambda: None, (), compare=compare, log_evidence=1.0)
    return Fit("made-up", "tasks", "nuts"), Method(run, (), "NUTS"), problem


def test_a_fit_has_two_calls_and_diagnosis_apart():
    keys, kept = [], []

    def run(problem, key):
        keys.append(int(jax.random.key_data(key)[-1]))
        answer = Answer({"mu": np.array([-1.0, 0.0, 1.0])}, log_evidence=np.float32(1.5))
        answer.diagnosis.wall = 1e3
        return answer

    row = measure(*made_up(run), 600.0, lambda row: kept.append(dict(row)))
    assert keys == [0, 1000]
    assert [k["later_seconds"] is None for k in kept] == [True, False]
    assert row["first_seconds"] < 0  # a thousand seconds were taken off
    assert (row["diagnosis_seconds"], row["draws"], row["status"]) == (1e3, 3, "answered")
    assert (row["mean_error"], row["sd_error"], row["log_evidence_error"]) == (0.0, 0.0, 0.5)


@pytest.mark.parametrize(
    ("error", "status"), [(Refused("no\nmore"), "refused"), (KeyError("no"), "failed")]
)
def test_what_a_method_raises_is_its_result(error, status, tmp_path):
    def run(problem, key):
        raise error

    fit, method, problem = made_up(run)
    row = measure(fit, method, problem, 600.0, lambda row: store(tmp_path / "a.json", row))
    assert row["status"] == read(tmp_path / "a.json")["status"] == status
    assert row["message"].startswith(f"{type(error).__name__}: ")
    assert "\n" not in row["message"]


def test_an_answer_after_the_limit_is_too_long():
    row = measure(
        *made_up(lambda problem, key: Answer({"mu": np.zeros(2)})), -1.0, lambda row: None
    )
    assert row["status"] == "too long"


def test_a_real_fit(tmp_path):
    problem, path = load("linear-known-noise"), tmp_path / "fit.json"
    fit = Fit(problem.name, problem.group, "structured-normal")
    measure(fit, METHODS[fit.method], problem, 600.0, lambda row: store(path, row))
    row = read(path)
    assert summary.right(row)
    assert summary.evidence_right(row)
    assert row["verdict"] == "good"
    assert row["later_seconds"] > 0
    assert (row["half"], row["draws"]) == (half(problem.name), 4000)


# -------------------------------------------------------------------------------- stored records


def fake(problem="radon", method="nuts", **found) -> dict:
    about = {
        "status": "answered",
        "limit_seconds": 600.0,
        "first_seconds": 10.0,
        "later_seconds": 1.0,
        "diagnosis_seconds": 0.5,
        "mean_error": 0.01,
        "mean_error_of": "mu",
        "sd_error": 0.02,
        "sd_error_of": "tau",
    }
    return Fit(problem, "tasks", method).record(**about | found)


def test_a_record_has_all_columns_and_no_others(tmp_path):
    assert tuple(fake()) == COLUMNS
    with pytest.raises(ValueError, match="colour"):
        fake(colour="red")
    with pytest.raises(ValueError, match="verdict"):
        store(tmp_path / "a.json", {k: v for k, v in fake().items() if k != "verdict"})


def test_what_is_not_finite_is_null(tmp_path):
    row = fake(mean_error=np.inf, extra={"r_hat": np.float32("nan"), "draws": np.int64(3)})
    store(tmp_path / "a.json", row)
    found = read(tmp_path / "a.json")
    assert found["mean_error"] is None
    assert found["extra"] == {"r_hat": None, "draws": 3}
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_race_goes_on_where_it_stopped(tmp_path):
    fits = [Fit("radon", "tasks", m, k) for k in (0, 1) for m in ("asvi", "nuts")]
    assert len({fit.path(tmp_path) for fit in fits}) == 4
    store(fits[0].path(tmp_path), fake(method="asvi"))
    store(fits[1].path(tmp_path), fake(status="too long", limit_seconds=60.0))
    assert lanes.missing(fits, tmp_path, 60.0) == fits[2:]
    # More time is a reason to try again.
    assert lanes.missing(fits, tmp_path, 600.0) == fits[1:]
    assert not is_done(fits[2].path(tmp_path), 60.0)


class FakeProcess:
    """Ends at once, with a code; or never, where the code is None."""

    pid, returncode = 0, 0

    def __init__(self, code):
        self.code = code

    def poll(self):
        return self.code

    def wait(self):
        self.returncode = -9 if self.code is None else self.code


def test_lanes_run_methods_one_after_the_other_and_store_every_end(tmp_path, monkeypatch):
    monkeypatch.setattr(lanes.os, "killpg", lambda *_: None)
    monkeypatch.setattr(lanes, "POLL", 0.0)
    fits = [Fit(p, "tasks", m) for p in ("radon", "lorenz", "brownian") for m in ("asvi", "nuts")]
    codes = {("radon", "asvi"): 0, ("radon", "nuts"): None, ("lorenz", "asvi"): -9}
    events, cores, alive = [], {}, set()

    def begin(fit, results, limit, core):
        code = codes.get((fit.problem, fit.method), 1)
        if code == 0:
            store(fit.path(results), fake(fit.problem, fit.method))
        folder = lanes.tempfile.TemporaryDirectory()
        (Path(folder.name) / "stderr").write_text("Traceback\nOSError: gone\n\n")
        cores.setdefault(fit.problem, set()).add(core)
        return lanes.Running(fit, FakeProcess(code), folder, -1e9 if code is None else 1e9, 60.0)

    def tell(event, fit, record):
        events.append((event, fit.problem, fit.method))
        (alive.add if event == "begins" else alive.discard)(fit.problem)
        assert len(alive) <= 2

    lanes.run(fits, tmp_path, 60.0, 2, tell, begin)
    assert events.index(("ends", "radon", "asvi")) < events.index(("begins", "radon", "nuts"))
    assert all(len(of) == 1 for of in cores.values())
    found = {(row["problem"], row["method"]): row for row in read_all(tmp_path)}
    assert len(found) == len(fits)
    assert found["radon", "asvi"]["status"] == "answered"
    assert found["radon", "nuts"]["status"] == "too long"
    assert found["lorenz", "asvi"]["message"] == "ended by SIGKILL"
    assert found["lorenz", "nuts"]["message"] == "OSError: gone"
    assert lanes.missing(fits, tmp_path, 60.0) == []


# -------------------------------------------------------------------------------------- summary

GOOD, USABLE = "good", "usable with resampling"


def fake_race() -> list[dict]:
    return [
        fake("radon", "asvi", verdict=GOOD, log_evidence_error=0.05, first_seconds=5.0),
        fake("lorenz", "asvi", verdict=GOOD, mean_error=0.2, log_evidence_error=-0.2),
        fake("pumps", "asvi", verdict=USABLE, sd_error=None),
        fake("robust", "asvi", verdict="not trustworthy", sd_error=0.5, later_seconds=None),
        fake("seeds", "asvi", status="refused", message="SiteError: a|b", first_seconds=None),
        fake("radon", "nuts"),
        fake("lorenz", "nuts", first_seconds=40.0),
        fake("pumps", "nuts", status="too long", first_seconds=1e4),
    ]


def test_the_summary_counts_right_wrong_and_falsely_good():
    ours, nuts = summary.summarise(fake_race()).rows
    assert (ours["method"], ours["fits"], ours["answered"], ours["refused"]) == ("asvi", 5, 4, 1)
    assert (ours["means right"], ours["sds right"], ours["right"]) == (3, 2, 1)
    assert (ours["wrong, called good"], ours["wrong, called usable"]) == (1, 1)
    assert (ours["evidence right"], ours["evidence known"]) == (1, 2)
    # Pairs: 5 to 10 and 10 to 40; no answer of NUTS, no ratio.
    assert ours["first / NUTS"] == pytest.approx((0.5 + 0.25) / 2)
    assert ours["later call (s)"] == 1.0
    assert (nuts["too long"], nuts["right"], nuts["first / NUTS"]) == (1, 2, 1.0)


def test_halves_and_groups_have_their_own_rows():
    found = summary.parts(fake_race())
    halves = [len(found[f"Half: {name}"]) for name in ("tuning", "held-out")]
    assert sum(halves) == len(found["All problems"]) == 8
    assert "Group: everyday" not in found


def test_a_table_whose_rows_differ_from_its_head_fails():
    with pytest.raises(ValueError, match="head"):
        Table(("a", "b"), [{"a": 1, "b": 2}, {"a": 1}])
    with pytest.raises(ValueError, match="head"):
        Table(("a", "b"), [{"b": 2, "a": 1}])
    with pytest.raises(ValueError, match="columns"):
        summary.summarise([{k: v for k, v in fake().items() if k != "verdict"}])


def test_tables_and_pictures_are_written(tmp_path):
    from benchmarks.race import pictures

    shown = summary.write(fake_race(), tmp_path)
    pictures.draw(fake_race(), tmp_path)
    assert shown in (tmp_path / "table.md").read_text()
    assert "a\\|b" in (tmp_path / "problems.md").read_text()
    stored = json.loads((tmp_path / "table.json").read_text())
    assert len(stored["fits"]) == 8
    assert stored["summary"]["All problems"][0]["right"] == 1
    assert {"race.png", "ratio.png"} <= set(os.listdir(tmp_path))
