"""Settings that are none, and NumPyro's losses where they are wrong: named, with the mended line.

Driven as a user would: through ``SVI.init``, or two steps of ``SVI.run`` where the loss must run.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import (
    Trace_ELBO,
    TraceEnum_ELBO,
    TraceGraph_ELBO,
    TraceMeanField_ELBO,
)

import asvi
from asvi import AsviError, AutoASVI, FamilyError, LossError
from asvi.families import ConvexUpdate, MeanField
from tests.support.bad_input import (
    KEY,
    Y,
    angle,
    make_svi,
    normal,
    refused,
    run,
    site_refused,
    start,
    switch,
    walk,
    warnings_of,
    with_prior,
)

pytestmark = pytest.mark.usefixtures("clean_handlers")


# ----------------------------------------------------------------------------------- wrong settings


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


# ------------------------------------------------------------ NumPyro's losses where they are wrong


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


def test_a_loss_that_is_not_known_gives_one_warning_at_the_users_line():
    svi = make_svi(switch, HandWritten())

    def action():
        state = svi.init(KEY, Y)
        svi.update(state, Y)
        svi.evaluate(state, Y)

    (warning,) = warnings_of(action)
    assert warning.filename == __file__
    assert str(warning.message).startswith("site 'z': it is latent inside a `cond`")
    assert str(warning.message).endswith(OURS)


def test_a_loss_that_is_not_known_gives_no_warning_where_none_is_due():
    assert warnings_of(lambda: start(walk, Y, loss=HandWritten())) == []


def test_a_loss_that_extends_ours_is_as_good_as_ours():
    assert warnings_of(lambda: start(switch, Y, loss=Extended())) == []


def test_a_loss_that_calls_a_stock_loss_is_caught_when_it_does():
    class Delegating:
        def loss(self, *args):
            return Trace_ELBO().loss(*args)

    svi = make_svi(switch, Delegating())
    with pytest.warns(UserWarning, match="inside a `cond`"):
        state = svi.init(KEY, Y)
    with site_refused("z", "inside a `cond`", OURS, LossError):
        svi.update(state, Y)
