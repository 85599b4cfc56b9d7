"""What is fitted is the model that was given: the user's own objects, read when the call is made.

Each test is a way in which another model was once fitted in silence. Truth is NumPyro's own
``log_density``, a closed form, or the same call in a fresh function.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict, namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import log_density

import asvi
from asvi.errors import AsviError, ModelError
from asvi.families import ConvexUpdate, StructuredNormal
from asvi.fitting.problem import Problem
from asvi.fitting.request import DEFAULTS
from asvi.results.old_names import OPTIONS
from asvi.results.posterior import Posterior

Y = np.array([4.0, 5.0, 6.0])
QUICK = {"family": StructuredNormal(), "progress_bar": False}


def normal(y, prior_sd, sd=1.0):
    """Exact mean and sd of ``mu ~ N(0, prior_sd)``, ``y ~ N(mu, sd)``."""
    precision = prior_sd**-2 + len(y) * sd**-2
    return np.sum(y) * sd**-2 / precision, precision**-0.5


def mean_of(result, name="mu"):
    return np.asarray(result.posterior.mean()[name])


# --------------------------------------------------------------------------- stale answers (row 1)

PRIOR_SD = 0.5
DATA = Y


def with_globals(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, PRIOR_SD))
    numpyro.sample("y", dist.Normal(mu, 1.0).expand([len(y)]).to_event(1), obs=y)


def test_a_global_that_changes(monkeypatch):
    for sd in (0.5, 50.0):
        monkeypatch.setattr(f"{__name__}.PRIOR_SD", sd)
        assert abs(mean_of(asvi.fit(with_globals, Y, **QUICK)) - normal(Y, sd)[0]) < 0.05


@pytest.mark.parametrize("family", [StructuredNormal(), ConvexUpdate()])
def test_data_in_a_global(monkeypatch, family):
    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 50.0))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([3]).to_event(1), obs=DATA)

    for data in (Y, Y + 10):
        monkeypatch.setattr(f"{__name__}.DATA", data)
        settings = (
            {"training": asvi.Training(num_steps=750, num_restarts=2)}
            if isinstance(family, ConvexUpdate)
            else {}
        )
        result = asvi.fit(model, family=family, progress_bar=False, **settings)
        assert abs(mean_of(result) - normal(data, 50.0)[0]) < 0.2


class Model:
    def __init__(self, sd):
        self.sd = sd

    def __call__(self, y):
        mu = numpyro.sample("mu", dist.Normal(0.0, self.sd))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([len(y)]).to_event(1), obs=y)

    def bound(self, y):
        return self(y)


@pytest.mark.parametrize("which", ["instance", "method"])
def test_an_attribute_that_changes(which):
    model = Model(0.5)
    for sd in (0.5, 50.0):
        model.sd = sd
        given = model if which == "instance" else model.bound
        assert abs(mean_of(asvi.fit(given, Y, **QUICK)) - normal(Y, sd)[0]) < 0.05


def test_a_dict_inside_condition_that_changes():
    def bare():
        mu = numpyro.sample("mu", dist.Normal(0.0, 50.0))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([3]).to_event(1))

    data = {"y": Y}
    model = handlers.condition(bare, data=data)
    assert abs(mean_of(asvi.fit(model, **QUICK)) - normal(Y, 50.0)[0]) < 0.05
    data["y"] = Y + 7
    assert abs(mean_of(asvi.fit(model, **QUICK)) - normal(Y + 7, 50.0)[0]) < 0.05


def test_defaults_that_change():
    def model(y, sd=0.5):
        mu = numpyro.sample("mu", dist.Normal(0.0, sd))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([len(y)]).to_event(1), obs=y)

    for sd in (0.5, 50.0):
        model.__defaults__ = (sd,)
        assert abs(mean_of(asvi.fit(model, Y, **QUICK)) - normal(Y, sd)[0]) < 0.05


def test_one_and_true_are_two_arguments():
    def model(y, flag):
        mu = numpyro.sample("mu", dist.Normal(0.0, 50.0 if flag is True else 0.5))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([len(y)]).to_event(1), obs=y)

    assert abs(mean_of(asvi.fit(model, Y, 1, **QUICK)) - normal(Y, 0.5)[0]) < 0.05
    assert abs(mean_of(asvi.fit(model, Y, True, **QUICK)) - normal(Y, 50.0)[0]) < 0.05


def test_a_family_that_is_defined_anew():
    def define(weight):
        class Own(ConvexUpdate):
            def update(self, prior, parameters, site):
                return dist.Normal(weight, 1.0)

        return Own()

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    settings = {"training": asvi.Training(num_steps=250, num_restarts=1), "progress_bar": False}
    for weight in (0.0, 3.0):
        result = asvi.fit(model, 1.0, family=define(weight), **settings)
        assert abs(mean_of(result) - weight) < 0.2


# ------------------------------------------------------------------------ arguments (rows 2, 3, 13)


def columns_model(columns, y):
    scales = [10.0, 0.01]
    mean = 0.0
    for (name, x), scale in zip(columns.items(), scales, strict=True):
        mean = mean + x * numpyro.sample(name, dist.Normal(0.0, scale))
    numpyro.sample("y", dist.Normal(mean, 1.0).to_event(1), obs=y)


RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 20))
TARGET = 2 * X[0] + RNG.normal(size=20)


def test_keys_keep_their_order():
    columns = {"z": X[0], "a": X[1]}

    def same_by_keyword(y, **columns):
        columns_model(columns, y)

    results = [
        asvi.fit(columns_model, columns, TARGET, **QUICK),
        asvi.fit(same_by_keyword, TARGET, **columns, **QUICK),
        asvi.fit(columns_model, OrderedDict(columns), TARGET, **QUICK),
    ]
    for result in results:
        assert abs(mean_of(result, "z") - 2) < 0.5
        assert abs(mean_of(result, "a")) < 0.05


@pytest.mark.parametrize(
    "clock",
    [1.7e9 + np.linspace(0, 60, 8), (1.7e18 + np.linspace(0, 6e10, 8)).astype(np.int64)],
    ids=["seconds", "nanoseconds"],
)
def test_clocks_keep_their_digits(clock):
    passed = np.asarray(clock - clock[0], float)
    passed = passed / passed[-1]
    y = 2.0 * passed + 0.1 * RNG.normal(size=8)

    def model(t, y):
        since = np.asarray(t - t[0], float)
        slope = numpyro.sample("slope", dist.Normal(0.0, 10.0))
        numpyro.sample("y", dist.Normal(slope * since / since[-1], 0.1).to_event(1), obs=y)

    precision = np.sum(passed**2) / 0.01 + 0.01
    exact = np.sum(passed * y) / 0.01 / precision
    result = asvi.fit(model, clock, y, progress_bar=False)
    assert abs(mean_of(result, "slope") - exact) < 0.01
    draws = result.posterior.sample(jax.random.key(0), (5,))
    ours = result.posterior.model_log_prob(draws)
    for k, found in enumerate(ours):
        one = {"slope": draws["slope"][k]}
        np.testing.assert_allclose(found, log_density(model, (clock, y), {}, one)[0], rtol=1e-4)


def test_arrays_stay_numpys():
    def model(y):
        sd = 50.0 if isinstance(y, np.ndarray) and not isinstance(y, jax.Array) else 0.5
        mu = numpyro.sample("mu", dist.Normal(0.0, sd))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([len(y)]).to_event(1), obs=y)

    assert abs(mean_of(asvi.fit(model, Y, **QUICK)) - normal(Y, 50.0)[0]) < 0.05
    assert abs(mean_of(asvi.fit(model, jnp.asarray(Y), **QUICK)) - normal(Y, 0.5)[0]) < 0.05


def test_a_model_that_edits_its_argument():
    def model(y):
        y *= 2.0
        mu = numpyro.sample("mu", dist.Normal(0.0, 50.0))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([len(y)]).to_event(1), obs=y)

    given = Y.copy()
    result = asvi.fit(model, given, **QUICK)
    assert abs(mean_of(result) - normal(2 * Y, 50.0)[0]) < 0.05
    np.testing.assert_array_equal(given, Y)


def test_keys_of_several_types():
    def model(data):
        mu = numpyro.sample("mu", dist.Normal(0.0, data["sd"]))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([3]).to_event(1), obs=data[0])

    result = asvi.fit(model, {0: Y, "sd": 50.0}, **QUICK)
    assert abs(mean_of(result) - normal(Y, 50.0)[0]) < 0.05


# ------------------------------------------------------------------------------- precision (row 4)


def random_features(y):
    weights = jax.random.normal(jax.random.key(0), (4,))
    x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    numpyro.sample("y", dist.Normal(jnp.sum(weights * x), 0.1), obs=y)


def whole_numbers(y):
    small = jnp.cumsum(jnp.array([100, 100, 100], jnp.int8)).astype(jnp.float32)
    squares = (jnp.array([20, 3], jnp.uint8) ** 2).astype(jnp.float32)
    x = numpyro.sample("x", dist.Normal(small[-1], 1.0))
    numpyro.sample("y", dist.Normal(x + squares[0], 1.0), obs=y)


def wrapped(y):
    steps = np.array([100, 100, 100], np.int8)
    total = jnp.cumsum(steps)[-1] + jnp.asarray(np.array([20], np.uint8))[0] ** 2
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x * total / 100, 1.0), obs=y)


@pytest.mark.parametrize("model", [random_features, whole_numbers, wrapped])
def test_search_and_verdict_have_one_density(model):
    result = asvi.fit(model, 2.0, **QUICK)
    draws = result.posterior.sample(jax.random.key(0), (2000,))
    ratios = result.posterior.model_log_prob(draws) - result.posterior.log_prob(draws)
    assert abs(float(np.mean(ratios)) - result.elbo) < 0.05
    one = {"x": draws["x"][0]}
    ours = result.posterior.model_log_prob({"x": draws["x"][:1]})[0]
    np.testing.assert_allclose(ours, log_density(model, (2.0,), {}, one)[0], rtol=1e-4)


def test_random_features_are_those_of_the_models_key():
    weights = np.asarray(jax.random.normal(jax.random.key(0), (4,)), float)
    precision = np.eye(4) + np.outer(weights, weights) / 0.01
    exact = np.linalg.solve(precision, weights * 2.0 / 0.01)
    result = asvi.fit(random_features, 2.0, **QUICK)
    np.testing.assert_allclose(mean_of(result, "x"), exact, atol=0.06)


# --------------------------------------------------------------------------------- options (row 10)


def test_options_that_are_arguments_of_the_model():
    def model(y, steps=1):
        mu = numpyro.sample("mu", dist.Normal(0.0, float(steps)))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([3]).to_event(1), obs=y)

    for call in (
        lambda: asvi.fit(model, Y, steps=50, **QUICK),
        lambda: asvi.fit(model, Y, 50, **QUICK),
        lambda: asvi.fit(functools.partial(model, steps=50), Y, **QUICK),
    ):
        assert abs(mean_of(call()) - normal(Y, 50.0)[0]) < 0.05


def model_with(name):
    """A model whose argument of this name is the mean of its site."""
    scope = {"numpyro": numpyro, "dist": dist}
    exec(f"def model({name}=1.0):\n    numpyro.sample('x', dist.Normal({name}, 1.0))", scope)
    return scope["model"]


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_an_option_that_the_model_has_too_is_refused_with_both_ways_out(name):
    model = model_with(name)
    value = {"family": StructuredNormal(), "discrete": "score", "progress_bar": True}.get(name, 2)
    with pytest.raises(ModelError, match=f"`{name}` is an option of asvi.fit and an arg") as told:
        asvi.fit(model, **{name: value})
    assert f"asvi.fit(model, *args, {name}_of_the_model)" in str(told.value)
    assert f"functools.partial(model, {name}=...)" in str(told.value)


def test_both_ways_out_are_ways_out():
    model = model_with("effort")
    for call in (
        lambda: asvi.fit(model, 40.0, effort="quick"),
        lambda: asvi.fit(functools.partial(model, effort=40.0), effort="quick"),
    ):
        assert abs(mean_of(call(), "x") - 40.0) < 0.1


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_an_old_name_of_an_option_is_the_models_own_if_it_has_it(name):
    result = asvi.fit(model_with(name), **{name: 40.0}, **QUICK)
    assert abs(mean_of(result, "x") - 40.0) < 0.1


# ----------------------------------------------------------------------------- predictions (row 11)


def autoregression(y):
    level = numpyro.sample("level", dist.Normal(0.0, 0.01))

    def step(before, now):
        now = numpyro.sample("y", dist.Normal(level + before, 1.0), obs=now)
        return now, now

    scan(step, 0.0, y)


def autoregression_by_hand(y):
    level = numpyro.sample("level", dist.Normal(0.0, 0.01))
    before = 0.0
    for t in range(6):
        before = numpyro.sample(f"y{t}", dist.Normal(level + before, 1.0), obs=y[t])


@pytest.mark.parametrize("model", [autoregression, autoregression_by_hand])
def test_predictions_of_a_series_follow_what_was_predicted(model):
    result = asvi.fit(model, np.zeros(6, np.float32), **QUICK)
    drawn = result.posterior.predictive(jax.random.key(0), num_samples=4000)
    last = drawn["y"][:, -1] if "y" in drawn else drawn["y5"]
    assert abs(float(np.std(last)) - np.sqrt(6)) < 0.15
    if "y" in drawn:
        data = result.to_arviz(num_samples=2000)
        assert abs(float(data.posterior_predictive["y"][..., -1].std()) - np.sqrt(6)) < 0.25


def test_what_condition_fixes_is_not_predicted():
    def bare(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, scale).expand([3]).to_event(1), obs=y)

    result = asvi.fit(handlers.condition(bare, data={"scale": 0.25}), Y, **QUICK)
    drawn = result.posterior.predictive(jax.random.key(0), num_samples=50)
    assert np.all(np.asarray(drawn["scale"]) == 0.25)
    assert np.std(np.asarray(drawn["y"])) > 0.1


# ------------------------------------------------------------------------- plates in parts (row 12)


def test_a_plate_seen_in_parts_has_the_rows_of_the_draws():
    y = np.linspace(-50, 50, 20).astype(np.float32)

    def model(y):
        with numpyro.plate("row", 20, subsample_size=5) as rows:
            x = numpyro.sample("x", dist.Normal(0.0, 30.0))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=jnp.asarray(y)[rows])

    problem = Problem(model, ConvexUpdate(), (y,), {})
    params = problem.params(problem.initial(jax.random.key(0)))
    posterior = Posterior(problem, params)
    draws = posterior.sample(jax.random.key(1), (3,))
    ours = posterior.model_log_prob(draws)
    for k in range(3):
        one = {name: draws[name][k] for name in ("x", "row")}
        with handlers.seed(rng_seed=0):
            np.testing.assert_allclose(ours[k], log_density(model, (y,), {}, one)[0], rtol=1e-4)
    with pytest.raises(AsviError, match="rows of plate 'row'"):
        posterior.model_log_prob({"x": draws["x"]})


# ------------------------------------------------------------------------------------------ files

Pair = namedtuple("Pair", ["x", "y"])


@dataclasses.dataclass
class Rows:
    x: np.ndarray
    y: np.ndarray


def pair_model(pair, sd=1.0):
    slope = numpyro.sample("slope", dist.Normal(0.0, 10.0))
    numpyro.deterministic("line", slope * pair.x)
    numpyro.sample("y", dist.Normal(slope * pair.x, sd).to_event(1), obs=pair.y)


def keyed_model(data):
    slope = numpyro.sample("slope", dist.Normal(0.0, data["sd"]))
    numpyro.sample("y", dist.Normal(slope * data[0], 1.0).to_event(1), obs=data[1])


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (pair_model, (Pair(X[0], TARGET),)),
        (pair_model, (Rows(X[0], TARGET),)),
        (keyed_model, ({1: TARGET, 0: X[0], "sd": 10.0},)),
    ],
    ids=["named tuple", "dataclass", "keys of several types"],
)
def test_a_loaded_fit_has_the_same_draws(model, args, tmp_path):
    result = asvi.fit(model, *args, **QUICK)
    result.save(tmp_path / "fit.asvi")
    for given in ((), args):
        loaded = asvi.load(tmp_path / "fit.asvi", model, *given)
        ours, theirs = (r.posterior.sample(jax.random.key(1), (10,)) for r in (result, loaded))
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
    assert loaded.diagnose().verdict == result.diagnose().verdict
    np.testing.assert_allclose(
        loaded.posterior.model_log_prob(ours), result.posterior.model_log_prob(ours), rtol=1e-6
    )
    bare = asvi.load(tmp_path / "fit.asvi", model).posterior
    for needs_data in (bare.predictive, bare.importance, bare.resample):
        with pytest.raises(AsviError, match="needs the training data"):
            needs_data(jax.random.key(0))
    with pytest.raises(AsviError, match=r"asvi.load\(.*, model, \*data\)"):
        bare.model_log_prob(ours)


def test_a_file_of_a_model_that_changed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.PRIOR_SD", 0.5)
    asvi.fit(with_globals, Y, **QUICK).save(tmp_path / "fit.asvi")
    monkeypatch.setattr(f"{__name__}.PRIOR_SD", 50.0)
    with pytest.raises(AsviError, match="has changed since"):
        asvi.load(tmp_path / "fit.asvi", with_globals)
