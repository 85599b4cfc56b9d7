"""The call and its result as a user meets them: keys, families, training, summary, warnings."""

from __future__ import annotations

import logging
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import autoguide

import asvi
from asvi.fitting.training.asked import as_optax
from asvi.program.random_key import as_key
from tests.support.marks import every

pytestmark = pytest.mark.xdist_group("test_face")

Y = np.array([1.0, 2.5, 0.3, 4.0], np.float32)
SHORT = asvi.Training(num_steps=1500, num_restarts=2)


def location(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.deterministic("double", 2 * mu)
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def funnel(y):
    scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
    with numpyro.plate("row", len(y)):
        theta = numpyro.sample("theta", dist.StudentT(1.5, 0.0, scale))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


EXACT = float(Y.sum() / (len(Y) + 0.01))


@pytest.fixture(scope="module")
def fitted():
    return asvi.fit(location, Y)


@pytest.fixture(scope="module")
def moved():
    """Draws that were moved."""
    return asvi.fit(funnel, Y)


@pytest.fixture(scope="module")
def trained():
    return asvi.fit(location, Y, family="MeanField", training=SHORT)


# ------------------------------------------------------------------------------------------ keys


def test_an_int_is_a_key_everywhere(trained):
    a, b, c = (asvi.fit(location, Y, rng_key=k) for k in (3, jax.random.key(3), np.int64(3)))
    assert a.elbo == b.elbo == c.elbo
    for posterior in (a.posterior, trained.guide):
        for call in (
            lambda key, p=posterior: p.sample(key, 5)["mu"],
            lambda key, p=posterior: p.predictive(key, num_samples=5)["y"],
            lambda key, p=posterior: p.predictive(key, np.zeros(3, np.float32), num_samples=5)["y"],
            lambda key, p=posterior: p.resample(key, 5)["mu"],
            lambda key, p=posterior: p.nuts_init(rng_key=key)["inverse_mass_matrix"],
        ):
            keys = (7, jax.random.key(7), jax.random.PRNGKey(7))
            one, *others = (np.asarray(call(key)) for key in keys)
            assert all((one == other).all() for other in others)
    assert trained.guide.elbo(7) == trained.guide.elbo(jax.random.key(7))
    with pytest.raises(asvi.AsviError, match="neither a key of JAX nor an int"):
        asvi.fit(location, Y, rng_key="seven")
    assert as_key(None) == jax.random.key(0)


# --------------------------------------------------------------------------------------- results


def test_a_fit_has_what_it_is_of(fitted, trained):
    assert fitted.model is location
    assert fitted.model_name == "location"
    assert asvi.fit(partial(location), Y).model_name == "location"
    assert [site.name for site in fitted.program.latent] == ["mu"]
    assert isinstance(trained.family, asvi.families.MeanField)
    assert fitted.verdict is asvi.Verdict.GOOD
    assert fitted.verdict == "good"
    assert f"{fitted.verdict}" == "good"
    assert fitted != asvi.fit(location, Y)
    assert fitted.run.skipped_steps == 0
    assert trained.num_steps == SHORT.num_steps


def test_draws_and_medians_want_no_key(fitted, trained):
    assert len(fitted.draws["mu"]) == len(fitted.correction.pool)
    assert len(trained.draws["mu"]) == 1000
    for result in (fitted, trained):
        assert abs(result.draws["double"].mean() - 2 * EXACT) < 0.2
        assert abs(result.posterior.median()["mu"] - EXACT) < 0.2
        assert np.shape(result.posterior.median()["mu"]) == ()


def test_only_the_guide_has_a_density_and_other_data(fitted):
    for call in (
        lambda p: p.log_prob(p.sample(0, 3)),
        lambda p: p.elbo(0),
        lambda p: p.importance(0),
        lambda p: p.at(Y[:2]),
    ):
        with pytest.raises(asvi.AsviError, match=r"result\.guide\."):
            call(fitted.posterior)
        call(fitted.guide)
    assert fitted.guide.at(Y[:2]).sample(0, (2, 3))["mu"].shape == (2, 3)


def test_chains_of_nuts_start_at_draws_of_their_own(fitted):
    start = fitted.posterior.nuts_init(num_chains=3)["init_params"]
    assert start["mu"].shape == (3,)
    assert len(set(np.asarray(start["mu"]).tolist())) == 3


# --------------------------------------------------------------------------------------- summary


COLUMNS = ["mean", "sd", "eti90_lb", "eti90_ub", "ess_bulk", "ess_tail"]


def test_a_summary_has_the_columns_of_arviz(fitted, moved, trained):
    assert fitted.correction.rung == "weights"
    assert moved.correction.rung == "moves"
    for result, judged in ((fitted, "k_hat"), (moved, "r_hat"), (trained, "k_hat")):
        frame = result.summary()
        assert list(frame.columns) == [*COLUMNS, judged, "mcse_mean", "mcse_sd"]
        assert np.isfinite(frame.to_numpy()).all()
        assert (frame["eti90_lb"] < frame["mean"]).all()
        assert (frame["mcse_mean"] < 0.5 * frame["sd"]).all()
    assert list(fitted.summary().index) == ["mu", "double"]
    assert list(moved.summary("theta").index) == [f"theta[{k}]" for k in range(4)]
    assert abs(fitted.summary().loc["mu", "mean"] - EXACT) < 0.05


def test_effective_draws_of_moves_are_not_those_of_independent_ones(moved):
    frame = moved.summary()
    count = len(moved.correction.pool)
    assert (frame["ess_bulk"] < 0.9 * count).all()
    assert frame["ess_bulk"].min() == pytest.approx(moved.correction.checks.effective_draws)
    assert frame["r_hat"].max() == pytest.approx(moved.correction.checks.r_hat)
    assert (frame["r_hat"] < 1.05).all()


def test_a_summary_of_other_intervals_and_sites(fitted):
    frame = fitted.summary(["double"], ci_prob=0.5, ci_kind="hdi")
    assert list(frame.columns)[2:4] == ["hdi50_lb", "hdi50_ub"]
    width = frame["hdi50_ub"] - frame["hdi50_lb"]
    assert float(width.iloc[0]) == pytest.approx(1.349, rel=0.1)
    for wrong in ({"ci_kind": "std"}, {"ci_prob": 90}):
        with pytest.raises(asvi.AsviError, match="make no interval"):
            fitted.summary(**wrong)
    with pytest.raises(asvi.AsviError, match="has no 'nu'; it has mu, double"):
        fitted.summary(["nu"])


# ------------------------------------------------------------------------ families and optimisers


@pytest.mark.parametrize(
    "family",
    every(
        2,
        [
            "Coupled",
            autoguide.AutoNormal,
            autoguide.AutoMultivariateNormal(location, init_scale=0.3),
            asvi.families.MeanField,
            {"m*": "MeanField"},
        ],
    ),
    ids=lambda family: family if isinstance(family, str) else type(family).__name__,
)
def test_a_family_may_be_a_name_or_a_guide_of_numpyro(family, tmp_path):
    training = asvi.Training(num_steps=2000, optimizer=optax.adam(0.05))
    result = asvi.fit(location, Y, family=family, training=training)
    assert abs(result.posterior.mean()["mu"] - EXACT) < 0.2
    drawn, log_q = result.guide.draw(jax.random.key(0), (5,))
    np.testing.assert_allclose(result.guide.log_prob(drawn), log_q, rtol=1e-3, atol=1e-3)
    assert result.explain().rows[0].name == "mu"
    result.save(tmp_path / "fit.asvi")
    same = family if isinstance(family, autoguide.AutoGuide) else None
    loaded = asvi.load(tmp_path / "fit.asvi", location, Y, family=same)
    np.testing.assert_array_equal(loaded.guide.sample(1, 5)["mu"], result.guide.sample(1, 5)["mu"])


def positive(y):
    scale = numpyro.sample("scale", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Normal(0.0, scale).expand([4]).to_event(1), obs=y)


def test_the_density_of_a_guide_of_numpyro_counts_its_transforms():
    training = asvi.Training(num_steps=500, num_restarts=2)
    result = asvi.fit(positive, Y, family=autoguide.AutoNormal, training=training)
    drawn, log_q = result.guide.draw(jax.random.key(0), (5,))
    np.testing.assert_allclose(result.guide.log_prob(drawn), log_q, rtol=1e-3, atol=1e-3)
    assert result.elbo == pytest.approx(result.guide.elbo(3, 4000)[0], abs=0.05)


def test_what_is_no_family_is_named():
    for family, said in (
        ("Copuled", "there are .*Coupled"),
        (autoguide.AutoDelta, "AutoDelta has no density"),
        (3, "neither a family nor a dict"),
    ):
        with pytest.raises(asvi.FamilyError, match=said):
            asvi.fit(location, Y, family=family)


@pytest.mark.parametrize(
    "make",
    every(
        2,
        [
            lambda: numpyro.optim.Adam(0.01),
            lambda: numpyro.optim.ClippedAdam(0.01),
            lambda: numpyro.optim.optax_to_numpyro(optax.adam(0.01)),
            lambda: optax.adam(0.01),
        ],
    ),
)
def test_optimisers_of_numpyro_and_optax_take_the_same_steps(make):
    optimizer = make()
    params = jnp.array([1.0, -2.0])
    ours, theirs = as_optax(optimizer), optax.adam(0.01)
    state, their_state = ours.init(params), theirs.init(params)
    for k in range(5):
        gradient = jnp.cos(params + k)
        step, state = ours.update(gradient, state, params)
        their_step, their_state = theirs.update(gradient, their_state, params)
        np.testing.assert_allclose(step, their_step, atol=1e-6)
    assert as_optax(optimizer) is ours


def test_a_fit_with_an_optimiser_of_numpyro():
    training = asvi.Training(num_steps=2000, optimizer=numpyro.optim.Adam(0.01))
    result = asvi.fit(location, Y, family="ConvexUpdate", training=training)
    assert abs(result.posterior.mean()["mu"] - EXACT) < 0.1
    with pytest.raises(asvi.AsviError, match="got Minimize, which takes no gradient steps"):
        asvi.fit(location, Y, training=asvi.Training(optimizer=numpyro.optim.Minimize()))
    with pytest.raises(asvi.AsviError, match=r"is no asvi\.Training"):
        asvi.fit(location, Y, training={"num_steps": 3})


# ------------------------------------------------------------------------------ warnings and logs


def test_a_fit_that_is_not_trustworthy_warns_once():
    training = asvi.Training(num_steps=250, num_restarts=1)
    with pytest.warns(asvi.VerdictWarning) as told:
        result = asvi.fit(funnel, Y, family="MeanField", training=training)
    assert result.verdict is asvi.Verdict.NOT_TRUSTWORTHY
    (one,) = told
    assert str(result)  # says it, and warns no more
    assert one.filename == __file__
    text = str(one.message)
    assert "the posterior of funnel is not trustworthy" in text
    assert result.diagnose().advice in text
    assert 'warnings.simplefilter("ignore", asvi.VerdictWarning)' in text


def test_the_log_says_what_was_tried(caplog):
    with caplog.at_level(logging.DEBUG, logger="asvi"):
        asvi.fit(location, Y)
    info = [r.message for r in caplog.records if r.levelno == logging.INFO]
    assert info[0] == "gaussian: begins"
    assert "natural gradients" in info[1]
    assert "weighted" in info[1]
    assert any(r.levelno == logging.DEBUG and "took" in r.message for r in caplog.records)


def test_a_check_has_the_errors_of_a_fit_and_no_fit():
    program = asvi.check(location, Y)
    assert [site.name for site in program.latent] == ["mu"]
    with pytest.raises(asvi.SiteError, match="site 'y'"):
        asvi.check(location, np.array([1.0, np.nan]))


# ---------------------------------------------------------------------------- processes, threads


@pytest.mark.parametrize("name", ["fitted", "moved", "trained"])
def test_a_fit_can_be_pickled(name, request):
    result = request.getfixturevalue(name)
    again = pickle.loads(pickle.dumps(result))
    assert again.elbo == result.elbo
    assert again.verdict == result.verdict
    assert again.diagnose() == result.diagnose()
    for site, values in result.draws.items():
        np.testing.assert_array_equal(again.draws[site], values)
    for site, values in result.guide.sample(3, 5).items():
        np.testing.assert_array_equal(again.guide.sample(3, 5)[site], values)
    assert again.posterior.predictive(0, num_samples=7)["y"].shape == (7, 4)
    assert str(again) == str(result)


def test_a_fit_goes_on_after_it_was_pickled():
    again = pickle.loads(pickle.dumps(asvi.fit(location, Y, rng_key=jax.random.key(3))))
    refined = again.refine(max_error=0.02)
    assert len(refined.correction.pool) >= len(again.correction.pool)
    with_functions = asvi.fit(
        location, Y, family="MeanField", training=asvi.Training(250, optimizer=optax.adam(0.1))
    )
    with pytest.raises(asvi.AsviError, match="cannot be"):
        pickle.loads(pickle.dumps(with_functions)).refine()


def test_a_model_that_cannot_be_imported_is_kept_in_a_file():
    def local(y):
        numpyro.sample("y", dist.Normal(numpyro.sample("mu", dist.Normal(0.0, 1.0)), 1.0), obs=y)

    with pytest.raises(asvi.AsviError, match=r"result\.save"):
        pickle.dumps(asvi.fit(local, 1.0))


@pytest.mark.slow
def test_fits_in_a_pool_of_processes(fitted):
    data = [Y, Y + 1]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(partial(asvi.fit, location), data))
        failed = pool.submit(asvi.fit, location, np.full(4, np.nan, np.float32))
        with pytest.raises(asvi.SiteError, match="site 'y'"):
            failed.result()
    assert found[0].elbo == pytest.approx(fitted.elbo, abs=1e-6)
    assert found[1].summary().loc["mu", "mean"] == pytest.approx(EXACT + 1, abs=0.05)


def test_two_threads_have_the_numbers_of_one_after_the_other(moved, trained):
    found = {}

    def work(name, *args, **options):
        found[name] = asvi.fit(*args, **options)

    threads = [
        threading.Thread(target=work, args=("moved", funnel, Y)),
        threading.Thread(
            target=work,
            args=("trained", location, Y),
            kwargs={"family": "MeanField", "training": SHORT},
        ),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found["moved"].elbo == moved.elbo
    np.testing.assert_array_equal(found["moved"].draws["theta"], moved.draws["theta"])
    assert found["trained"].elbo == trained.elbo
