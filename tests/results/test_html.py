"""Pictures, the HTML page and the command line around a fit."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest

import asvi
from asvi.results.html import write_html

# One worker, so that the fits that these tests share are made once.
pytestmark = pytest.mark.xdist_group("test_report")

MODEL = """
import numpyro
import numpyro.distributions as dist

def model(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)
"""


@pytest.fixture(scope="module")
def schools():
    task = asvi.tasks.get("eight-schools")
    return asvi.fit(
        task.model,
        *task.args,
        progress_bar=False,
        training=asvi.Training(num_steps=2000, num_restarts=2),
    )


def run_cli(monkeypatch, capsys, *arguments):
    from asvi.cli.app import main

    monkeypatch.setattr(sys, "argv", ["asvi", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    told = capsys.readouterr()
    return stop.value.code, " ".join((told.out + told.err).split())


def test_the_page_holds_verdict_table_and_pictures(schools, tmp_path):
    page = tmp_path / "fit.html"
    write_html(schools, page, title="schools")
    text = page.read_text()
    assert schools.diagnose().verdict in text
    assert "theta[7]" in text
    assert len(re.findall("data:image/png;base64", text)) >= 6
    assert "http://" not in text
    assert "https://" not in text
    assert not plt.get_fignums()


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium to look at the page with")
def test_a_browser_shows_the_page(schools, tmp_path):
    page, picture = tmp_path / "fit.html", tmp_path / "page.png"
    write_html(schools, page)
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={picture}"]
    command += ["--disable-background-networking", "--window-size=900,3000", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert picture.stat().st_size > 20_000


def test_fit_and_report_from_the_command_line(tmp_path, monkeypatch, capsys):
    model = tmp_path / "my_model.py"
    model.write_text(MODEL)
    x = np.linspace(0, 1, 20, dtype=np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=2 * x)
    monkeypatch.chdir(tmp_path)
    code, told = run_cli(
        monkeypatch, capsys, "fit", f"{model}:model", "--data", "data.npz", "--out", "fit.asvi"
    )
    assert code == 0, told
    assert "slope" in told
    assert ": good. " in told
    assert not (tmp_path / "out").exists()
    code, told = run_cli(monkeypatch, capsys, "report", "fit.asvi")
    assert code == 0, told
    assert "slope" in (tmp_path / "fit.html").read_text()


def test_an_import_error_is_shown_in_the_users_own_file_and_line(tmp_path, monkeypatch, capsys):
    broken = tmp_path / "broken.py"
    broken.write_text("import numpyro\nimport no_such_package\n")
    code, told = run_cli(monkeypatch, capsys, "fit", f"{broken}:model")
    assert code == 2
    assert "line 2 import no_such_package" in told
    assert "No module named 'no_such_package'" in told
    broken.write_text("def model(:\n")
    code, told = run_cli(monkeypatch, capsys, "fit", f"{broken}:model")
    assert code == 2
    assert "line 1" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "eight-school"], "Did you mean 'eight-schools'"),
        (["fit", "none.py:model"], "There is no file none.py"),
        (["fit", "none.py"], "none.py:model"),
        (["report", "none.asvi"], "There is no file none.asvi"),
    ],
)
def test_what_cannot_be_found_is_said(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, told = run_cli(monkeypatch, capsys, *arguments)
    assert code == 2
    assert message in told
