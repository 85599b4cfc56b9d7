"""Data that are not finite, or outside the support: the site, what is wrong, the mended line.

Driven as a user would: through ``SVI.init``, or two steps of ``SVI.run`` where the loss must run.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import cond, scan

from asvi import SiteError
from tests.support.bad_input import (
    KEY,
    Y_NAN,
    Y,
    make_svi,
    normal,
    refused,
    run,
    site_refused,
    start,
    walk,
    with_likelihood,
    with_prior,
)

pytestmark = pytest.mark.usefixtures("clean_handlers")


# -------------------------------------------------------------------------------------- NaN and inf


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


# ------------------------------------------------------------------------- data outside the support


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
