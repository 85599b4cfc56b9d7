"""Models that fail as they run, or cannot be used at all: an error that shows the line.

Driven as a user would: through ``SVI.init``, or two steps of ``SVI.run`` where the loss must run.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import cond, scan
from numpyro.distributions import constraints

from asvi import ModelError, SiteError
from tests.support.bad_input import (
    KEY,
    Y,
    make_svi,
    refused,
    site_refused,
    start,
    walk,
    warnings_of,
    with_likelihood,
)

pytestmark = pytest.mark.usefixtures("clean_handlers")


# ---------------------------------------------------------------- models that cannot be used at all


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


# ------------------------------------------------------------ Python that asks for a latent's value


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
        (
            python_if,
            "decides on its value (test_checks_failures.py, line",
            "cond(x > 0, if_true, if_fal",
        ),
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
        "site 'x': the model failed (test_checks_failures.py, line",
        "TypeError",
        "numpyro.handlers.seed(model, 0)(*args)",
    ):
        start(model)


# --------------------------------------------------------------------------------------- long loops


def loop(length):
    x = 0.0
    for t in range(length):
        x = numpyro.sample(f"x_{t}", dist.Normal(x, 1.0))


def test_a_long_python_loop_is_told_of_scan():
    (warning,) = warnings_of(lambda: start(loop, 16))
    assert "16 sites like 'x_0' (Normal) in a Python loop" in str(warning.message)
    assert "numpyro.contrib.control_flow.scan" in str(warning.message)


def test_a_short_python_loop_is_not():
    assert warnings_of(lambda: start(loop, 15)) == []


def test_the_warning_about_a_long_loop_shows_the_users_line():
    (warning,) = warnings_of(lambda: make_svi(loop).init(KEY, 16))
    assert warning.filename == __file__
