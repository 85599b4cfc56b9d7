"""Columns of pandas, polars and xarray as data; a model that takes them gets the user's own."""

from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
import pytest
from numpyro.infer.util import log_density

import asvi
from asvi.errors import AsviError, ModelError

X, Y, TOWNS = np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 5.0]), ["Ulm", "Bonn", "Kiel"]
QUICK = {"progress_bar": False, "effort": "quick"}


def line(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("town", 3):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def of_table(data):
    return line(data["x"], data["y"])


def series(x):
    return pandas.Series(x, index=TOWNS)


def polars_series(x):
    return pytest.importorskip("polars").Series("x", x)


def data_array(x):
    xarray = pytest.importorskip("xarray")
    return xarray.DataArray(x, dims="town", coords={"town": TOWNS})


class Own:
    def __init__(self, x):
        self.x = x

    def __array__(self, dtype=None, copy=None):
        return np.array(self.x, dtype)


COLUMNS = [series, polars_series, data_array, Own]


@pytest.fixture(scope="module")
def wanted():
    return asvi.fit(line, X, Y, **QUICK).posterior.mean()["slope"]


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_is_an_array(column, wanted, tmp_path):
    for model, args in (
        (line, (column(X), column(Y))),
        (line, (X, column(Y))),
        (of_table, ({"x": column(X), "y": column(Y)},)),
    ):
        result = asvi.fit(model, *args, **QUICK)
        assert result.posterior.mean()["slope"] == pytest.approx(wanted, abs=1e-6)
    result = asvi.fit(line, column(X), column(Y), **QUICK)
    data = result.to_arviz(8)
    np.testing.assert_allclose(data["observed_data"]["y"], Y)
    np.testing.assert_allclose(data["constant_data"]["x"], X)
    assert result.posterior.predictive(0, column(X), None)["y"].shape == (1000, 3)
    result.save(tmp_path / "fit.asvi")
    again = asvi.load(tmp_path / "fit.asvi", line)
    assert again.posterior.mean()["slope"] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_model_that_takes_columns_gets_them(column):
    seen = []

    def model(x, y):
        seen.append(type(x))
        return line(jnp.asarray(np.asarray(x)), jnp.asarray(np.asarray(y)))

    given = column(X)
    asvi.fit(model, given, column(Y), **QUICK)
    assert set(seen) == {type(given)}


def test_what_is_wrong_beside_columns_is_said_as_it_is():
    def model(x, y):
        return line(x.to_numpy(), jnp.log(-y.to_numpy()))

    with pytest.raises(AsviError, match="NaN or infinite"):
        asvi.fit(model, series(X), series(Y), **QUICK)
    with pytest.raises(AsviError, match="NaN or infinite"):
        asvi.fit(line, series(X), series(np.array([1.0, np.nan, 2.0])), **QUICK)


def tables():
    yield pandas.DataFrame({"x": X, "y": Y})
    try:
        import polars
        import xarray
    except ImportError:
        return
    yield polars.DataFrame({"x": X, "y": Y})
    yield xarray.Dataset({"x": ("town", X), "y": ("town", Y)})


@pytest.mark.parametrize("table", list(tables()), ids=lambda x: type(x).__module__)
def test_a_whole_table_is_no_array(table):
    for args in ((table, Y), (X, table)):
        with pytest.raises(AsviError, match=r'df\["x"\]'):
            asvi.fit(line, *args, **QUICK)


@pytest.mark.parametrize("column", [series, data_array])
def test_labels_come_with_the_data(column):
    data = asvi.fit(line, X, column(Y), **QUICK).to_arviz(8)
    for group in ("log_likelihood", "observed_data", "constant_data"):
        assert data[group].coords["town"].values.tolist() == TOWNS
    own = asvi.fit(line, X, column(Y), **QUICK).to_arviz(8, coords={"town": [1, 2, 3]})
    assert own["observed_data"].coords["town"].values.tolist() == [1, 2, 3]


def by_group(group, y):
    with numpyro.plate("group", 2):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", 3):
        numpyro.sample("y", dist.Normal(level[group], 1.0), obs=y)


def test_categories_are_codes_and_labels():
    group = pandas.Series(["u", "v", "u"], dtype="category", name="group")
    result = asvi.fit(by_group, group, Y, **QUICK)
    codes = asvi.fit(by_group, np.array([0, 1, 0]), Y, **QUICK)
    np.testing.assert_allclose(
        result.posterior.mean()["level"], codes.posterior.mean()["level"], atol=1e-6
    )
    data = result.to_arviz(8)
    assert data["posterior"].coords["group"].values.tolist() == ["u", "v"]
    np.testing.assert_array_equal(data["constant_data"]["group"], [0, 1, 0])
    with pytest.raises(ModelError, match="1 of its entries have none"):
        asvi.fit(by_group, group.where([True, False, True]), Y, **QUICK)
    with pytest.raises(ModelError, match=r"pandas\.factorize"):
        asvi.fit(by_group, group.astype(str), Y, **QUICK)


def test_labels_that_fit_two_axes_or_differ_are_left_out():
    def model(x, y):
        with numpyro.plate("left", 3):
            a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with numpyro.plate("right", 3):
            numpyro.sample("y", dist.Normal(a * x, 1.0), obs=y)

    data = asvi.fit(model, X, series(Y), **QUICK).to_arviz(8)
    assert data["posterior"].coords["left"].values.tolist() == [0, 1, 2]
    other = pandas.Series(X, index=["a", "b", "c"])
    data = asvi.fit(line, other, series(Y), **QUICK).to_arviz(8)
    assert data["observed_data"].coords["town"].values.tolist() == [0, 1, 2]
    named = pandas.Series(Y, index=pandas.Index(TOWNS, name="town"))
    data = asvi.fit(line, other, named, **QUICK).to_arviz(8)
    assert data["observed_data"].coords["town"].values.tolist() == TOWNS


def test_what_a_model_changes_in_a_data_array_is_put_back():
    pytest.importorskip("xarray")
    given = data_array(Y.copy())

    def model(x, y):
        y.values[:] = y.values / 2
        return line(x, y.values.copy())

    halves = asvi.fit(line, X, Y / 2, **QUICK).posterior.mean()["slope"]
    result = asvi.fit(model, X, given, **QUICK)
    assert result.posterior.mean()["slope"] == pytest.approx(halves, abs=1e-6)
    np.testing.assert_array_equal(given, Y)


def moved(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
    numpyro.sample("y", dist.Normal(slope * jnp.asarray(x), x.std()).to_event(1), obs=y)


def test_it_is_said_where_a_model_gets_arrays_in_place_of_columns():
    x, y = series(X), series(Y)
    with pytest.warns(asvi.DataWarning, match="argument 1, argument 2: JAX cannot compute"):
        asvi.fit(line, x, y, **QUICK)


def test_what_the_model_makes_of_its_own_columns_is_kept():
    """A scale that is pandas' own, with ddof=1, is that of the density, and nothing is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", asvi.DataWarning)
        found = asvi.fit(moved, series(X), np.asarray(Y, float), **QUICK)
    values = {"slope": jnp.asarray(0.3)}
    wanted, _ = log_density(moved, (series(X), np.asarray(Y, float)), {}, values)
    ours = found.posterior.model_log_prob({"slope": jnp.asarray([0.3])})
    np.testing.assert_allclose(ours, wanted, rtol=1e-5)
