"""`examples/eight_schools.py`: what it prints is what it found, and what it found is right."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "eight_schools.py"
LOG_EVIDENCE = -36.1308
MEAN_FIELD_GAP = 0.79  # at its optimum, which mean field reaches in few steps


def load_script():
    spec = importlib.util.spec_from_file_location("eight_schools", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["eight_schools"] = module
    spec.loader.exec_module(module)
    return module


schools = load_script()


# One worker, so that the fits that these tests share are made once.
pytestmark = pytest.mark.xdist_group("test_demo")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The demonstration: what it found, and what it printed."""
    screen = io.StringIO()
    out = tmp_path_factory.mktemp("demo") / "not_yet_there"
    with contextlib.redirect_stdout(screen):
        found = schools.main(out)
    return *found, screen.getvalue()


def normal_log_density(x, mean, sd):
    return -(((x - mean) / sd) ** 2) / 2 - np.log(sd) - np.log(2 * np.pi) / 2


# ------------------------------------------------------------------------ the exact posterior


def test_quadrature_agrees_with_a_plain_grid_over_mu_and_log_tau():
    """Only theta is integrated by hand here, so the algebra for mu is checked as well."""
    exact = schools.exact_posterior()
    mu = np.linspace(-60.0, 70.0, 521)[:, None]
    log_tau = np.linspace(-6.0, 11.0, 681)
    log_joint = normal_log_density(mu, 0.0, 10.0) + normal_log_density(log_tau, 5.0, 1.0)
    for y, sigma in zip(schools.Y, schools.SIGMA, strict=True):
        log_joint += normal_log_density(y, mu, np.sqrt(sigma**2 + np.exp(2 * log_tau)))
    joint = np.exp(log_joint)
    cell = (mu[1, 0] - mu[0, 0]) * (log_tau[1] - log_tau[0])
    assert exact.log_evidence == pytest.approx(np.log(joint.sum() * cell), abs=1e-6)
    assert exact.log_evidence == pytest.approx(LOG_EVIDENCE, abs=1e-4)

    joint /= joint.sum()
    for i, x in enumerate((mu, log_tau)):
        mean = np.sum(joint * x)
        sd = np.sqrt(np.sum(joint * (x - mean) ** 2))
        assert (exact.mean[i], exact.sd[i]) == pytest.approx((mean, sd), abs=1e-5)


@pytest.mark.parametrize("log_tau", [-1.0, 2.5, 5.0])
def test_theta_given_tau_agrees_with_the_joint_gaussian(log_tau):
    """At one tau: mu, theta and y are jointly Gaussian; condition on y with matrices."""
    exact = schools.exact_posterior()
    i = np.searchsorted(exact.log_tau, log_tau)
    spread = np.diag(np.full(8, np.exp(2 * exact.log_tau[i])))
    theta_cov = 100.0 + spread
    gain = theta_cov @ np.linalg.inv(theta_cov + np.diag(schools.SIGMA**2))
    mean, cov = gain @ schools.Y, theta_cov - gain @ theta_cov
    assert exact.means[i, 2:] == pytest.approx(mean)
    assert exact.sds[i, 2:] == pytest.approx(np.sqrt(np.diag(cov)))


@pytest.mark.parametrize("site", ["mu", "log_tau", "theta_1", "theta_8"])
def test_densities_have_mass_one_and_the_moments_said(site):
    exact = schools.exact_posterior()
    x = np.linspace(-80.0, 120.0, 2001)
    mass = exact.density(site, x) * (x[1] - x[0])
    mean = np.sum(mass * x)
    found = mean, np.sqrt(np.sum(mass * (x - mean) ** 2))
    i = schools.SITES.index(site)
    assert mass.sum() == pytest.approx(1.0, abs=1e-4)
    assert (exact.mean[i], exact.sd[i]) == pytest.approx(found, rel=1e-3)


def test_joint_gives_the_mass_of_log_tau():
    exact = schools.exact_posterior()
    x = np.linspace(-200.0, 240.0, 801)
    shown = (exact.log_tau > 0.5) & (exact.log_tau < 3.5)
    mass = exact.joint("theta_1", x).sum(axis=1) * (x[1] - x[0])
    np.testing.assert_allclose(mass[shown], exact.weight[shown], rtol=1e-5)


def test_levels_enclose_their_mass():
    x = np.linspace(-6.0, 6.0, 401)
    density = np.exp(-(x[:, None] ** 2 + x**2) / 2)
    radius_of_half = np.sqrt(2 * np.log(2))  # of a two-dimensional standard normal
    (level,) = schools.levels_of_mass(density, (0.5,))
    assert level == pytest.approx(np.exp(-(radius_of_half**2) / 2), rel=0.01)


# ------------------------------------------------------------------------- what it found


def test_asvi_finds_the_posterior_and_says_so(run):
    exact, result, (ours, _, _), _, _ = run
    for found, truth in ((ours.mean, exact.mean), (ours.sd, exact.sd)):
        assert np.all(np.abs(found - truth) < 0.07 * exact.sd)
    for found, truth in ((ours.draws.mean(0), exact.mean), (ours.draws.std(0), exact.sd)):
        assert np.all(np.abs(found - truth) < 0.05 * exact.sd)  # these are more draws
    assert abs(ours.log_evidence[0] - LOG_EVIDENCE) < 4 * ours.log_evidence[1] < 0.1
    assert LOG_EVIDENCE - 0.25 < ours.elbo[0] < LOG_EVIDENCE + 4 * ours.elbo[1]
    assert result.diagnose().verdict == "good"


def test_nuts_finds_the_posterior(run):
    """1000 draws that depend on each other: it is near, not exact."""
    exact, _, (_, nuts, _), _, _ = run
    assert nuts.draws.shape == (1000, 10)
    for found, truth in ((nuts.mean, exact.mean), (nuts.sd, exact.sd)):
        assert np.all(np.abs(found - truth) < 0.4 * exact.sd)


def test_mean_field_reaches_its_optimum(run):
    exact, _, (_, _, mean_field), _, _ = run
    elbo, se = mean_field.elbo
    assert 0 < se < 0.03
    assert exact.log_evidence - elbo == pytest.approx(MEAN_FIELD_GAP, abs=0.05)
    assert np.all(np.abs(mean_field.mean[2:] - exact.mean[2:]) < 0.2 * exact.sd[2:])
    assert mean_field.sd[1] < 0.7 * exact.sd[1]  # of log_tau: far too narrow


def test_asvi_keeps_the_funnel_and_mean_field_does_not(run):
    exact, _, (ours, nuts, mean_field), _, _ = run
    rng = np.random.default_rng(0)
    at = rng.choice(len(exact.weight), 100_000, p=exact.weight)
    truth = replace(ours, draws=rng.normal(exact.means[at], exact.sds[at]))

    def widening(answer):
        away = np.abs(answer.draws[:, 2] - answer.draws[:, 2].mean())
        return np.corrcoef(away, answer.draws[:, 1])[0, 1]

    assert widening(truth) > 0.2
    assert widening(ours) == pytest.approx(widening(truth), abs=0.05)
    assert widening(nuts) == pytest.approx(widening(truth), abs=0.15)
    assert abs(widening(mean_field)) < 0.03


def test_the_worst_error_is_found(run):
    """An error put in is the one that is named, in exact standard deviations."""
    exact, _, (ours, _, _), _, _ = run
    right = replace(ours, mean=exact.mean, sd=exact.sd)
    assert schools.worst_error(right, exact)[0] == 0
    shift = np.eye(10)[5] * exact.sd
    wrong = replace(right, mean=exact.mean - 0.5 * shift)
    assert schools.worst_error(wrong, exact) == (pytest.approx(0.5), "mean of theta_4")
    wrong = replace(wrong, sd=exact.sd + 0.6 * np.eye(10)[1] * exact.sd)
    assert schools.worst_error(wrong, exact) == (pytest.approx(0.6), "sd of log_tau")


# ----------------------------------------------------------------------------- what it printed


def test_the_summary_and_the_verdict_are_printed(run):
    _, result, (ours, _, _), _, printed = run
    for i, site in enumerate(("mu", "log_tau", "theta[0]")):
        (row,) = re.findall(rf"^{re.escape(site)} +(\S+) +(\S+) +\S+ +\S+ +\S+$", printed, re.M)
        wanted = [ours.mean[i], ours.sd[i]]
        assert [float(x) for x in row] == pytest.approx(wanted, abs=0.01 * ours.sd[i])
    assert "… 7 more of theta: result.summary()" in printed
    evidence, se = ours.log_evidence
    assert f"log evidence {evidence:.2f} ± {se:.2f}     ELBO {ours.elbo[0]:.2f}" in printed
    assert f": {result.verdict}. " in printed
    assert 0 <= ours.seconds - result.seconds < 1


def test_the_table_prints_what_was_found(run):
    exact, _, answers, _, printed = run
    table = printed[printed.index("mean ± sd") :]

    def cells(name):
        (row,) = [line for line in table.splitlines() if line.startswith(f"{name:13}")]
        return re.split(r" {2,}", row[13:].strip())

    for i, site in enumerate(schools.SITES[:3]):
        for cell, found in zip(cells(site), (exact, *answers), strict=True):
            moments = [found.mean[i], found.sd[i]]
            assert [float(x) for x in cell.split("±")] == pytest.approx(moments, abs=0.0051)
    ours, nuts, mean_field = answers
    said = ["{:.3f} ± {:.3f}".format(*x) for x in (ours.log_evidence, ours.elbo, mean_field.elbo)]
    assert cells("log evidence") == [f"{LOG_EVIDENCE:.3f}", said[0], "-", "-"]
    assert cells("ELBO") == [said[1], "-", said[2]]
    assert [float(x) for x in cells("seconds")] == pytest.approx(
        [answer.seconds for answer in answers], abs=0.051
    )
    for cell, answer in zip(cells("worst error"), answers, strict=True):
        errors = np.abs([answer.mean - exact.mean, answer.sd - exact.sd]) / exact.sd
        assert cell == f"{errors.max():.3f} sd"
        assert schools.worst_error(answer, exact)[1] in table
    (ratio,) = re.findall(r"NUTS took (\S+) times as long as asvi.fit", printed)
    assert float(ratio) == pytest.approx(nuts.seconds / ours.seconds, abs=0.051)


def test_the_picture_is_there_and_not_blank(run):
    *_, picture, printed = run
    assert picture.name == "eight_schools.png"
    assert f"picture: {picture}" in printed
    image = matplotlib.image.imread(picture)[..., :3]
    assert min(image.shape[:2]) > 1000
    colors = np.unique((image[::4, ::4] * 15).round().reshape(-1, 3), axis=0)
    assert len(colors) > 20
    # Both answers are among the marginals above; each has a panel of its own below.
    height, width = (n // 2 for n in image.shape[:2])
    above, left, right = image[:height], image[height:, :width], image[height:, width:]

    def pixels(part, name):
        wanted = matplotlib.colors.to_rgb(schools.COLORS[name])
        return np.sum(np.abs(part - wanted).max(axis=-1) < 0.01)

    assert pixels(above, "asvi") > 1000 < pixels(above, "mean field")
    assert pixels(left, "asvi") > 1000 < pixels(right, "mean field")
    assert pixels(left, "mean field") == pixels(right, "asvi") == 0
