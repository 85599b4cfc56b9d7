"""Bad input raises an error that names the site, says what is wrong and shows the mended line.

Driven as a user would: through ``SVI.init``, or two steps of ``SVI.run`` where the loss must run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import cond, scan
from numpyro.distributions import constraints
from numpyro.infer import (
    SVI,
    Predictive,
    Trace_ELBO,
    TraceEnum_ELBO,
    TraceGraph_ELBO,
    TraceMeanField_ELBO,
)
from numpyro.primitives import _PYRO_STACK

import asvi
from asvi import AsviError, AutoASVI, FamilyError, LossError, ModelError, SiteError
from asvi.families import ConvexUpdate, MeanField
from asvi.program.checks.data import check_observed
from asvi.program.checks.parameters import check_distribution

KEY = jax.random.key(0)
Y = jnp.array([1.0, 2.0, 3.0])
Y_NAN = jnp.array([1.0, jnp.nan, 3.0])


# ---------------------------------------------------------------------------------- how it is asked


def make_svi(model: Callable, loss: Any = None, family: Any = None) -> SVI:
    return SVI(model, AutoASVI(model, family=family), optax.adam(1e-2), loss or asvi.ELBO())


def start(model: Callable, *args: Any, loss: Any = None, family: Any = None) -> Any:
    return make_svi(model, loss, family).init(KEY, *args)


def run(model: Callable, *args: Any, loss: Any = None) -> Any:
    return make_svi(model, loss).run(KEY, 2, *args, progress_bar=False)


def untrained(model: Callable, *args: Any) -> dict[str, Any]:
    svi = make_svi(model)
    return svi.get_params(svi.init(KEY, *args))


@contextmanager
def refused(kind: type[AsviError], *words: str) -> Iterator[None]:
    """What is inside raises this kind of error, with these words, and cleans up behind itself."""
    with pytest.raises(AsviError) as caught:
        yield
    assert type(caught.value) is kind
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert _PYRO_STACK == []


@contextmanager
def site_refused(site: str, problem: str, mended: str, kind=SiteError) -> Iterator[None]:
    """As ``refused``, with a text of the form ``site 'name': problem. Write instead: code``."""
    with pytest.raises(AsviError) as caught:
        yield
    assert type(caught.value) is kind
    where, _, code = str(caught.value).partition("\nWrite instead:\n    ")
    assert where.startswith(f"site {site!r}: "), where
    assert problem in where
    assert mended in code
    assert _PYRO_STACK == []


@pytest.fixture(autouse=True)
def _handler_stack_is_clean():
    assert _PYRO_STACK == []
    yield
    left = list(_PYRO_STACK)
    _PYRO_STACK.clear()  # do not let one failure pull down the tests after it
    assert left == []


# -------------------------------------------------------------------------------- models to spoil


def normal(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    with numpyro.plate("n", len(y)):
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def groups(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("n", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def walk(y, noise=1.0, reverse=False):
    def step(x, y_t):
        x = numpyro.sample("x", dist.Normal(x, 1.0))
        numpyro.sample("y", dist.Normal(x, noise), obs=y_t)
        return x, None

    scan(step, 0.0, y, reverse=reverse)


def switch(y):
    def branch(loc):
        return numpyro.sample("z", dist.Normal(loc, 1.0))

    z = cond(y[0] > 0, lambda _: branch(0.0), lambda _: branch(1.0), None)
    numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def angle(y):
    z = numpyro.sample("z", dist.VonMises(0.0, 1.0))
    with numpyro.plate("n", len(y)):
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def with_likelihood(make: Callable[[jax.Array], dist.Distribution]) -> Callable:
    """A model of one latent ``x`` whose data ``y`` have the distribution ``make(x)``."""

    def model(y):
        x = numpyro.sample("x", dist.Normal(2.0, 1.0))
        numpyro.sample("y", make(x), obs=y)

    return model


def with_prior(make: Callable[[], dist.Distribution]) -> Callable:
    """A model of one latent ``x`` without data."""
    return lambda: numpyro.sample("x", make())


# ------------------------------------------------------------------------------------ NaN and inf


@pytest.mark.parametrize(
    "y", [Y_NAN, np.array(Y_NAN), jnp.array([1.0, jnp.inf, 2.0])], ids=["jax", "numpy", "inf"]
)
@pytest.mark.parametrize("model", [normal, walk], ids=["plate", "scan"])
def test_data_that_are_not_finite(model, y):
    with site_refused(
        "y",
        "1 value(s) that are NaN or infinite (the first at index (1,))",
        "with numpyro.handlers.mask(mask=jnp.isfinite(y)):",
    ):
        start(model, y)


def test_data_that_are_not_finite_are_found_by_run_too():
    with site_refused("y", "NaN or infinite", 'numpyro.sample("y", ..., obs=jnp.nan_to_num(y))'):
        run(normal, Y_NAN)


def test_data_that_are_not_finite_inside_a_cond():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))

        def branch(scale):
            with numpyro.plate("n", 3):
                numpyro.sample("y", dist.Normal(x, scale), obs=y)

        cond(x > 0, lambda _: branch(1.0), lambda _: branch(2.0), None)

    with site_refused("y", "the first at index (1,)", "numpyro.handlers.mask"):
        start(model, Y_NAN)


def masked(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    with handlers.mask(mask=jnp.isfinite(y)):
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def masked_distribution(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x, 1.0).expand([3]).mask(jnp.isfinite(y)).to_event(1), obs=y)


def masked_events(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("n", 3), handlers.mask(mask=jnp.isfinite(y)):
        pairs = jnp.stack([y, y], -1)
        numpyro.sample("y", dist.MultivariateNormal(x, jnp.eye(2)), obs=pairs)


def masked_walk(y):
    def step(x, y_t):
        x = numpyro.sample("x", dist.Normal(x, 1.0))
        with numpyro.plate("n", 2), handlers.mask(mask=jnp.isfinite(y_t)):
            numpyro.sample("y", dist.Normal(x, 1.0), obs=jnp.full(2, y_t))
        return x, None

    scan(step, 0.0, y)


def masked_grid(y):
    def outer(x, y_t):
        def inner(x, y_ts):
            x = numpyro.sample("x", dist.Normal(x, 1.0))
            with numpyro.plate("n", 2), handlers.mask(mask=jnp.isfinite(y_ts)):
                numpyro.sample("y", dist.Normal(x, 1.0), obs=jnp.full(2, y_ts))
            return x, None

        return scan(inner, x, jnp.stack([y_t, 0.0]))[0], None

    scan(outer, 0.0, y)


def masked_branch(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))

    def branch(scale):
        with numpyro.plate("n", 3), handlers.mask(mask=jnp.isfinite(y)):
            numpyro.sample("y", dist.Normal(x, scale), obs=y)

    cond(y[0] > 0, lambda _: branch(1.0), lambda _: branch(2.0), None)


def partly_observed(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x, 1.0).expand([3]), obs=y, obs_mask=jnp.isfinite(y))


@pytest.mark.parametrize(
    "model",
    [
        masked,
        masked_distribution,
        masked_events,
        masked_walk,
        masked_grid,
        masked_branch,
        partly_observed,
    ],
)
def test_masked_nan_passes(model):
    start(model, Y_NAN)


def test_masked_nan_leaves_loss_and_parameters_finite():
    result = run(masked, Y_NAN)
    assert np.isfinite(result.losses).all()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(result.params))


def test_what_is_not_known_under_jit_passes():
    svi = make_svi(masked)
    jax.jit(svi.init)(KEY, Y_NAN)


def test_nan_beside_the_mask_is_found():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        with handlers.mask(mask=jnp.array([True, False, True])):
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    start(model, Y_NAN)
    with site_refused("y", "the first at index (2,)", "mask"):
        start(model, jnp.array([1.0, jnp.nan, jnp.nan]))


@pytest.mark.parametrize(
    ("bad", "word"), [(jnp.nan, "not a number (NaN)"), (jnp.inf, "infinite")], ids=["nan", "inf"]
)
def test_covariates_that_are_not_finite(bad, word):
    def regression(x, y):
        slope = numpyro.sample("slope", dist.Normal(1.0, 1.0))
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)

    with site_refused("y", f"parameter 'loc' of its Normal is {word}", "x, y = x[keep], y[keep]"):
        start(regression, jnp.array([1.0, bad, 2.0]), Y)


def test_a_guide_can_be_used_after_it_refused_data():
    svi = make_svi(normal)
    with refused(SiteError, "NaN"):
        svi.init(KEY, Y_NAN)
    state = svi.init(KEY, Y)
    assert np.isfinite(svi.evaluate(state, Y))


def test_our_errors_come_before_numpyros_own_validation():
    with numpyro.validation_enabled(True), site_refused("x", "Normal got scale = -1.0", "jnp.exp"):
        start(with_prior(lambda: dist.Normal(0.0, -1.0)))


# --------------------------------------------------------------------------- shapes that do not fit


def four_values(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([4]))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def four_in_a_plate(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    with numpyro.plate("item", 4):
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def vector(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.MultivariateNormal(jnp.full(4, x), jnp.eye(4)), obs=y)


@pytest.mark.parametrize("model", [four_values, four_in_a_plate, vector])
def test_data_of_another_shape_than_the_distribution(model):
    with site_refused(
        "y",
        "the observed data have shape (3,), the distribution has shape (4,)",
        "obs=y)   # with y of shape (4,)",
    ):
        start(model, Y)


def test_data_of_another_shape_than_their_plate_name_the_plate():
    with handlers.trace() as trace, handlers.seed(rng_seed=0):
        four_in_a_plate(Y)
    with refused(SiteError, "has shape (4,) (inside plate item[4]), and the two do not broadcast"):
        check_observed("y", trace["y"])


def test_data_of_another_shape_inside_a_scan():
    def model(y):
        def step(x, y_t):
            x = numpyro.sample("x", dist.Normal(x, 1.0).to_event(1))
            numpyro.sample("y", dist.Normal(x, 1.0).to_event(1), obs=y_t)
            return x, None

        scan(step, jnp.zeros(3), y)

    with site_refused("y", "the observed data have shape (5, 2)", "with y of shape (5, 3)"):
        start(model, jnp.zeros((5, 2)))


def test_a_column_of_data_against_a_row_would_count_each_datum_many_times():
    with site_refused(
        "y", "broadcast to (4, 4), which counts each datum more than once", "with y of shape (4,)"
    ):
        start(four_in_a_plate, jnp.zeros((4, 1)))


def test_data_longer_than_an_event():
    model = with_likelihood(lambda x: dist.Normal(x[None], 1.0).to_event(1))
    with site_refused("y", "one event has shape (1,)", ".expand([3]).to_event(1), obs=y)"):
        start(model, Y)


@pytest.mark.parametrize("y", [jnp.zeros(()), jnp.zeros(4), jnp.zeros((2, 4))], ids=jnp.shape)
def test_data_that_broadcast_are_fine(y):
    start(four_values, y)


def test_data_that_broadcast_at_each_step_of_a_scan_are_fine():
    def model(y):
        def step(x, y_t):
            x = numpyro.sample("x", dist.Normal(x, 1.0).to_event(1))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y_t)  # one number for both
            return x, None

        scan(step, jnp.zeros(2), y)

    start(model, Y)
    with site_refused("y", "the first at index (1, 0)", "mask"):
        start(model, Y_NAN)


def test_arrays_that_do_not_broadcast_in_a_constructor():
    def model():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([4]))
        numpyro.sample(
            "y",
            dist.Normal(x, jnp.ones(3)),
            obs=0.0,
        )

    with site_refused(
        "y",
        "arrays of shapes (4,) and (3,) meet and do not broadcast (test_bad_input.py, line",
        "dist.Normal(x, jnp.ones(3))",
    ):
        start(model)


def test_arrays_that_do_not_broadcast_in_a_distribution_made_beforehand():
    def model():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([4]))
        likelihood = dist.Normal(x, jnp.ones(3))
        numpyro.sample("y", likelihood, obs=0.0)

    with site_refused("y", "shapes (4,) and (3,)", "likelihood = dist.Normal(x, jnp.ones(3))"):
        start(model)


def test_arrays_that_do_not_broadcast_inside_a_scan():
    def model():
        def step(x, _):
            x = numpyro.sample("x", dist.Normal(x, jnp.ones(3)))
            return x, None

        scan(step, jnp.zeros(2), None, length=4)

    with site_refused("x", "shapes (2,) and (3,)", 'x = numpyro.sample("x", dist.Normal'):
        start(model)


def test_a_site_that_does_not_fit_its_plate():
    def model():
        with numpyro.plate("item", 4):
            numpyro.sample("x", dist.Normal(jnp.zeros(3), 1.0))

    with site_refused(
        "x",
        "its batch shape (3,) does not fit plate 'item' of shape (4,)",
        'with numpyro.plate("item", 3):',
    ):
        start(model)


def test_a_scan_whose_carry_changes_its_shape():
    def model():
        def step(x, _):
            return numpyro.sample("x", dist.Normal(x, jnp.ones(3))), None

        scan(step, 0.0, None, length=4)

    with refused(ModelError, "gives back another carry than it got", "float32[3]", "with init of"):
        start(model)


def test_a_later_call_with_another_plate_size():
    svi = make_svi(groups)
    state = svi.init(KEY, Y)
    words = ("site 'theta'", "shape (5,) now and had (3,) when the guide was set up", "Predictive(")
    with refused(SiteError, *words):
        svi.update(state, jnp.zeros(5))
    params = svi.get_params(state)
    with refused(SiteError, *words):
        Predictive(svi.guide, params=params, num_samples=2)(KEY, jnp.zeros(5))
    svi.update(state, Y)


def test_a_later_call_with_another_scan_length():
    svi = make_svi(walk)
    state = svi.init(KEY, Y)
    with refused(SiteError, "site 'x'", "5 steps now and had 3 when the guide was set up"):
        svi.update(state, jnp.zeros(5))


def test_a_later_call_with_another_site():
    def model(more):
        numpyro.sample("a", dist.Normal(0.0, 1.0))
        if more:
            numpyro.sample("b", dist.Normal(0.0, 1.0))

    svi = make_svi(model)
    svi.init(KEY, False)
    with refused(ModelError, "site 'b' was not in the model", "guide = AutoASVI(model)"):
        svi.init(KEY, True)


def test_a_call_without_the_models_arguments():
    with refused(ModelError, "could not be called", "missing 1 required positional", "svi.init("):
        start(normal)


# ---------------------------------------------------------------------------- a name used twice


def twice_in_a_row():
    numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.sample("a", dist.Normal(0.0, 1.0))


def latent_and_observed():
    numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.sample("a", dist.Normal(0.0, 1.0), obs=1.0)


def in_a_loop():
    for _ in range(3):
        numpyro.sample("a", dist.Normal(0.0, 1.0))


def in_a_scan_body():
    def step(x, _):
        numpyro.sample("a", dist.Normal(x, 1.0))
        return numpyro.sample("a", dist.Normal(x, 1.0)), None

    scan(step, 0.0, None, length=3)


def _chain(init=0.0):
    def step(x, _):
        return numpyro.sample("a", dist.Normal(x, 1.0)), None

    return scan(step, init, None, length=3)[0]


def before_a_scan():
    _chain(numpyro.sample("a", dist.Normal(0.0, 1.0)))


def after_a_scan():
    numpyro.sample("a", dist.Normal(_chain(), 1.0))


def in_two_scans():
    _chain(_chain())


def in_a_scan_in_a_scan():
    def step(x, _):
        return _chain(numpyro.sample("a", dist.Normal(x, 1.0))), None

    scan(step, 0.0, None, length=3)


def before_a_cond():
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))

    def branch(_):
        return numpyro.sample("a", dist.Normal(0.0, 1.0))

    cond(a > 0, branch, branch, None)


def as_a_plate():
    with numpyro.plate("a", 3):
        numpyro.sample("a", dist.Normal(0.0, 1.0))


@pytest.mark.parametrize(
    "model",
    [
        twice_in_a_row,
        latent_and_observed,
        in_a_loop,
        in_a_scan_body,
        before_a_scan,
        after_a_scan,
        in_two_scans,
        in_a_scan_in_a_scan,
        before_a_cond,
        as_a_plate,
    ],
)
def test_a_name_used_twice(model):
    with site_refused("a", "this name is used twice", 'numpyro.sample("a_2", ...)'):
        start(model)


# -------------------------------------------------------------- parameters outside their domain


@pytest.mark.parametrize(
    ("make", "problem", "mended"),
    [
        (
            lambda: dist.Normal(0.0, -1.0),
            "Normal got scale = -1.0, which is not positive",
            "dist.Normal(..., scale=jnp.exp(log_scale))",
        ),
        (
            lambda: dist.Normal(0.0, 0.0),
            "Normal got scale = 0.0, which is not positive",
            "dist.Normal(..., scale=jnp.exp(log_scale))",
        ),
        (
            lambda: dist.Normal(0.0, jnp.array([1.0, -2.0])),
            "Normal got scale = -2.0",
            "scale=jnp.exp(log_scale)",
        ),
        (
            lambda: dist.HalfNormal(-1.0),
            "HalfNormal got scale = -1.0",
            "dist.HalfNormal(scale=jnp.exp(log_scale))",
        ),
        (
            lambda: dist.LogNormal(0.0, -1.0),
            "LogNormal got scale = -1.0",
            "dist.LogNormal(..., scale=jnp.exp(log_scale))",
        ),
        (
            lambda: dist.TruncatedNormal(0.0, -1.0, low=0.0),
            "Normal got scale = -1.0",
            "scale=jnp.exp(log_scale)",
        ),
        (
            lambda: dist.Normal(0.0, -1.0).expand([2]).to_event(1).mask(True),
            "Normal got scale = -1.0",
            "scale=jnp.exp(log_scale)",
        ),
        (
            lambda: dist.Dirichlet(jnp.array([1.0, -1.0])),
            "Dirichlet got concentration = -1.0, which is not positive",
            "dist.Dirichlet(concentration=jnp.exp(log_concentration))",
        ),
        (
            lambda: dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 2.0], [2.0, 1.0]])),
            "covariance_matrix = [[1., 2.], [2., 1.]], which is not a symmetric positive-def",
            "covariance_matrix=a @ a.T",
        ),
        (
            lambda: dist.Uniform(1.0, 0.0),
            "Uniform got low = 1.0 and high = 0.0: no value lies between them",
            "dist.Uniform(low=0.0, high=1.0)",
        ),
        (
            lambda: dist.MixtureSameFamily(
                dist.Categorical(probs=jnp.array([0.5, 0.6])), dist.Normal(jnp.zeros(2), 1.0)
            ),
            "Categorical got probs",
            "dist.Categorical(probs=jax.nn.softmax(logits))",
        ),
        (
            lambda: dist.MixtureSameFamily(
                dist.Categorical(probs=jnp.array([0.5, 0.5])), dist.Normal(jnp.zeros(2), -1.0)
            ),
            "Normal got scale = -1.0",
            "jnp.exp(log_scale)",
        ),
    ],
)
def test_a_constant_outside_its_domain(make, problem, mended):
    with site_refused("x", problem, mended):
        start(with_prior(make))


@pytest.mark.parametrize(
    ("make", "problem", "mended"),
    [
        (
            lambda x: dist.Normal(0.0, -x),
            "Normal got scale = -2.0, which is not positive",
            "dist.Normal(..., scale=jnp.exp(log_scale))",
        ),
        (
            lambda x: dist.Bernoulli(x),
            "Bernoulli got probs = 2.0, which is not between 0 and 1",
            "dist.Bernoulli(probs=jax.nn.sigmoid(logit))",
        ),
        (
            lambda x: dist.Bernoulli(probs=-0.5),
            "Bernoulli got probs = -0.5",
            "dist.Bernoulli(probs=jax.nn.sigmoid(logit))",
        ),
        (
            lambda x: dist.Binomial(10, probs=1.1),
            "Binomial got probs = 1.1",
            "dist.Binomial(..., probs=jax.nn.sigmoid(logit))",
        ),
        (
            lambda x: dist.Categorical(probs=jnp.array([0.5, 0.7])),
            "which is not non-negative with sum 1",
            "dist.Categorical(probs=jax.nn.softmax(logits))",
        ),
        (lambda x: dist.Poisson(-x), "Poisson got rate = -2.0", "rate=jnp.exp(log_rate)"),
    ],
)
def test_a_likelihood_whose_parameter_is_outside_its_domain(make, problem, mended):
    with site_refused("y", problem, mended):
        start(with_likelihood(make), jnp.array([0, 1, 1]))


def test_a_latent_scale_of_a_latent_site():
    def model(y):
        scale = numpyro.sample("scale", dist.Normal(-1.0, 1.0))
        x = numpyro.sample("x", dist.Normal(0.0, scale))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    with site_refused("x", "Normal got scale = -1.0", "scale=jnp.exp(log_scale)"):
        start(model, Y)


@pytest.mark.parametrize("noise", [-1.0, jnp.array(-1.0)], ids=["python", "jax"])
def test_a_negative_scale_inside_a_scan(noise):
    with site_refused("y", "Normal got scale = -1.0", "scale=jnp.exp(log_scale)"):
        start(walk, Y, noise)


def test_a_negative_scale_at_one_step_of_a_scan():
    def model(scales):
        def step(x, scale):
            return numpyro.sample("x", dist.Normal(x, scale)), None

        scan(step, 0.0, scales)

    with site_refused("x", "Normal got scale = -4.0", "scale=jnp.exp(log_scale)"):
        start(model, jnp.array([1.0, -4.0, 2.0]))


def test_a_negative_scale_in_a_branch():
    def model():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))

        def branch(scale):
            return lambda _: numpyro.sample("z", dist.Normal(0.0, scale))

        cond(x > 0, branch(1.0), branch(-1.0), None)

    with site_refused("z", "Normal got scale = -1.0", "scale=jnp.exp(log_scale)"):
        start(model)


def test_the_edge_of_a_domain_at_the_centre_of_a_prior():
    at_zero, below = (dist.Normal(0.0, scale, validate_args=False) for scale in (0.0, -1.0))
    check_distribution("y", at_zero, edge_is_fine=True)
    with refused(SiteError, "scale = -1.0, which is not positive or 0"):
        check_distribution("y", below, edge_is_fine=True)


def test_a_scale_that_is_zero_only_at_the_centre_of_its_prior():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(0.0, jnp.abs(x)), obs=y)

    start(model, Y)


def test_a_scale_that_is_negative_at_draws_but_not_at_the_centre():
    with site_refused("y", "got scale = -", "scale=jnp.exp(log_scale)"):
        start(with_likelihood(lambda x: dist.Normal(0.0, x - 1.5)), Y)


# ------------------------------------------------------------------- data outside the support


@pytest.mark.parametrize(
    ("make", "y", "problem"),
    [
        (
            lambda x: dist.Poisson(jnp.exp(x)),
            jnp.array([1, -1, 2]),
            "1 observed value(s) lie outside the support of Poisson (the first, -1 at index (1,), "
            "is not a whole number from 0 up)",
        ),
        (
            lambda x: dist.Poisson(jnp.exp(x)),
            jnp.array([1.5, 1.0, 2.0]),
            "the first, 1.5 at index (0,)",
        ),
        (
            lambda x: dist.Categorical(logits=x * jnp.ones(3)),
            jnp.array([0, 3, 4]),
            "2 observed value(s) lie outside the support of Categorical (the first, 3 at index "
            "(1,), is not a whole number from 0 to 2)",
        ),
        (
            lambda x: dist.Beta(jnp.exp(x), 1.0),
            jnp.array([0.5, 1.2, 0.3]),
            "is not between 0 and 1",
        ),
        (
            lambda x: dist.Exponential(jnp.exp(x)).expand([3]).to_event(1),
            jnp.array([0.5, -1.0, 0.3]),
            "the first, -1.0 at index (1,), is not positive",
        ),
        (
            lambda x: dist.Dirichlet(jnp.exp(x) * jnp.ones(3)),
            jnp.array([0.5, 0.6, 0.3]),
            "is not non-negative with sum 1",
        ),
    ],
)
def test_data_outside_the_support(make, y, problem):
    with site_refused("y", problem, 'numpyro.sample("y", ..., obs=y)   # with every value of y '):
        start(with_likelihood(make), y)


def counts(y, mask=True):
    def step(x, y_t):
        x = numpyro.sample("x", dist.Normal(x, 1.0))
        with handlers.mask(mask=(y_t >= 0) | jnp.logical_not(mask)):
            numpyro.sample("y", dist.Poisson(jnp.exp(x)), obs=y_t)
        return x, None

    scan(step, 0.0, y)


def test_data_outside_the_support_inside_a_scan_unless_masked():
    y = jnp.array([1, -1, 2])
    start(counts, y)
    with site_refused("y", "Poisson (the first, -1 at index (1,)", "a whole number from 0 up"):
        start(counts, y, False)


def test_rounding_of_proportions_is_no_mistake():
    start(with_likelihood(lambda x: dist.Dirichlet(jnp.exp(x) * jnp.ones(3))), jnp.full(3, 0.33334))


def test_angles_come_back_after_a_full_turn():
    start(with_likelihood(lambda x: dist.VonMises(x, 1.0)), jnp.array([0.0, 4.0]))


# -------------------------------------------------------------- models that cannot be used at all


@pytest.mark.parametrize(
    "model",
    [lambda: None, lambda: numpyro.sample("y", dist.Normal(0.0, 1.0), obs=1.0)],
    ids=["empty", "observed"],
)
def test_a_model_without_a_latent_site(model):
    with refused(ModelError, "the model has no latent site", 'numpyro.sample("x", prior)'):
        start(model)


def test_a_latent_site_in_a_reversed_scan():
    with site_refused(
        "x",
        "it is latent under `scan(..., reverse=True)`",
        "xs = jax.tree.map(lambda x: x[::-1], xs)",
    ):
        start(lambda y: walk(y, reverse=True), Y)


def test_a_parameter_inside_a_scan():
    def model(y):
        def step(x, y_t):
            scale = numpyro.param("scale", 1.0, constraint=constraints.positive)
            x = numpyro.sample("x", dist.Normal(x, scale))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y_t)
            return x, None

        scan(step, 0.0, y)

    with site_refused(
        "scale",
        "a `numpyro.param` stands inside the body of a `scan`",
        'value = numpyro.param("scale", ...)   # before the scan',
    ):
        start(model, Y)


def test_a_cond_whose_branches_have_different_sites():
    def model():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        cond(x > 0, lambda _: numpyro.sample("a", dist.Normal(0.0, 1.0)), lambda _: 0.0, None)

    with site_refused(
        "a", "it stands in the true branch of a `cond` alone", 'numpyro.sample("a", ...)'
    ):
        start(model)


def test_a_cond_whose_branches_have_sites_of_different_shapes():
    def model():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))

        def branch(size):
            return lambda _: numpyro.sample("a", dist.Normal(jnp.zeros(size), 1.0)).sum()

        cond(x > 0, branch(1), branch(2), None)

    with site_refused("a", "shape", "numpyro.sample"):
        start(model)


def test_a_cond_with_more_data_than_the_distribution_has_entries():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))

        def branch(scale):
            return lambda _: numpyro.sample("y", dist.Normal(x, scale), obs=y)

        cond(y[0] > 0, branch(1.0), branch(2.0), None)

    start(model, Y)


# ---------------------------------------------------------- Python that asks for a latent's value


def python_if(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    if x > 0:
        x = -x
    numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def python_if_in_a_scan(y):
    def step(x, y_t):
        x = numpyro.sample("x", dist.Normal(x, 1.0))
        if x > 0:
            x = -x
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y_t)
        return x, None

    scan(step, 0.0, y)


def python_range(y):
    x = numpyro.sample("x", dist.Poisson(3.0))
    for _ in range(x):
        pass
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


MASK_MENDED = "jnp.where(keep, x, 0.0)   # instead of x[keep]"


@pytest.mark.parametrize(
    ("model", "problem", "mended"),
    [
        (python_if, "decides on its value (test_bad_input.py, line", "cond(x > 0, if_true, if_fal"),
        (python_if_in_a_scan, "`if x > 0:`", "from numpyro.contrib.control_flow import cond"),
        (python_range, "counts with its value", "for i in range(largest):"),
        (with_likelihood(lambda x: dist.Normal(float(x), 1.0)), "plain number", "instead of float"),
        (with_likelihood(lambda x: dist.Normal(np.sin(x), 1.0)), "through NumPy", "jnp.sin(x)"),
        (with_likelihood(lambda x: dist.Normal(x[x > 0].sum(), 1.0)), "picks entries", MASK_MENDED),
    ],
    ids=["if", "if-in-scan", "range", "float", "numpy", "index"],
)
def test_python_that_asks_for_the_value_of_a_latent_site(model, problem, mended):
    with site_refused("x", problem, mended):
        start(model, Y)


def test_python_that_asks_for_what_is_computed_from_a_latent_site():
    def model(y):
        square = numpyro.sample("x", dist.Normal(0.0, 1.0)) ** 2
        doubled = square * 2
        while doubled > 1:
            doubled = doubled / 2
        numpyro.sample("y", dist.Normal(doubled, 1.0), obs=y)

    with refused(ModelError, "decides on a value", "`while doubled > 1:`", "cond(doubled > 1"):
        start(model, Y)


def test_python_that_asks_for_a_value_in_code_without_source():
    code = """
def model():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    if x > 0:
        pass
"""
    names = {"numpyro": numpyro, "dist": dist}
    exec(compile(code, "<made here>", "exec"), names)
    with refused(ModelError, "decides on a value (<made here>, line 4), which", "cond(x > 0"):
        start(names["model"])


def test_any_other_failure_shows_the_line_of_the_model():
    def model():
        numpyro.sample("x", 3.0)

    with refused(
        SiteError,
        "site 'x': the model failed (test_bad_input.py, line",
        "TypeError",
        "numpyro.handlers.seed(model, 0)(*args)",
    ):
        start(model)


# ------------------------------------------------------------- sites without reparameterised draws


def coin(y):
    z = numpyro.sample("z", dist.Categorical(probs=jnp.array([0.5, 0.5])))
    numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=y)


def hidden_markov(y):
    def step(z, y_t):
        z = numpyro.sample("z", dist.Categorical(probs=jnp.array([[0.9, 0.1], [0.2, 0.8]])[z]))
        numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=y_t)
        return z, None

    scan(step, 0, y)


@pytest.mark.filterwarnings("ignore:Currently, SVI with ELBO loss does not support")
@pytest.mark.parametrize("model", [coin, hidden_markov], ids=["plain", "scan"])
def test_a_discrete_latent_site_is_trained(model):
    before, after = untrained(model, Y), run(model, Y).params
    name = "auto/z/probs/data_term"
    assert not np.allclose(before[name], after[name])


def two_humps(y):
    weights = dist.Categorical(probs=jnp.array([0.5, 0.5]))
    z = numpyro.sample("z", dist.MixtureSameFamily(weights, dist.Normal(jnp.arange(2.0), 1.0)))
    numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


@pytest.mark.filterwarnings("ignore:.*score-function:UserWarning")
@pytest.mark.parametrize("model", [angle, two_humps], ids=["angle", "mix"])
def test_a_continuous_latent_site_without_reparameterised_draws_is_trained(model):
    result = run(model, Y)
    assert np.isfinite(result.losses).all()
    before = untrained(model, Y)
    assert any(not np.allclose(before[name], x) for name, x in result.params.items())


# ------------------------------------------------------------------- distributions not known


class Cosine(dist.Distribution):
    """A distribution of the user's own."""

    arg_constraints = {"loc": constraints.real, "width": constraints.positive}
    support = constraints.real
    reparametrized_params = ["loc", "width"]

    def __init__(self, loc, width):
        self.loc, self.width = loc, width
        super().__init__(jnp.broadcast_shapes(jnp.shape(loc), jnp.shape(width)))

    def sample(self, key, sample_shape=()):
        return self.loc + self.width * jax.random.uniform(key, sample_shape + self.shape())

    def log_prob(self, value):
        return -jnp.log(self.width) + 0.0 * value


@pytest.mark.parametrize(
    "make", [lambda: Cosine(0.0, 1.0), lambda: Cosine(0.0, 1.0).expand([3]).to_event(1)]
)
def test_a_distribution_of_the_users_own(make):
    leaves = '{"loc": constraints.real, "width": constraints.positive}'
    line = f"asvi.register_parameters(Cosine, {leaves})"
    with site_refused("x", "asvi does not know the parameters of Cosine", line):
        start(with_prior(make))


@pytest.mark.parametrize(
    ("make", "problem", "mended"),
    [
        (
            lambda: dist.EulerMaruyama(jnp.arange(3.0), lambda x, t: (x, 1.0), dist.Normal(0, 1)),
            "EulerMaruyama hides its steps",
            "scan(step, x0, dts)",
        ),
        (lambda: dist.DiscreteUniform(0, 3), "Uniform has only bounds", "dist.Categorical("),
        (lambda: dist.TruncatedPolyaGamma(), "has no parameters to learn", "dist.Gamma("),
        (
            lambda: dist.RightCensoredDistribution(dist.Normal(0.0, 1.0), jnp.array(0)),
            "describes data, not a latent quantity",
            "numpyro.sample(..., obs=y)",
        ),
    ],
    ids=["EulerMaruyama", "DiscreteUniform", "TruncatedPolyaGamma", "RightCensored"],
)
def test_a_refused_distribution(make, problem, mended):
    with site_refused("x", problem, mended):
        start(with_prior(make))


# --------------------------------------------------------------------------- wrong settings


@pytest.mark.parametrize("family", ["mean_field", MeanField, {"x": "mean_field"}], ids=str)
def test_a_family_that_is_none(family):
    with refused(
        FamilyError, "is neither a family nor a dict of them", "family=asvi.families.MeanField()"
    ):
        AutoASVI(normal, family=family)


def test_a_family_for_a_site_that_does_not_exist():
    with refused(FamilyError, "family={'theta*': ...} fits no latent site", "latent sites are x"):
        start(normal, Y, family={"theta*": MeanField()})


@pytest.mark.parametrize("weight", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_prior_weight_outside_the_open_unit_interval(weight):
    with refused(FamilyError, "strictly between 0 and 1", "ConvexUpdate(initial_prior_weight=0.9"):
        ConvexUpdate(initial_prior_weight=weight)


@pytest.mark.parametrize("family", [ConvexUpdate, MeanField])
@pytest.mark.parametrize(
    ("setting", "first", "last"),
    [("start", "prior_mean", "random"), ("parameterization", "expectation", "natural")],
)
def test_a_setting_that_is_not_known(family, setting, first, last):
    with refused(FamilyError, f"{setting}='other' is not known", "choose one of", first, last):
        family(**{setting: "other"})


def test_a_parameterization_that_a_distribution_lacks():
    with site_refused(
        "x",
        "Gumbel has no 'natural' parameterisation (it has: expectation)",
        'ConvexUpdate(parameterization="expectation")',
    ):
        start(
            with_prior(lambda: dist.Gumbel(0.0, 1.0)),
            family=ConvexUpdate(parameterization="natural"),
        )


def test_wrong_settings_of_the_loss():
    with refused(AsviError, "num_particles must be a whole number from 1 up, got 0"):
        asvi.ELBO(num_particles=0)
    with refused(AsviError, "estimator='score' is not known", "plain, path, analytic"):
        asvi.ELBO(estimator="score")


# ------------------------------------------------------- NumPyro's losses where they are wrong

OURS = "svi = numpyro.infer.SVI(model, guide, optimizer, asvi.ELBO())"


@pytest.mark.parametrize(
    ("model", "loss", "site", "problem"),
    [
        (switch, Trace_ELBO(), "z", "inside a `cond`, which ignores `replay`: Trace_ELBO would"),
        (switch, TraceMeanField_ELBO(), "z", "inside a `cond`"),
        (switch, TraceGraph_ELBO(), "z", "inside a `cond`"),
        (walk, TraceGraph_ELBO(), "x", "inside a `scan`, where TraceGraph_ELBO gives biased grad"),
        (walk, TraceEnum_ELBO(), "x", "inside a `scan`, where TraceEnum_ELBO gives a wrong loss"),
    ],
)
def test_a_stock_loss_where_it_is_wrong(model, loss, site, problem):
    svi = make_svi(model, loss)
    for _ in range(2):  # at every call, not only at the first
        with site_refused(site, problem, OURS, LossError):
            svi.init(KEY, Y)
    with site_refused(site, problem, OURS, LossError):
        svi.run(KEY, 2, Y, progress_bar=False)


def test_a_stock_loss_on_a_site_without_reparameterised_draws():
    problem = "(VonMises) has no reparameterised draws: Trace_ELBO would give its parameters a grad"
    with site_refused("z", problem, "numpyro.infer.TraceGraph_ELBO()", LossError):
        start(angle, Y, loss=Trace_ELBO())
    assert np.isfinite(run(angle, Y, loss=TraceGraph_ELBO()).losses).all()  # as the text says


def test_a_stock_loss_called_by_hand():
    svi = make_svi(switch)
    params = svi.get_params(svi.init(KEY, Y))
    with site_refused("z", "inside a `cond`", OURS, LossError):
        Trace_ELBO().loss(KEY, params, switch, svi.guide, Y)


def test_a_stock_loss_where_it_is_right():
    assert np.isfinite(run(walk, Y, loss=Trace_ELBO()).losses).all()


class HandWritten:
    """A loss that is no class of NumPyro's."""

    def loss(self, key, params, model, guide, *args):
        with handlers.seed(rng_seed=key), handlers.substitute(data=params):
            return sum(jnp.sum(value) for value in guide(*args).values())


class Extended(asvi.ELBO):
    """A user's own version of our loss."""


def told(action: Callable[[], Any]) -> list[warnings.WarningMessage]:
    """The warnings of ours that an action gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [warning for warning in caught if "site" in str(warning.message)]


def test_a_loss_that_is_not_known_gives_one_warning_at_the_users_line():
    svi = make_svi(switch, HandWritten())

    def action():
        state = svi.init(KEY, Y)
        svi.update(state, Y)
        svi.evaluate(state, Y)

    (warning,) = told(action)
    assert warning.filename == __file__
    assert str(warning.message).startswith("site 'z': it is latent inside a `cond`")
    assert str(warning.message).endswith(OURS)


def test_a_loss_that_is_not_known_gives_no_warning_where_none_is_due():
    assert told(lambda: start(walk, Y, loss=HandWritten())) == []


def test_a_loss_that_extends_ours_is_as_good_as_ours():
    assert told(lambda: start(switch, Y, loss=Extended())) == []


def test_a_loss_that_calls_a_stock_loss_is_caught_when_it_does():
    class Delegating:
        def loss(self, *args):
            return Trace_ELBO().loss(*args)

    svi = make_svi(switch, Delegating())
    with pytest.warns(UserWarning, match="inside a `cond`"):
        state = svi.init(KEY, Y)
    with site_refused("z", "inside a `cond`", OURS, LossError):
        svi.update(state, Y)


# ------------------------------------------------------------------------------ long loops


def loop(length):
    x = 0.0
    for t in range(length):
        x = numpyro.sample(f"x_{t}", dist.Normal(x, 1.0))


def test_a_long_python_loop_is_told_of_scan():
    (warning,) = told(lambda: start(loop, 16))
    assert "16 sites like 'x_0' (Normal) in a Python loop" in str(warning.message)
    assert "numpyro.contrib.control_flow.scan" in str(warning.message)


def test_a_short_python_loop_is_not():
    assert told(lambda: start(loop, 15)) == []


def test_the_warning_about_a_long_loop_shows_the_users_line():
    (warning,) = told(lambda: start(loop, 16))
    assert warning.filename == __file__
