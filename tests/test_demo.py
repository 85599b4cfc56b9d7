"""`examples/eight_schools.py`: what it prints is what it found, and what it found is right."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console

SCRIPT = Path(__file__).parents[1] / "examples" / "eight_schools.py"
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
    """The demonstration with few steps, and what it printed."""
    screen = io.StringIO()
    out = tmp_path_factory.mktemp("demo") / "not_yet_there"
    demo = schools.main(out, steps=1500, console=Console(file=screen, width=120))
    return demo, screen.getvalue()


def normal_log_density(x, mean, sd):
    return -(((x - mean) / sd) ** 2) / 2 - np.log(sd) - np.log(2 * np.pi) / 2


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
    for site, x in (("mu", mu), ("log_tau", log_tau)):
        mean = np.sum(joint * x)
        sd = np.sqrt(np.sum(joint * (x - mean) ** 2))
        assert exact.moments(site) == pytest.approx((mean, sd), abs=1e-5)


def test_theta_given_tau_agrees_with_the_joint_gaussian():
    """At one tau: mu, theta and y are jointly Gaussian; condition on y with matrices."""
    exact = schools.exact_posterior()
    i = 2000
    spread = np.diag(np.full(8, np.exp(2 * exact.log_tau[i])))
    theta_cov = 100.0 + spread
    gain = theta_cov @ np.linalg.inv(theta_cov + np.diag(schools.SIGMA**2))
    mean, cov = gain @ schools.Y, theta_cov - gain @ theta_cov
    for school in range(8):
        name = f"theta_{school + 1}"
        assert exact.mean[name][i] == pytest.approx(mean[school])
        assert exact.sd[name][i] == pytest.approx(np.sqrt(cov[school, school]))


def test_without_data_the_quadrature_gives_the_prior():
    prior = schools.exact_posterior(y=np.zeros(0))
    assert prior.log_evidence == pytest.approx(0.0, abs=1e-8)
    assert prior.moments("mu") == pytest.approx((0.0, 10.0))
    assert prior.moments("log_tau") == pytest.approx((5.0, 1.0))
    assert prior.moments("theta_1")[1] ** 2 == pytest.approx(100 + np.exp(12), rel=1e-3)


@pytest.mark.parametrize("site", ["mu", "log_tau", "theta_1", "theta_8"])
def test_densities_have_mass_one_and_the_moments_said(site):
    exact = schools.exact_posterior()
    x = np.linspace(-80.0, 120.0, 8001)
    mass = exact.density(site, x) * (x[1] - x[0])
    mean = np.sum(mass * x)
    found = mean, np.sqrt(np.sum(mass * (x - mean) ** 2))
    assert mass.sum() == pytest.approx(1.0, abs=1e-4)
    assert exact.moments(site) == pytest.approx(found, rel=1e-3)


def test_joint_density_gives_the_marginal():
    exact = schools.exact_posterior()
    x, log_tau = np.linspace(-80.0, 120.0, 401), np.linspace(-3.0, 7.0, 401)
    joint = exact.joint("theta_1", x, log_tau)
    along = joint.sum(axis=0) * (log_tau[1] - log_tau[0])
    np.testing.assert_allclose(along, exact.density("theta_1", x), atol=1e-5)


def test_levels_enclose_their_mass():
    x = np.linspace(-6.0, 6.0, 401)
    density = np.exp(-(x[:, None] ** 2 + x**2) / 2)
    radius_of_half = np.sqrt(2 * np.log(2))  # of a two-dimensional standard normal
    (level,) = schools.levels_of_mass(density, (0.5,))
    assert level == pytest.approx(np.exp(-(radius_of_half**2) / 2), rel=0.01)


def test_no_elbo_exceeds_the_log_evidence(run):
    demo, _ = run
    for fit in demo.fits:
        assert np.isfinite(fit.elbo)
        assert 0 < fit.elbo_se < 1
        assert fit.elbo < demo.exact.log_evidence + 4 * fit.elbo_se


def test_mean_field_reaches_its_optimum(run):
    demo, _ = run
    mean_field = demo.fits[1]
    gap = demo.exact.log_evidence - mean_field.elbo
    assert gap == pytest.approx(MEAN_FIELD_GAP, abs=0.05)
    for site in ("mu", "theta_1", "theta_5"):
        mean, sd = demo.exact.moments(site)
        assert mean_field.draws[site].mean() == pytest.approx(mean, abs=0.2 * sd)


def test_the_structured_guide_keeps_the_funnel_and_mean_field_does_not(run):
    demo, _ = run
    widening = {}
    for fit in demo.fits:
        away = np.abs(fit.draws["theta_1"] - fit.draws["theta_1"].mean())
        widening[fit.name] = np.corrcoef(away, fit.draws["log_tau"])[0, 1]
    assert abs(widening["mean field"]) < 0.03
    assert widening["ASVI"] > 0.05


def test_tables_print_what_was_found(run):
    demo, printed = run
    for site in schools.SITES:
        (row,) = [line for line in printed.splitlines() if f"│ {site} " in line]
        cells = [cell.strip() for cell in row.split("│")[2:-1]]
        found = [demo.exact.moments(site)]
        found += [(fit.draws[site].mean(), fit.draws[site].std()) for fit in demo.fits]
        for cell, moments in zip(cells, found, strict=True):
            assert [float(x) for x in cell.split("±")] == pytest.approx(moments, abs=0.006)
    for fit in demo.fits:
        assert f"{fit.elbo:.3f} ± {fit.elbo_se:.3f}" in printed
        assert f"{demo.exact.log_evidence - fit.elbo:.3f}" in printed
    assert f"{LOG_EVIDENCE:.3f}" in printed


def test_the_picture_is_there_and_not_blank(run):
    demo, printed = run
    assert demo.picture.name == "eight_schools.png"
    assert demo.picture.name in printed.replace("\n", "")
    picture = matplotlib.image.imread(demo.picture)[..., :3]
    assert min(picture.shape[:2]) > 1000
    assert len(np.unique((picture[::4, ::4] * 15).round().reshape(-1, 3), axis=0)) > 20
