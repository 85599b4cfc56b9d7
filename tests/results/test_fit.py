"""`asvi.fit` through its public face: results, repetition, checkpoints, files, bad input."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.distributions import constraints
from numpyro.infer import MCMC, NUTS

import asvi
from asvi.errors import AsviError, ModelError, SiteError
from asvi.fitting.archive import read_file, write_file
from asvi.fitting.diagnostics.guide_verdict import GuideMeasures, verdict_of_guide
from asvi.fitting.training import checkpoint, schedule
from asvi.program.compiling import forget_programs
from tests.support.marks import every

# One worker, so that the fits that these tests share are made once.
pytestmark = pytest.mark.xdist_group("test_fit")

# The smallest family: what is tested here is the same for all, and it compiles sooner.
QUICK = {
    "progress_bar": False,
    "training": asvi.Training(num_steps=1500),
    "family": asvi.families.ConvexUpdate(),
}


def trained_by(optimizer, num_steps=1500):
    return {"training": asvi.Training(num_steps=num_steps, optimizer=optimizer)}


def normal_model(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    with numpyro.plate("n", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def groups_model(x, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    with numpyro.plate("group", 6):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.deterministic("double", 2 * theta)
        numpyro.sample("y", dist.Normal(theta + x, 1.0), obs=y)


X = np.linspace(-1, 1, 6).astype(np.float32)
Y = np.array([1.0, 2.5, 0.3, 4.0, 2.2, 3.1], np.float32)


def exact_normal(y):
    n, var = len(y), 1 / (1 / 100 + len(y))
    mean = var * np.sum(y)
    cov = np.eye(n) + 100 * np.ones((n, n))
    _sign, logdet = np.linalg.slogdet(2 * np.pi * cov)
    return mean, var**0.5, -0.5 * (logdet + y @ np.linalg.solve(cov, y))


@pytest.fixture(scope="module")
def groups():
    # The convex update has two optima here; from this key the better one is found.
    key = jax.random.key(1)
    return asvi.fit(
        groups_model, X, y=Y, **{**QUICK, "training": asvi.Training(num_steps=4000)}, rng_key=key
    )


# -------------------------------------------------------------------------------------- results


def test_a_conjugate_model_is_fitted_exactly():
    y = np.array([1.0, 2.0, 3.0, 2.5], np.float32)
    result = asvi.fit(normal_model, y, progress_bar=False)
    mean, sd, evidence = exact_normal(y.astype(float))
    assert result.converged
    assert abs(result.elbo - evidence) < 1e-3
    assert abs(result.posterior.mean()["mu"] - mean) < 0.05 * sd * 2
    assert abs(result.posterior.sd()["mu"] - sd) < 0.05 * sd
    report = result.diagnose()
    assert report.verdict == "good"
    assert report.k_hat < 0.3
    assert ": good. " in str(result)


def test_the_same_key_gives_the_same_result_and_another_key_another():
    a, b = (asvi.fit(normal_model, Y, rng_key=jax.random.key(3), **QUICK) for _ in range(2))
    c = asvi.fit(normal_model, Y, rng_key=jax.random.key(4), **QUICK)
    assert a.elbo == b.elbo
    assert all(np.array_equal(a.params[k], b.params[k]) for k in a.params)
    assert any(not np.array_equal(a.params[k], c.params[k]) for k in a.params)


COMPILED: list[str] = []


@pytest.fixture
def compiled():
    """Names of the programs that are compiled from here on."""

    def listen(event, _seconds, **about):
        if event.endswith("backend_compile_duration"):
            COMPILED.append(about.get("fun_name", "?"))

    if not COMPILED:  # once: listeners stay
        jax.monitoring.register_event_duration_secs_listener(listen)
    COMPILED[:] = ["listening"]
    return COMPILED


def test_the_first_look_at_a_small_model_compiles_nothing(compiled):
    forget_programs()
    for shift in (0.0, 1.0):
        found = asvi.fit(normal_model, Y + shift, progress_bar=False)
        assert compiled == ["listening"]
        assert abs(found.elbo - exact_normal(Y.astype(float) + shift)[2]) < 0.01


@pytest.mark.parametrize("family", [asvi.families.Coupled(), asvi.families.ConvexUpdate()])
def test_new_data_of_the_same_shape_compile_nothing(family, compiled):
    forget_programs()
    asvi.fit(normal_model, Y, **{**QUICK, "family": family})
    assert len(compiled) > 1
    compiled[:] = ["listening"]
    again = asvi.fit(normal_model, Y + 1, **{**QUICK, "family": family})
    assert compiled == ["listening"]
    assert abs(again.posterior.mean()["mu"] - exact_normal(Y.astype(float) + 1)[0]) < 0.1


@pytest.mark.parametrize(
    "rows",
    [
        lambda y: y[y > 1],
        lambda y: y[: int(y.max())],
        lambda y: y * [1.0, 2.0, 3.0][y.astype(int)[0]],
        lambda y: y[~np.isnan(y)],
    ],
    ids=["mask", "length", "lookup", "numpy"],
)
def test_a_model_may_look_at_the_values_of_its_data(rows):
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=rows(y))

    guide = asvi.AutoASVI(model)
    svi = numpyro.infer.SVI(model, guide, optax.adam(0.1), asvi.ELBO())
    assert np.isfinite(svi.evaluate(svi.init(jax.random.key(0), Y), Y))
    result = asvi.fit(
        model, Y, **{**QUICK, "training": asvi.Training(num_steps=250, num_restarts=2)}
    )
    assert np.isfinite(result.elbo)


def test_new_data_are_checked_by_the_program_that_was_kept(compiled):
    asvi.fit(normal_model, Y, **QUICK)
    compiled[:] = ["listening"]
    bad = Y.copy()
    bad[2] = np.nan
    with pytest.raises(SiteError, match=r"site 'y'.*NaN or infinite"):
        asvi.fit(normal_model, bad, **QUICK)
    assert compiled == ["listening"]


def test_a_location_is_measured_in_its_priors_scale():
    """Adam moves a number by about the learning rate: 5,000 would take 100,000 steps of 0.05."""

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 10_000.0))
        numpyro.sample("y", dist.Normal(mu, 10.0).expand([6]).to_event(1), obs=y)

    family = asvi.families.MeanField()
    result = asvi.fit(model, Y + 5000, family=family, progress_bar=False)
    assert result.problem.prior_scales["mu"] == 10_000
    assert abs(result.posterior.mean()["mu"] - (Y + 5000).mean()) < 4.0  # a standard deviation


def test_an_optimiser_of_the_users_own():
    class Counting:
        """Plain gradient descent that knows how often it was traced."""

        traced = 0

        def init(self, params):
            return optax.EmptyState()

        def update(self, gradient, state, params=None):
            Counting.traced += 1
            return -0.01 * gradient, state

    result = asvi.fit(normal_model, Y, **QUICK | trained_by(Counting()))
    assert Counting.traced > 0
    ours = asvi.fit(normal_model, Y, **QUICK)
    assert abs(result.elbo - ours.elbo) < 0.05
    with pytest.raises(AsviError, match=r"one of optax or numpyro\.optim, got str"):
        asvi.fit(normal_model, Y, **QUICK | trained_by("adam"))


def test_a_checkpoint_of_another_optimiser_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    asvi.fit(normal_model, Y, checkpoint=path, **QUICK | trained_by(optax.sgd(0.01), 500))
    with pytest.raises(AsviError, match="optimizer"):
        asvi.fit(normal_model, Y, checkpoint=path, **QUICK | trained_by(None, 500))


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [1, 3])
def test_few_restarts(restarts):
    _mean, _sd, evidence = exact_normal(Y)
    training = asvi.Training(num_restarts=restarts, num_steps=3000)
    result = asvi.fit(normal_model, Y, **QUICK | {"training": training})
    assert result.run.lanes == restarts
    assert result.run.lanes_after_race == 1
    assert "as asked for" in result.family_reason
    assert abs(result.elbo - evidence) < 0.05


def test_a_model_whose_python_looks_at_the_data():
    def model(y, seen):
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        for i in range(len(y)):
            if seen[i]:
                numpyro.sample(f"y{i}", dist.Normal(mu, 1.0), obs=y[i])

    y, seen = np.array([1.0, 99.0, 3.0], np.float32), np.array([True, False, True])
    result = asvi.fit(model, y, seen, progress_bar=False)
    assert abs(result.posterior.mean()["mu"] - exact_normal(np.array([1.0, 3.0]))[0]) < 0.1


def test_parameters_of_the_model_are_learned():
    def model(y):
        scale = numpyro.param("scale", 5.0, constraint=dist.constraints.positive)
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        with numpyro.plate("n", len(y)):
            numpyro.sample("y", dist.Normal(mu, scale), obs=y)

    y = np.asarray(np.random.default_rng(0).normal(3.0, 0.5, 200), np.float32)
    result = asvi.fit(model, y, progress_bar=False)
    assert abs(float(result.params["scale"]) - y.std()) < 0.05


@pytest.mark.parametrize(
    "family", every(2, [asvi.families.MeanField(), asvi.families.baselines.MultivariateNormal()])
)
def test_other_families_through_the_same_call(family):
    result = asvi.fit(
        groups_model,
        X,
        y=Y,
        family=family,
        progress_bar=False,
        training=asvi.Training(num_steps=2000, num_restarts=2),
    )
    draws = result.posterior.sample(jax.random.key(0), (7, 3))
    assert draws["theta"].shape == (7, 3, 6)
    log_prob = result.posterior.log_prob(draws)
    assert log_prob.shape == (7, 3)
    assert np.isfinite(log_prob).all()
    missed = set(result.explain().missed)
    if isinstance(family, asvi.families.MeanField):
        assert ("mu", "theta") in missed
    else:
        assert not missed


# ------------------------------------------------------------------------------------ posterior


def test_draws_densities_and_moments(groups):
    posterior = groups.posterior
    draws, log_q = posterior.draw(jax.random.key(1), (200,))
    assert draws["double"].shape == (200, 6)
    np.testing.assert_allclose(draws["double"], 2 * draws["theta"], rtol=1e-5)
    np.testing.assert_allclose(posterior.log_prob(draws), log_q, rtol=1e-4, atol=1e-3)
    # E_q[log p - log q] is the ELBO.
    many, log_q = posterior.draw(jax.random.key(2), (4000,))
    ratios = np.asarray(posterior.model_log_prob(many) - log_q)
    assert abs(ratios.mean() - groups.elbo) < 5 * ratios.std() / 4000**0.5 + 5 * groups.elbo_se
    low, mid, high = posterior.quantiles((0.05, 0.5, 0.95))["tau"]
    assert 0 < low < mid < high


@pytest.mark.slow
def test_resampling_moves_towards_the_exact_posterior(groups):
    """Against long NUTS: the sd of tau is better after resampling."""
    mcmc = MCMC(NUTS(groups_model), num_warmup=1000, num_samples=4000, progress_bar=False)
    mcmc.run(jax.random.key(0), X, y=Y)
    exact = np.asarray(mcmc.get_samples()["tau"])
    plain = np.asarray(groups.posterior.sample(jax.random.key(1), (4000,))["tau"])
    better = np.asarray(
        groups.posterior.resample(jax.random.key(1), 4000, num_proposals=20_000)["tau"]
    )
    assert abs(better.mean() - exact.mean()) < abs(plain.mean() - exact.mean()) + 0.05
    assert abs(better.std() - exact.std()) < abs(plain.std() - exact.std()) + 0.02


def test_nuts_starts_from_the_fit(groups):
    init = groups.posterior.nuts_init()
    kernel = NUTS(groups_model, inverse_mass_matrix=init["inverse_mass_matrix"])
    mcmc = MCMC(kernel, num_warmup=100, num_samples=100, progress_bar=False)
    mcmc.run(jax.random.key(0), X, y=Y, init_params=init["init_params"])
    assert np.isfinite(mcmc.get_samples()["theta"]).all()
    assert mcmc.get_extra_fields()["diverging"].mean() < 0.3


def supports(y):
    """Bounded sites, one of them by another, a simplex, an ordered vector without a density."""
    top = numpyro.sample("top", dist.Uniform(1.0, 10.0))
    below = numpyro.sample("below", dist.Uniform(0.0, top))
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    rising = dist.ImproperUniform(constraints.positive_ordered_vector, (), (3,))
    mean = below + share + numpyro.sample("rising", rising)
    numpyro.sample("y", dist.Normal(mean, 0.5).to_event(1), obs=y)


@pytest.mark.slow
def test_nuts_starts_from_a_fit_of_bounded_sites():
    y = jnp.array([2.0, 3.0, 2.5])
    posterior = asvi.fit(supports, y, progress_bar=False).posterior
    init = posterior.nuts_init()
    assert np.all(np.asarray(init["inverse_mass_matrix"]) > 0)
    kernel = NUTS(supports, inverse_mass_matrix=init["inverse_mass_matrix"])
    mcmc = MCMC(kernel, num_warmup=100, num_samples=300, progress_bar=False)
    mcmc.run(jax.random.key(0), y, init_params=init["init_params"])
    found, sd = mcmc.get_samples(), posterior.sd()
    for name in ("top", "below", "share", "rising"):
        off = np.abs(np.mean(np.asarray(found[name]), 0) - posterior.mean()[name])
        assert np.all(off < 0.5 * sd[name]), name


def test_predictions_at_the_data_and_elsewhere(groups):
    here = groups.posterior.predictive(jax.random.key(0), num_samples=300)
    assert here["y"].shape == (300, 6)
    moved = groups.posterior.predictive(jax.random.key(0), X + 100, num_samples=300)
    assert abs(np.mean(moved["y"]) - np.mean(here["y"]) - 100) < 1.0
    assert np.std(here["y"]) > 1.0


def test_arviz_has_all_groups_and_plate_names(groups):
    data = groups.to_arviz(num_samples=50)
    for group in (
        "posterior",
        "prior",
        "observed_data",
        "posterior_predictive",
        "log_likelihood",
        "sample_stats",
    ):
        assert group in list(
            data.groups() if callable(data.groups) else [g[1:] for g in data.groups]
        )
    assert data["posterior"]["theta"].dims == ("chain", "draw", "group")
    assert data["log_likelihood"]["y"].shape == (4, 13, 6)
    np.testing.assert_array_equal(data["observed_data"]["y"], Y)


def test_missing_draws_are_named(groups):
    draws = groups.posterior.sample(jax.random.key(0), (5,))
    with pytest.raises(AsviError, match="lack tau"):
        groups.posterior.log_prob({k: v for k, v in draws.items() if k != "tau"})
    with pytest.raises(AsviError, match="site 'theta': the draws given have shape"):
        groups.posterior.log_prob({**draws, "theta": draws["theta"][:, :3]})


# ---------------------------------------------------------------------------- diagnosis, reading


def test_explanation_names_what_is_missed(groups):
    told = groups.explain()
    assert told.missed == (("mu", "tau"),)
    assert ("tau", "theta") in told.represented
    row = next(r for r in told.rows if r.name == "theta")
    assert row.parents == ("mu", "tau")
    assert set(row.prior_weights) == {"loc", "scale"}
    assert 0.05 < row.prior_weights["loc"] < 0.95


def test_members_of_a_subsampled_plate_are_not_mixed_up():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        with numpyro.plate("group", 6, subsample_size=2) as rows:
            theta = numpyro.sample("theta", dist.Normal(mu, 1.0))
            numpyro.sample("y", dist.Normal(theta, 1.0), obs=y[rows])

    family = asvi.families.ConvexUpdate()
    y = jnp.arange(6.0)
    result = asvi.fit(
        model,
        y,
        family=family,
        progress_bar=False,
        training=asvi.Training(num_steps=250, num_restarts=2),
    )
    told = str(result)
    assert "theta: a random 2 of 6 in each draw" in told
    assert "theta[0]" not in told
    with pytest.warns(UserWarning, match="theta, y: in a subsampled plate"):
        data = result.to_arviz(num_samples=20)
    assert set(data.posterior.data_vars) == {"mu"}
    assert "sample_stats" in data


def test_a_run_stopped_early_is_not_trusted():
    task = asvi.tasks.get("eight-schools")
    family = asvi.families.ConvexUpdate()
    result = asvi.fit(
        task.model,
        *task.args,
        family=family,
        progress_bar=False,
        training=asvi.Training(num_steps=250, num_restarts=2),
    )
    report = result.diagnose()
    assert not result.converged
    assert report.verdict == "not trustworthy"
    assert "run longer" in report.advice
    assert not report.ok


# ------------------------------------------------------------------------- interrupted, resumed


def test_ctrl_c_returns_the_best_so_far(monkeypatch, no_first_look):
    step = schedule.step_chunk
    calls = []

    def stopping(*args):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return step(*args)

    monkeypatch.setattr("asvi.fitting.training.run.step_chunk", stopping)
    result = asvi.fit(normal_model, Y, progress_bar=False)
    assert result.num_steps == 3 * 250
    assert "interrupted" in result.message
    assert not result.converged
    assert np.isfinite(result.elbo)


PROGRAM = """
import os, signal, sys
import jax, numpy as np
sys.path.insert(0, {root!r})
import asvi
from tests.results.test_fit import QUICK, X, Y, groups_model
from functools import partial
from asvi.fitting.training import run
from asvi.fitting.training.checkpoint import Checkpoint
save = Checkpoint.save
def at_once(self, state):
    self._written_at = float("-inf")
    save(self, state)
Checkpoint.save = at_once
step, calls = run.step_chunk, []
def stopping(*args):
    calls.append(1)
    if len(calls) == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(*args)
run.step_chunk = stopping
asvi.fit(groups_model, X, y=Y, rng_key=5, checkpoint={path!r},
         **{{**QUICK, "training": asvi.Training(num_steps=2500)}})
"""


def test_a_killed_run_goes_on_to_the_same_result(tmp_path):
    path = str(tmp_path / "run.ckpt")
    program = PROGRAM.format(root=str(Path(__file__).parents[2]), path=path)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    settings = {**QUICK, "training": asvi.Training(num_steps=2500)}
    whole = asvi.fit(groups_model, X, y=Y, rng_key=jax.random.key(5), **settings)
    again = {**settings, "checkpoint": path, "rng_key": 5}
    resumed = asvi.fit(groups_model, X, y=Y, **again)
    assert resumed.elbo == whole.elbo
    assert all(np.array_equal(resumed.params[k], whole.params[k]) for k in whole.params)
    with pytest.raises(AsviError, match=r"run: model and data(?s:.*)left untouched"):
        asvi.fit(groups_model, X, y=Y + 1, **again)

    header, arrays = read_file(path, checkpoint.KIND)  # as a version with other arrays wrote it
    header["problem"]["version of asvi"] = []
    write_file(path, header, {name: x for name, x in arrays.items() if name != "limit"})
    with pytest.raises(AsviError, match="belongs to another run: version of asvi"):
        asvi.fit(groups_model, X, y=Y, **again)


# ---------------------------------------------------------------------------------------- files


def test_a_family_is_read_by_the_names_that_its_arguments_had(tmp_path):
    """``blocks`` of a structured normal was ``cells``."""
    path = tmp_path / "fit.asvi"
    family = asvi.families.StructuredNormal(blocks=False)
    fitted = asvi.fit(normal_model, Y, family=family, progress_bar=False)
    fitted.save(path)
    header, arrays = read_file(path, "an asvi fit")
    assert header["family"]["settings"] == {"blocks": False}
    header["family"]["settings"] = {"cells": False}
    write_file(path, header, arrays)
    loaded = asvi.load(path, normal_model)
    assert loaded.problem.family == family
    assert loaded.elbo == fitted.elbo


def test_an_old_checkpoint_is_refused_in_words(tmp_path):
    path = tmp_path / "run.ckpt"
    asvi.fit(
        normal_model, Y, checkpoint=path, **{**QUICK, "training": asvi.Training(num_steps=500)}
    )
    header, arrays = read_file(path, checkpoint.KIND)
    header["plan"]["lanes"] = header["plan"].pop("restarts")
    header["problem"]["version of asvi"] = []
    write_file(path, header, arrays)
    with (
        pytest.warns(FutureWarning, match="resume"),
        pytest.raises(AsviError, match="another run: version of asvi differ"),
    ):
        asvi.resume(path, normal_model, Y)
    with pytest.raises(AsviError, match="another run: version of asvi differ"):
        asvi.fit(
            normal_model, Y, checkpoint=path, **{**QUICK, "training": asvi.Training(num_steps=500)}
        )


def test_a_saved_fit_draws_without_the_data(groups, tmp_path):
    path = tmp_path / "fit.asvi"
    groups.save(path)
    loaded = asvi.load(path, groups_model)
    key = jax.random.key(9)
    a, b = (fit.posterior.sample(key, (20,)) for fit in (groups, loaded))
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-6)
    assert loaded.elbo == groups.elbo
    assert str(groups.verdict) in str(loaded)
    assert "Loaded without its data" in str(loaded)
    with pytest.raises(AsviError, match="needs the training data"):
        loaded.diagnose()


def test_the_data_are_not_in_the_file(tmp_path):
    secret = np.full(6, 12345.678, np.float32)
    result = asvi.fit(
        groups_model, X, y=secret, **{**QUICK, "training": asvi.Training(num_steps=500)}
    )
    path = tmp_path / "fit.asvi"
    result.save(path)
    _, arrays = read_file(path, "an asvi fit")
    assert not [name for name in arrays if name.startswith("arguments")]
    assert all(not np.isin(12345.678, np.round(a, 3)) for a in arrays.values())


def test_a_file_of_another_model_is_refused(groups, tmp_path):
    path = tmp_path / "fit.asvi"
    groups.save(path)

    def other(x, y=None):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        numpyro.sample("y", dist.Normal(mu + x, 1.0).to_event(1), obs=y)

    with pytest.raises(AsviError, match=r"belongs to another model; differing sites: .*tau"):
        asvi.load(path, other)
    with pytest.raises(AsviError, match="belongs to another model: normal_model cannot be called"):
        asvi.load(path, normal_model)


@pytest.mark.parametrize("change", ["gone", "reshaped"])
def test_a_file_with_other_parameters_is_refused(change, groups, tmp_path):
    """One of an earlier version, whose family had fewer of them, or of other shapes."""
    path = tmp_path / "fit.asvi"
    groups.save(path)
    header, arrays = read_file(path, "an asvi fit")
    name = next(name for name in arrays if name.startswith("params/"))
    value = arrays.pop(name)
    if change == "reshaped":
        arrays[name] = np.append(value, 0.0)
    write_file(path, header, arrays)
    parameter = re.escape(name.removeprefix("params/"))
    with pytest.raises(AsviError, match=rf"another version of asvi.*: {parameter}\.(?s:.*)again"):
        asvi.load(path, groups_model)


def test_a_damaged_or_foreign_file_is_refused(tmp_path):
    path = tmp_path / "fit.asvi"
    path.write_bytes(b"not a zip at all")
    with pytest.raises(AsviError, match="is not a file of asvi, or it is damaged"):
        asvi.load(path, normal_model)
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(AsviError, match="is not a file of asvi, or it is damaged"):
        asvi.load(tmp_path / "other.npz", normal_model)
    with pytest.raises(AsviError, match="There is no file"):
        asvi.load(tmp_path / "none.asvi", normal_model)


def test_a_path_that_cannot_be_written_is_said_before_any_work(tmp_path, groups):
    with pytest.raises(AsviError, match=r"does not exist. Make it first: mkdir -p"):
        asvi.fit(normal_model, Y, checkpoint=tmp_path / "no" / "run.ckpt", progress_bar=False)
    with pytest.raises(AsviError, match="is a folder"):
        groups.save(tmp_path)


# ------------------------------------------------------------------------------------ bad input


def test_data_that_are_no_numbers():
    with pytest.raises(ModelError, match=r"argument 1 is an array of <U3(?s:.*)factorize"):
        asvi.fit(normal_model, np.array(["1.0", "2.0"]), progress_bar=False)
    with pytest.raises(ModelError, match=r"argument `y` is an array of object"):
        asvi.fit(groups_model, X, y=np.array([1.0, None], object), progress_bar=False)


def test_a_likelihood_that_is_minus_infinity_everywhere():
    def model(y):
        scale = numpyro.sample("scale", dist.Uniform(0.0, 1.0))
        numpyro.sample("y", dist.Uniform(0.0, scale), obs=y)

    with pytest.raises(SiteError, match=r"site 'y'"):
        asvi.fit(model, jnp.array(5.0), progress_bar=False)


def test_nan_in_the_data_and_no_latent_site():
    with pytest.raises(SiteError, match="site 'y'"):
        asvi.fit(normal_model, np.array([1.0, np.nan], np.float32), progress_bar=False)

    def nothing(y):
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    with pytest.raises(ModelError, match="no latent site"):
        asvi.fit(nothing, jnp.array(1.0), progress_bar=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"training": asvi.Training(num_particles=0)}, "num_particles must be a whole number"),
        ({"training": asvi.Training(num_steps=2.5)}, "num_steps must be a whole number"),
        ({"training": asvi.Training(num_restarts=-1)}, "num_restarts must be a whole number"),
        ({"training": asvi.Training(elbo_tolerance=0.0)}, "elbo_tolerance must be positive"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(AsviError, match=message):
        asvi.fit(normal_model, Y, progress_bar=False, **settings)


@pytest.mark.parametrize(
    ("effective", "shift", "verdict"),
    [
        (3400.0, 0.02, "usable"),
        (1500.0, 0.02, "not trustworthy"),
        (3400.0, 0.4, "not trustworthy"),
    ],
)
def test_a_rare_heavy_weight_among_many_even_ones_is_no_verdict(effective, shift, verdict):
    measures = GuideMeasures(
        k_hat=1.1,
        k_hat_by_site={"a": 1.1},
        num_samples=4000,
        effective_draws=effective,
        mean_shift_sd={"a": shift},
        elbo=-1.0,
        evidence_gain=0.03,
        converged=True,
        skipped_share=0.0,
        is_discrete=False,
        last_gain=0.001,
        message="",
        rounding=0.0,
    )
    assert verdict_of_guide(measures)[0] == verdict
