"""What is seen of a result: text, one line, HTML."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from rich.console import Console

import asvi

pytestmark = pytest.mark.xdist_group("test_display")

Y = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SIGMA = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
#: Numbers stand for any number of as many decimals.
GOLDEN = """\
schools: good. Use the draws as they are.
  (draws weighted; 3,316 effective of 4,096; 0.6 s)
            mean     sd      5%     95%     ess
mu          5.79   5.43   -3.16   14.58   3,316
tau        13.09   6.32    5.27   25.17   3,316
theta[0]    14.6   10.7    -1.5    33.3   3,316
… 7 more of theta: result.summary()
log evidence -36.14 ± 0.01     ELBO -36.24 ± 0.01
next: result.to_arviz(), asvi.plot.ppc(result)"""


def schools(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.LogNormal(5, 1))
    with numpyro.plate("school", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)
    numpyro.deterministic("spread", theta.max() - theta.min())


@pytest.fixture(scope="module")
def result():
    return asvi.fit(schools, SIGMA, Y, progress_bar=False)


@pytest.fixture(scope="module")
def bad():
    training = asvi.Training(num_steps=250, num_restarts=1)
    return asvi.fit(schools, SIGMA, Y, family="MeanField", training=training, progress_bar=False)


def numbers_of(text):
    return [float(x.replace(",", "")) for x in re.findall(r"-?\d[\d,]*\.?\d*", text)]


def shape_of(text):
    """Words, and how many decimals each number has."""
    text = re.sub(r" +", " ", text)
    return re.sub(r"-?\d[\d,]*(\.\d+)?", lambda m: "#" + "." * len(m[1] or ""), text)


def test_the_text_opens_with_the_verdict_and_ends_with_what_is_next(result, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert shape_of(str(result)) == shape_of(GOLDEN)
    wanted = GOLDEN.splitlines()[3:6]
    for line, golden in zip(str(result).splitlines()[3:6], wanted, strict=True):
        mean, sd, *_, ess = numbers_of(line.partition(" ")[2])
        golden_mean, golden_sd, *_, _ = numbers_of(golden.partition(" ")[2])
        assert mean == pytest.approx(golden_mean, abs=0.1 * golden_sd)
        assert sd == pytest.approx(golden_sd, rel=0.1)
        assert ess > 1000


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_are_as_wide_as_the_terminal(result, bad, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    for fit in (result, bad):
        assert max(map(len, str(fit).splitlines())) <= width
    first = str(result).splitlines()[0]
    assert ("effective of" in first) == (width == 120)


def test_reasons_are_said_of_a_bad_fit(bad):
    text = str(bad)
    assert text.startswith("schools: not trustworthy. ")
    assert "  - " in text
    assert "family: MeanField, as asked for" in text
    assert "next: result.diagnose()" in text


def test_a_fit_is_one_line(result, bad):
    assert re.fullmatch(r"<asvi.Fit of schools: good, 10 numbers, \d+\.\d s>", repr(result))
    assert "not trustworthy" in repr(bad)
    assert re.fullmatch(r"<asvi.Report: good, .* draws>", repr(result.diagnose()))
    assert repr(result.explain()).startswith("<asvi.Explanation of 3 sites")
    assert repr(result.program) == "<asvi.Program: 3 latent and 1 observed sites>"


def test_rich_prints_the_verdict_in_its_colour(result):
    console = Console(width=80, force_terminal=True, color_system="standard", legacy_windows=False)
    with console.capture() as capture:
        console.print(result)
    assert "\x1b[1;32mgood\x1b[0m" in capture.get()
    assert re.sub(r"\x1b\[[0-9;]*m", "", capture.get()).rstrip() == str(result)


class Balance(HTMLParser):
    """Which elements are open, and the text of those that are closed."""

    def __init__(self):
        super().__init__()
        self.open, self.met, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.met.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(html):
    page = Balance()
    page.feed(html)
    page.close()
    assert not page.open
    assert "script" not in page.met
    assert "http" not in html
    return page


def test_the_html_holds_verdict_table_and_folded_rows(result, bad):
    page = parsed(result._repr_html_())
    assert "good" in page.text
    assert "theta[7]" in page.text
    assert "7 more of theta" in page.text
    assert "spread" not in page.text
    page = parsed(bad._repr_html_())
    assert "not trustworthy" in page.text
    assert page.met.count("details") == 2
    for part in (bad.diagnose(), bad.explain(), bad.program):
        assert {"table", "details"} & set(parsed(part._repr_html_()).met)


def test_names_that_look_like_html_are_text():
    def model(y):
        mu = numpyro.sample("<b>&mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    assert "<b>&mu" in parsed(asvi.fit(model, 1.0)._repr_html_()).text


def test_a_loaded_fit_says_what_it_can(result, bad, tmp_path):
    for fit, verdict in ((result, "good"), (bad, "not trustworthy")):
        fit.save(tmp_path / "fit.asvi")
        loaded = asvi.load(tmp_path / "fit.asvi", schools)
        assert str(loaded).startswith(f"schools: {verdict}. ")
        assert verdict in repr(loaded)
        assert verdict in parsed(loaded._repr_html_()).text


def test_many_sites_are_cut():
    def model():
        for i in range(40):
            numpyro.sample(f"x{i}", dist.Normal(0.0, 1.0))

    text = str(asvi.fit(model))
    assert "x29 " in text
    assert "x30 " not in text
    assert "… 10 more sites: result.summary()" in text


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium to look at the page with")
def test_a_browser_shows_it_on_a_dark_ground(result, tmp_path):
    page, picture = tmp_path / "fit.html", tmp_path / "fit.png"
    style = "background: #111; color: #ddd"
    page.write_text(f'<!doctype html><body style="{style}">{result._repr_html_()}</body>')
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={picture}"]
    command += ["--disable-background-networking", "--window-size=700,300", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    from matplotlib.image import imread

    pixels = imread(picture)[..., :3].mean(-1)
    # Words are light on it: they would be dark if a table had its own colour.
    assert 0.01 < (pixels > 0.6).mean() < 0.3
