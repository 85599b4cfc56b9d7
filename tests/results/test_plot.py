"""Figures: each shows something, on the axes given or on pyplot's own."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import asvi
from asvi.results.panels import density, window
from asvi.results.settings import PlotSettings

pytestmark = pytest.mark.xdist_group("test_plot")


def model(k, y=None):
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    kind = numpyro.sample("kind", dist.Bernoulli(0.4))
    with numpyro.plate("group", 4):
        a = numpyro.sample("a", dist.Normal(0.0, tau))
    numpyro.deterministic("first", a[0])
    with numpyro.plate("row", len(k)):
        numpyro.sample("y", dist.Normal(a[k] + 2.0 * kind, 1.0), obs=y)


@pytest.fixture(scope="module")
def result():
    k = np.arange(24) % 4
    y = (k - 1.5 + np.random.default_rng(0).normal(size=24)).astype(np.float32)
    return asvi.fit(model, k, y, progress_bar=False)


SEVERAL = ["pairs", "ppc", "prior_posterior", "series"]
ONE = ["graph", "losses", "prior_weights", "probabilities"]


def test_these_are_all():
    assert sorted(SEVERAL + ONE) == asvi.plot.__all__


@pytest.mark.parametrize("name", SEVERAL + ONE)
def test_a_figure_is_pyplots(result, name):
    before = plt.get_fignums()
    axes = getattr(asvi.plot, name)(result)
    assert isinstance(axes, np.ndarray) == (name in SEVERAL)
    assert len(plt.get_fignums()) == len(before) + 1
    assert plt.gcf() is np.ravel(axes)[0].figure
    for ax in np.ravel(axes):
        assert ax.lines or ax.collections or ax.patches or ax.images or ax.texts
    plt.gcf().canvas.draw()


@pytest.mark.parametrize("name", SEVERAL + ONE)
def test_it_is_drawn_where_one_says(result, name):
    _, given = plt.subplots()
    axes = getattr(asvi.plot, name)(result, ax=given)
    assert list(np.ravel(axes)) == [given]
    assert len(plt.get_fignums()) == 1


def test_several_panels_take_several_axes(result):
    _, given = plt.subplots(1, 3)
    axes = asvi.plot.prior_posterior(result, "a", ax=given)
    assert list(axes) == list(given)
    assert [ax.get_title() for ax in axes] == ["a[0]", "a[1]", "a[2]"]


def test_names_are_chosen(result):
    axes = asvi.plot.prior_posterior(result, ["tau", "first"])
    assert [ax.get_title() for ax in axes] == ["tau", "first"]
    axes = asvi.plot.prior_posterior(result, max_subplots=3)
    assert [ax.get_title() for ax in axes] == ["tau", "kind", "a[0]"]
    (ax,) = asvi.plot.pairs(result, ["a"], max_subplots=1)
    assert ax.get_xlabel()[:2] == ax.get_ylabel()[:2] == "a["
    assert asvi.plot.series(result, "a")[0].get_ylabel() == "a"
    assert asvi.plot.ppc(result, "y")[0].get_xlabel() == "y"
    image = asvi.plot.probabilities(result, "kind").images[0].get_array()
    np.testing.assert_allclose(image.sum(0), 1.0)


@pytest.mark.parametrize("name", [*SEVERAL, "probabilities"])
def test_a_wrong_name_lists_those_that_there_are(result, name):
    known = "y" if name == "ppc" else "tau, kind, a"
    with pytest.raises(asvi.AsviError, match=f"no 'b'; it has {known}"):
        getattr(asvi.plot, name)(result, "b")


def test_what_has_no_such_picture_says_which_it_has(result):
    with pytest.raises(asvi.SiteError, match="prior_posterior"):
        asvi.plot.probabilities(result, "tau")
    with pytest.raises(asvi.SiteError, match="prior_posterior"):
        asvi.plot.series(result, "tau")


def test_a_heavy_tail_leaves_the_posterior_in_sight(result):
    (ax,) = asvi.plot.prior_posterior(result, "tau")
    posterior = result.draws["tau"]
    low, high = ax.get_xlim()
    inside = np.mean((posterior >= low) & (posterior <= high))
    assert inside > 0.97
    assert high - low < 6 * np.ptp(np.quantile(posterior, [0.005, 0.995]))


def test_a_density_is_right_up_to_the_end_of_its_support():
    rng = np.random.default_rng(1)
    grid = np.linspace(0.0, 3.0, 200)
    found = density(rng.exponential(size=20_000), grid, (0.0, np.inf))
    np.testing.assert_allclose(found, np.exp(-grid), atol=0.07)
    cauchy = rng.standard_cauchy(size=20_000)
    found = density(cauchy, np.linspace(-3, 3, 200))
    np.testing.assert_allclose(found, 1 / np.pi / (1 + np.linspace(-3, 3, 200) ** 2), atol=0.02)
    assert window(cauchy, cauchy, PlotSettings())[1] < 200


@pytest.mark.parametrize(
    ("old", "new", "arguments"),
    [
        ("marginals", "prior_posterior", {"sites": ["tau"], "most": 1}),
        ("predictive_check", "ppc", {"draws": 10}),
        ("bands", "series", {"site": "a"}),
        ("elbo_trace", "losses", {}),
    ],
)
def test_names_of_0_1_say_those_of_today(result, old, new, arguments):
    with pytest.warns(FutureWarning, match=f"asvi.plot.{old}` is now `asvi.plot.{new}`"):
        call = getattr(asvi.plot, old)
    assert call is getattr(asvi.plot, new)
    if arguments:
        with pytest.warns(FutureWarning, match="is now"):
            call(result, **arguments)
