"""Models, and data, that change: between two fits, within one, and after it."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
import pytest

import asvi
from asvi.errors import AsviError, ModelError, SiteError
from asvi.families import ConvexUpdate, StructuredNormal
from asvi.program.argument_copies import Kept

Y = np.array([4.0, 5.0, 6.0])
QUICK = {"family": StructuredNormal(), "progress_bar": False}


def posterior_mean(y, sd=50.0):
    return np.sum(y) / (len(y) + sd**-2)


def mean_of(result, name="mu"):
    return np.asarray(result.posterior.mean()[name])


def likelihood(y, sd=50.0):
    mu = numpyro.sample("mu", dist.Normal(0.0, sd))
    numpyro.sample("y", dist.Normal(mu, 1.0).expand([len(y)]).to_event(1), obs=y)


# ---------------------------------------------------------------------------- between two fits


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("family", [StructuredNormal(), ConvexUpdate()])
def test_data_that_are_edited_in_place_between_two_fits(dtype, family):
    y = Y.astype(dtype)
    settings = (
        {"training": asvi.Training(num_steps=500, num_restarts=2)}
        if isinstance(family, ConvexUpdate)
        else {}
    )
    first = asvi.fit(likelihood, y, family=family, progress_bar=False, **settings)
    y += 7
    second = asvi.fit(likelihood, y, family=family, progress_bar=False, **settings)
    assert abs(mean_of(second) - posterior_mean(Y + 7)) < 0.3
    assert second.elbo > first.elbo - 1  # the data of the first would cost 70 nats


# -------------------------------------------------------------------------------- within a fit


def takes_out(data):
    likelihood(data["y"], data.pop("sd", 0.5))


def empties(rows):
    mu = numpyro.sample("mu", dist.Normal(0.0, 50.0))
    while rows:
        numpyro.sample(f"y{len(rows)}", dist.Normal(mu, 1.0), obs=rows.pop())


def halves(table):
    table["y"] = table["y"] / 2
    likelihood(table["y"].values)


@pytest.mark.parametrize(
    ("model", "data", "y"),
    [
        (takes_out, {"y": Y, "sd": 50.0}, Y),
        (empties, list(Y), Y),
        (halves, pandas.DataFrame({"y": Y}), Y / 2),
    ],
)
def test_arguments_that_a_model_changes_are_given_anew(model, data, y):
    for _ in range(2):  # the second fit finds them as the first did
        assert abs(mean_of(asvi.fit(model, data, **QUICK)) - posterior_mean(y)) < 0.05


def test_what_is_kept_comes_back():
    inner, frame = [np.ones(2), {"a": 1}], pandas.DataFrame({"x": Y, "g": [1, 2, 3]})
    given, before = {"inner": inner, "frame": frame}, frame.copy()
    kept = Kept(given)
    inner[1]["b"] = inner[0]
    inner.pop(0)
    frame["new"] = frame.pop("x")
    given.clear()
    assert kept.put_back()
    assert list(given) == ["inner", "frame"]
    assert [type(x) for x in inner] == [np.ndarray, dict]
    assert inner[1] == {"a": 1}
    pandas.testing.assert_frame_equal(frame, before)
    assert not kept.put_back()


def test_a_model_that_is_another_at_each_call_is_refused():
    count = SimpleNamespace(calls=0)

    def counting(y):
        count.calls += 1
        likelihood(y, float(count.calls))

    rng = np.random.default_rng(0)

    def drawing(y):
        likelihood(y + rng.normal())

    box = SimpleNamespace(y=Y.copy())

    def editing(box):
        box.y *= 2
        likelihood(box.y)

    for model, given, site in ((counting, Y, "mu"), (drawing, Y, "y"), (editing, box, "y")):
        with pytest.raises(SiteError, match="each time that it is called") as told:
            asvi.fit(model, given, **QUICK)
        assert told.value.site == site
        assert "Write instead" in str(told.value)


@pytest.mark.parametrize("make", [iter, lambda y: (v for v in y), lambda y: zip(y, y, strict=True)])
def test_what_can_be_read_but_once_is_refused(make):
    def model(rows):
        likelihood(np.array(list(rows["y"])))

    with pytest.raises(ModelError, match=r"argument 1\['y'\] is a .* uses up"):
        asvi.fit(model, {"y": make(Y)}, **QUICK)


# --------------------------------------------------------------------------------- after a fit


def test_a_posterior_of_a_model_that_has_changed_since():
    sd, y = [0.5], Y.copy()

    def model(y):
        likelihood(y, sd[0])

    result = asvi.fit(model, y, **QUICK)
    before = result.posterior.sample(jax.random.key(0), (10,))
    sd[0] = 50.0
    after = result.posterior.sample(jax.random.key(0), (10,))  # recorded when it was first asked
    np.testing.assert_array_equal(before["mu"], after["mu"])
    with pytest.raises(SiteError, match="when it was fitted") as told:
        result.posterior.sample(jax.random.key(0), (11,))
    assert told.value.site == "mu"
    sd[0] = 0.5
    assert abs(mean_of(result) - posterior_mean(Y, 0.5)) < 0.05
    y += 1
    with pytest.raises(SiteError, match=r"'y'.*when it was fitted"):
        result.posterior.log_likelihood(result.posterior.sample(jax.random.key(0), (5,)))


def test_functions_that_are_made_anew_change_nothing():
    def model(y):
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        shift = jax.pure_callback(lambda x: np.float32(x), shape, jnp.float32(1.0))
        likelihood(y - shift)

    assert abs(mean_of(asvi.fit(model, Y, **QUICK)) - posterior_mean(Y - 1)) < 0.05


def test_a_posterior_has_the_precision_of_its_fit():
    with jax.enable_x64(True):
        wide = asvi.fit(likelihood, Y, **QUICK)
    narrow = asvi.fit(likelihood, Y, **QUICK)
    assert abs(mean_of(wide) - posterior_mean(Y)) < 0.05
    with jax.enable_x64(True):
        assert abs(mean_of(narrow) - posterior_mean(Y)) < 0.05
        assert narrow.diagnose().verdict == "good"
    assert wide.diagnose().verdict == "good"


def test_without_jit():
    with jax.disable_jit():
        assert abs(mean_of(asvi.fit(likelihood, Y, **QUICK)) - posterior_mean(Y)) < 0.05


# ---------------------------------------------------------------------------- unclear errors


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (np.ma.masked_array(Y, [0, 0, 1]), r"masked array(.|\n)*y\.filled\(0\.0\)"),
        (Y.astype(np.complex64), r"complex numbers(.|\n)*y\.real"),
        ([4.0, 5.0, 6.0], r"are a list(.|\n)*np\.asarray\(y\)"),
        (pandas.DataFrame({"y": Y}), r"is a DataFrame(.|\n)*df\[\"y\"\]"),
        (Y.astype(np.longdouble), r"JAX does not know(.|\n)*dtype=float"),
    ],
)
def test_data_of_a_kind_that_no_density_takes(data, said):
    if np.longdouble == np.float64 and "JAX does" in said:
        pytest.skip("this machine has no wider floats")
    with pytest.raises(SiteError, match=said) as told:
        asvi.fit(likelihood, data, **QUICK)
    assert told.value.site == "y"


@pytest.mark.parametrize("site_first", [True, False])
def test_a_plate_and_a_site_of_one_name(site_first):
    def model(y):
        if site_first:
            mu = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with numpyro.plate("a", 3):
            if not site_first:
                mu = numpyro.sample("a", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    with pytest.raises(SiteError, match="site 'a': this name is used twice"):
        asvi.fit(model, Y, **QUICK)


@pytest.mark.parametrize("family", [StructuredNormal(), ConvexUpdate()])
def test_operations_without_a_derivative(family):
    def called(x):
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(np.sin, shape, x, vmap_method="sequential")

    def looped(x):
        return jax.lax.while_loop(lambda s: s < 3.0, lambda s: s + jnp.exp(x), 0.0)

    for function in (called, looped):

        def model(y, function=function):
            mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(function(mu), 1.0), obs=y)

        with pytest.raises(AsviError, match="density has no derivative"):
            asvi.fit(model, 1.0, family=family, progress_bar=False)


def test_a_model_that_jax_compiles():
    with pytest.raises(ModelError, match=r"jax\.jit(.|\n)*model\.__wrapped__"):
        asvi.fit(jax.jit(likelihood), Y, **QUICK)


def test_a_distribution_that_keeps_what_it_computed_is_no_change():
    prior = dist.TruncatedCauchy(0.0, 2.5, low=0.0)

    def model(y):
        scale = numpyro.sample("scale", prior)
        numpyro.sample("y", dist.Normal(0.0, scale), obs=y)

    result = asvi.fit(model, 1.0, progress_bar=False)
    assert np.isfinite(prior.log_prob(1.0))  # NumPyro keeps a constant of it from here on
    assert result.posterior.model_log_prob({"scale": np.ones(2, np.float32)}).shape == (2,)
    assert asvi.fit(model, 1.0, progress_bar=False).log_evidence == result.log_evidence


@pytest.mark.parametrize("what", ["mask", "scale"])
def test_a_mask_or_a_scale_that_changed_is_a_change(what):
    reads = {"mask": True, "scale": 1.0}

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        with numpyro.handlers.scale(scale=reads["scale"]):
            numpyro.sample("y", dist.Normal(mu, 1.0).mask(reads["mask"]), obs=y)

    result = asvi.fit(model, 1.0, progress_bar=False)
    reads[what] = {"mask": False, "scale": 5.0}[what]
    with pytest.raises(AsviError, match="changed"):
        result.posterior.model_log_prob({"mu": np.ones(2, np.float32)})
