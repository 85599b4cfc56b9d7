"""Shapes that do not fit, and names used twice: the site, what is wrong, the mended line.

Driven as a user would: through ``SVI.init``, or two steps of ``SVI.run`` where the loss must run.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import cond, scan
from numpyro.infer import (
    Predictive,
)

from asvi import ModelError, SiteError
from asvi.program.checks.data import check_observed
from tests.support.bad_input import (
    KEY,
    Y_NAN,
    Y,
    groups,
    make_svi,
    normal,
    refused,
    site_refused,
    start,
    walk,
    with_likelihood,
)

pytestmark = pytest.mark.usefixtures("clean_handlers")


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
        "arrays of shapes (4,) and (3,) meet and do not broadcast (test_checks_shapes.py, line",
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


# -------------------------------------------------------------------------------- a name used twice


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
