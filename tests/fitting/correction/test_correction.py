"""Draws that are corrected: moves leave their target as it is, and the default call is right."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

import asvi
from asvi.errors import AsviError
from asvi.fitting.correction.by_moves import correct_by_moves, more_moves
from asvi.fitting.correction.checks import Checks
from asvi.fitting.correction.mixing import mixing_of
from asvi.fitting.correction.settings import CorrectionSettings
from asvi.fitting.diagnostics.of_draws import rules_of_draws
from asvi.fitting.diagnostics.report import Verdict
from asvi.fitting.diagnostics.rules import fitting_rules
from asvi.fitting.diagnostics.settings import VerdictSettings
from asvi.fitting.particles import tempering
from asvi.fitting.particles.base import UnitNormal
from asvi.fitting.particles.moves import Kernel
from asvi.fitting.particles.settings import MoveSettings


class Known:
    """A target with a formula, (draws, numbers) to log density and slope."""

    work = 100.0

    def __init__(self, size, density):
        self.size = size
        slope = jax.jit(jax.vmap(jax.value_and_grad(density)))

        def run(noise):
            with jax.enable_x64(True):
                return [np.asarray(x, float) for x in slope(noise)]

        self.run = run

    def __call__(self, noise):
        return self.run(noise)

    def sites(self, noise):
        return {"x": noise}, np.zeros(len(noise))


def funnel(x):
    """Neal's, in ten numbers: the scale of nine is the exponential of the first."""
    scale = jnp.exp(x[0])
    first = -0.5 * (x[0] / 1.5) ** 2 - jnp.log(1.5)
    return first - 0.5 * jnp.sum((x[1:] / scale) ** 2) - 9 * x[0] - 5 * jnp.log(2 * jnp.pi)


def of_the_funnel(rng, count):
    first = 1.5 * rng.normal(size=(count, 1))
    return np.concatenate([first, np.exp(first) * rng.normal(size=(count, 9))], 1)


def test_moves_leave_their_target_as_it_is():
    rng = np.random.default_rng(0)
    kernel = Kernel(Known(10, funnel), rng, 0.7, UnitNormal(10))
    particles = kernel.at(of_the_funnel(rng, 4096))
    walls, kept = [], []
    for _ in range(12):
        moved = kernel(particles, 1.0)
        particles = moved.particles
        walls.append(moved.walls.mean())
        kept.append(particles.noise[:, 0].copy())
    last = np.concatenate(kept[-4:])
    assert abs(last.mean()) < 0.12
    assert abs(last.std() / 1.5 - 1) < 0.06
    assert 0.01 < np.mean(walls) < 0.5  # it has walls: what is tried is not easy


def test_second_tries_reach_what_long_steps_do_not():
    found = {}
    for rare in (0.0, 2.0):  # always, never
        rng, settings = np.random.default_rng(0), MoveSettings(min_wall_share=rare)
        kernel = Kernel(Known(10, funnel), rng, 0.7, UnitNormal(10), settings=settings)
        begin = of_the_funnel(rng, 2048)
        neck = begin[begin[:, 0] < -2.0][:128]
        particles, accepted = kernel.at(neck), []
        for _ in range(3):
            kernel.step = 0.7
            moved = kernel(particles, 1.0)
            particles = moved.particles
            accepted.append(moved.accepted.mean())
        found[rare] = np.mean(accepted)
    assert found[0.0] > 1.5 * found[2.0]


def test_temperatures_lead_to_a_target_far_away():
    def two(x):  # two hills, one with a quarter of the mass
        hills = jnp.array([-0.5 * (x[0] - 3) ** 2, -0.5 * (x[0] + 2) ** 2 - jnp.log(3.0)])
        return 5.0 + jax.nn.logsumexp(hills) + jnp.log(3 / 4) - 0.5 * jnp.log(2 * jnp.pi)

    found = correct_by_moves(Known(1, two), CorrectionSettings(), np.random.default_rng(1))
    x = found.pool.flat()["x"][:, 0]
    assert found.checks.temperatures > 1
    assert abs(np.mean(x < 0) - 0.25) < 0.06
    assert abs(found.log_evidence - 5.0) < 4 * found.log_evidence_se + 0.02
    assert found.log_evidence_se < 0.1


def test_islands_never_meet():
    rng = np.random.default_rng(0)
    weights = np.concatenate([np.zeros(32), np.full(32, 1000.0)])  # all of it in the second
    index = tempering._resample_islands(weights, 2, rng)
    assert np.array_equal(index // 32, np.repeat([0, 1], 32))


def test_mixing_sees_islands_that_disagree():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(10, 320, 2))
    draws[:, :20, 1] += 1.5  # one island of sixteen
    found = mixing_of(draws, np.full(16, 1 / 16))
    assert found.r_hat[0] < 1.01 < 1.05 < found.r_hat[1]
    assert found.mean_error[1] > 3 * found.mean_error[0]


def test_the_error_of_a_mean_is_that_of_many_runs():
    means, said = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(1, 320, 1))
        draws = [x[0]]
        for _ in range(19):  # an autoregression
            draws.append(0.8 * draws[-1] + 0.6 * rng.normal(size=(320, 1)))
        draws = np.stack(draws)
        means.append(draws.mean())
        said.append(mixing_of(draws, np.full(16, 1 / 16)).mean_error[0])
    assert 0.7 < np.mean(said) / np.std(means) < 1.6


# ------------------------------------------------------------------------------- the default call


@pytest.fixture(scope="module")
def schools():
    """With errors that weights do not reach."""
    task = asvi.tasks.get("eight-schools")
    return task, asvi.fit(task.model, *task.args, progress_bar=False, max_error=0.02)


def test_the_default_is_right_on_eight_schools():
    task = asvi.tasks.get("eight-schools")
    is_right(task, asvi.fit(task.model, *task.args, progress_bar=False))


def test_moves_are_right_on_eight_schools(schools):
    task, result = schools
    is_right(task, result)
    report = result.diagnose()
    assert report.r_hat < 1.01
    assert "R-hat" in str(report)
    assert result.correction.rung == "moves"
    assert "particles, moved" in str(report)


def is_right(task, result):
    for name, mean in task.moments.mean.items():
        sd = np.asarray(task.moments.sd[name])
        assert np.max(np.abs(result.posterior.mean()[name] - mean) / sd) < 0.1
        assert np.max(np.abs(result.posterior.sd()[name] / sd - 1)) < 0.1
    assert abs(result.log_evidence - task.log_evidence) < min(0.1, 4 * result.log_evidence_se)
    assert result.diagnose().verdict == "good"
    assert result.elbo < result.log_evidence


def test_densities_of_the_draws_are_numpyros(schools):
    task, result = schools
    data = result.to_arviz(num_samples=40)
    draws, stats = data["posterior"], data["sample_stats"]
    for chain, draw in ((0, 0), (1, 3), (3, 9)):
        at = {n: jnp.asarray(draws[n].values[chain, draw]) for n in ("mu", "log_tau", "theta")}
        wanted = float(log_density(task.model, task.args, task.kwargs, at)[0])
        assert abs(float(stats["lp"].values[chain, draw]) - wanted) < 1e-3
        own = float(result.guide.log_prob({n: x[None] for n, x in at.items()})[0])
        assert abs(float(stats["log_q"].values[chain, draw]) - own) < 1e-3


def test_no_draw_is_given_twice_and_more_can_be_made(schools):
    result = schools[1]
    had = len(result.correction.pool)
    before = result.posterior.sample(jax.random.key(1), (100,))["mu"]
    draws = np.asarray(result.posterior.sample(jax.random.key(1), (had + 1000,))["theta"])
    assert draws.shape == (had + 1000, 8)
    assert len(np.unique(draws[:, 0])) > 0.7 * len(draws)  # a refused move stays where it is
    assert len(result.correction.pool) == had  # of which moments are
    again = result.posterior.sample(jax.random.key(1), (100,))["mu"]
    assert jnp.array_equal(before, again)
    assert jnp.array_equal(again, result.posterior.sample(jax.random.key(1), (100,))["mu"])
    assert not jnp.array_equal(again, result.posterior.sample(jax.random.key(2), (100,))["mu"])


def test_it_is_saved_with_its_draws(schools, tmp_path):
    task, result = schools
    result.save(tmp_path / "fit.asvi")
    loaded = asvi.load(tmp_path / "fit.asvi", task.model)
    np.testing.assert_allclose(
        loaded.posterior.mean()["mu"], result.posterior.mean()["mu"], rtol=1e-5
    )
    assert loaded.log_evidence == result.log_evidence
    assert str(loaded.diagnose()) == str(result.diagnose())
    assert loaded.posterior.sample(jax.random.key(0), (10,))["theta"].shape == (10, 8)
    with pytest.raises(AsviError, match="loaded from a file"):
        loaded.refine()


def test_what_has_no_density_says_who_has(schools):
    result = schools[1]
    draws = result.guide.sample(jax.random.key(0), (3,))
    assert result.guide.log_prob(draws).shape == (3,)
    with pytest.raises(AsviError, match=r"result\.guide\.log_prob"):
        result.posterior.log_prob(draws)
    with pytest.raises(AsviError, match=r"result\.guide\.elbo"):
        result.posterior.elbo(jax.random.key(0))


def test_the_same_key_gives_the_same_draws():
    task = asvi.tasks.get("eight-schools")
    key = jax.random.key(3)
    first, again, other = (
        asvi.fit(task.model, *task.args, rng_key=k, progress_bar=False).posterior.mean()["theta"]
        for k in (key, key, jax.random.key(4))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_a_smaller_error_is_met_by_more_draws(schools):
    result = schools[1]
    finer = result.refine(max_error=0.01)
    assert 2 * finer.correction.checks.mean_error <= 0.01
    assert len(finer.correction.pool) > 2 * len(result.correction.pool)
    assert finer.diagnose().verdict == "good"
    assert result.correction.max_error == 0.02


def test_quick_ends_with_weights():
    task = asvi.tasks.get("brownian-global")
    result = asvi.fit(task.model, *task.args, effort="quick", progress_bar=False)
    assert result.correction.rung == "weights"
    assert result.correction.checks.moves == 0
    assert result.refine().correction.rung == "moves"


def linear(x, y):
    a = numpyro.sample("a", dist.Normal(0.0, 10.0))
    b = numpyro.sample("b", dist.Normal(0.0, 10.0))
    numpyro.deterministic("at_one", a + b)
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(a + b * x, 1.0), obs=y)


def test_a_gaussian_posterior_needs_no_moves():
    x = np.linspace(-1, 1, 20)
    result = asvi.fit(linear, x, 1 + 2 * x, progress_bar=False)
    assert result.correction.rung == "weights"
    found = result.posterior.sample(jax.random.key(0), (3000,))
    np.testing.assert_allclose(found["at_one"], found["a"] + found["b"], rtol=1e-4, atol=1e-4)
    assert abs(found["at_one"].mean() - 3.0) < 0.05
    more = result.posterior.sample(jax.random.key(0), (20_000,))["a"]
    assert len(np.unique(more)) > 15_000


def test_a_number_without_moments_is_not_called_good():
    def model():
        numpyro.sample("x", dist.Cauchy(0.0, 1.0))

    result = asvi.fit(model, progress_bar=False)
    report = result.diagnose()
    assert report.verdict != "good"
    assert any("'x'" in reason for reason in report.reasons)
    low, high = result.posterior.quantiles((0.25, 0.75))["x"]
    assert abs(low + 1) < 0.15
    assert abs(high - 1) < 0.15


def test_a_deterministic_site_that_is_not_finite_is_no_obstacle():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.deterministic("root", jnp.sqrt(mu))  # NaN below 0
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    result = asvi.fit(model, 0.3, progress_bar=False)
    assert result.diagnose().verdict == "good"
    assert np.isnan(result.posterior.sample(jax.random.key(0), (500,))["root"]).any()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"effort": "slow"}, "'thorough'"), ({"max_error": 0.0}, "max_error=0.05")],
)
def test_options_that_mean_nothing_are_named(options, said):
    with pytest.raises(AsviError, match=said):
        asvi.fit(linear, np.zeros(2), np.zeros(2), **options)


def test_an_interrupt_gives_the_draws_so_far(monkeypatch):
    move, calls = Kernel.__call__, []

    def stopping(kernel, particles, beta):
        if len(particles) > 64:  # no scouts
            calls.append(1)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return move(kernel, particles, beta)

    monkeypatch.setattr(Kernel, "__call__", stopping)
    task = asvi.tasks.get("eight-schools")
    result = asvi.fit(task.model, *task.args, progress_bar=False, max_error=0.02)
    assert result.diagnose().verdict != "good"
    assert "interrupted" in str(result)
    assert abs(result.posterior.mean()["mu"] - task.moments.mean["mu"]) < 2.0


FINE = {
    "mean_error": 0.01,
    "mean_error_of": "a",
    "sd_error": 0.01,
    "sd_error_of": "a",
    "effective_draws": 4000.0,
    "effective_draws_of": "a",
    "r_hat": 1.001,
    "r_hat_of": "a",
    "moves": 16,
}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "good"),
        ({"mean_error": 0.03}, "usable"),
        ({"sd_error": 0.1}, "usable"),
        ({"r_hat": 1.02}, "usable"),
        ({"r_hat": 1.1}, "bad"),
        ({"drift": 5.0, "drift_of": "a"}, "usable"),
        ({"walls": 0.05}, "usable"),
        ({"walls": 0.3}, "bad"),
        ({"moves": 0, "r_hat": None, "k_hat": 1.25}, "bad"),
        ({"moves": 0, "r_hat": None, "k_hat": 0.6}, "usable"),
        ({"temperatures": 60}, "bad"),
    ],
)
def test_the_verdict_uses_all_there_is(changes, verdict):
    checks = Checks(**(FINE | changes))
    found = {r.verdict for r in fitting_rules(rules_of_draws(VerdictSettings(), 0.05), checks)}
    assert (
        "bad"
        if Verdict.NOT_TRUSTWORTHY in found
        else "usable"
        if Verdict.USABLE in found
        else "good"
    ) == verdict


@pytest.mark.parametrize(
    ("off", "moves"), [(0.9, 32), (1.0, 32), (1.05, 27), (1.2, 32), (2.0, 32), (np.nan, 32)]
)
def test_moves_go_on_as_far_as_errors_say(off, moves):
    """0.9 of what was asked for, and not done: it is a drift that has not settled."""
    checks = Checks(0.025 * off, "x", 0.0, "x", 100.0, "x", moves=16)
    assert more_moves(checks, CorrectionSettings(max_error=0.05)) == moves
