"""The command line: options, kinds of data, files, exit codes."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

import asvi
from asvi.cli import app as command_line
from asvi.errors import AsviError

MODEL = """
import numpyro
import numpyro.distributions as dist

def line(x, y=None, effort=1.0):
    slope = numpyro.sample("slope", dist.Normal(0.0, 5.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(effort * slope * x, 1.0), obs=y)
"""
X = np.linspace(-1.0, 1.0, 6)
Y = 2.0 * X


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    np.savez("data.npz", x=X, y=Y)
    return tmp_path


def run(*words: str):
    found = CliRunner().invoke(command_line.app, [*words], catch_exceptions=False)
    return found.exit_code, found.output


def test_the_version_is_the_packages():
    assert run("--version") == (0, f"asvi {asvi.__version__}\n")


def test_a_fit_writes_no_file_that_nobody_named(here):
    before = sorted(here.iterdir())
    code, output = run("fit", "model.py:line", "--data", "data.npz")
    assert code == 0
    assert "good" in output
    assert [p for p in sorted(here.iterdir()) if p.suffix != ".pyc"] == before


@pytest.mark.parametrize("kind", ["npz", "csv", "json"])
def test_data_of_each_kind_give_the_same_table(here, kind):
    if kind == "csv":
        pandas.DataFrame({"x": X, "y": Y, "who": ["a"] * 6}).to_csv("data.csv", index=False)
    if kind == "json":
        (here / "data.json").write_text(json.dumps({"x": X.tolist(), "y": Y.tolist()}))
    _, output = run("check", "model.py:line", "--data", f"data.{kind}")
    assert "row[6]" in output
    assert "no errors found" in output


def test_an_argument_called_as_an_option_reaches_the_model(here):
    slope = {}
    for effort in ("1.0", "2.0"):
        asked = ["fit", "model.py:line", f"effort={effort}", "--data", "data.npz"]
        code, _ = run(*asked, "--out", "fit.asvi")
        assert code == 0
        from asvi.cli.find_model import find_model

        model, _, _ = find_model("model.py:line")
        slope[effort] = float(asvi.load("fit.asvi", model).posterior.mean()["slope"])
    assert slope["1.0"] == pytest.approx(2 * slope["2.0"], rel=0.1)


def test_what_is_not_trustworthy_ends_with_a_code_of_its_own(here):
    asked = ["fit", "model.py:line", "--data", "data.npz", "--family", "MeanField"]
    asked += ["--num-steps", "1", "--no-progress"]
    code, output = run(*asked)
    assert "not trustworthy" in output
    assert code == 3
    assert run(*asked, "--no-check")[0] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data", "none.npz"], "There is no file none.npz"),
        (["--data", "model.py"], "of no kind that is read here"),
        (["n"], "'n' is no argument of the model"),
        (["--data", "text.csv"], "column 'x' of text.csv is text"),
        (["--data", "other.csv"], "has no column 'x'"),
        (["--data", "data.npz", "--effort", "much"], "effort='much' is none of"),
    ],
)
def test_wrong_input_is_told_with_the_mended_line(here, words, told):
    pandas.DataFrame({"x": ["a", "b"]}).to_csv("text.csv", index=False)
    pandas.DataFrame({"z": [1.0]}).to_csv("other.csv", index=False)
    with pytest.raises(AsviError) as caught:
        run("fit", "model.py:line", *words)
    assert told in str(caught.value)


def test_a_check_names_the_site_and_fits_nothing(here, monkeypatch):
    monkeypatch.setattr("asvi.results.fit.climb", None)
    np.savez("bad.npz", x=X, y=np.where(X > 0, np.nan, Y))
    with pytest.raises(AsviError, match="site 'y'"):
        run("check", "model.py:line", "--data", "bad.npz")


def test_the_old_name_of_steps_says_the_new_one(here):
    asked = ["fit", "model.py:line", "--data", "data.npz", "--family", "MeanField", "--no-check"]
    code, output = run(*asked, "--steps", "1", "--no-progress")
    assert code == 0
    assert "--num-steps" in output


def test_arviz_data_are_written_where_they_are_named(here):
    code, output = run("fit", "model.py:line", "--data", "data.npz", "--netcdf", "draws.nc")
    assert code == 0
    assert (here / "draws.nc").stat().st_size > 1000
    assert "wrote draws.nc" in output
