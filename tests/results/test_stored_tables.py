"""Fits whose data are tables of pandas, or masked arrays: saved, and loaded without the data."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
import pytest

import asvi
from asvi.families import StructuredNormal

Y = np.arange(6.0)


def grouped(table):
    codes, count = table["g"].cat.codes.values, len(table["g"].cat.categories)
    with numpyro.plate("group", count):
        a = numpyro.sample("a", dist.Normal(0.0, 5.0))
    numpyro.sample("y", dist.Normal(a[codes], 1.0).to_event(1), obs=table["y"].values)


def timed(table):
    since = (table["t"] - table["t"].iloc[0]).dt.total_seconds().values
    slope = numpyro.sample("slope", dist.Normal(0.0, 10.0))
    numpyro.deterministic("line", slope * since)
    numpyro.sample("y", dist.Normal(slope * since, 0.1).to_event(1), obs=table["y"].values)


def one_column(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mu, 1.0).expand([len(y)]).to_event(1), obs=y.to_numpy())


def named(table):
    """The words of a table decide how many groups there are."""
    for word in table["word"].unique():
        x = numpyro.sample(f"x {word}", dist.Normal(0.0, 10.0))
        y = table["y"].values[(table["word"] == word).values]
        numpyro.sample(f"y {word}", dist.Normal(x, 1.0).expand([len(y)]).to_event(1), obs=y)


def masked(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    seen = ~np.ma.getmaskarray(y)
    numpyro.sample("y", dist.Normal(mu, 1.0).mask(seen).to_event(1), obs=y.filled(0.0))


GROUPED = pandas.DataFrame({"g": pandas.Categorical(list("abcabc")), "y": Y})
TIMED = pandas.DataFrame({"t": pandas.date_range("2024", periods=6, freq="s"), "y": 2 * Y})


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (grouped, GROUPED),
        (grouped, GROUPED.set_index(pandas.date_range("2020", periods=6))),
        (timed, TIMED),
        (one_column, pandas.Series(Y, name="y")),
        (named, pandas.DataFrame({"word": list("aabbab"), "y": Y})),
        (masked, np.ma.masked_array(Y, [0, 0, 1, 0, 0, 0])),
    ],
    ids=["categories", "dates as index", "times", "series", "words", "masked array"],
)
def test_a_loaded_fit_has_the_same_draws(model, data, tmp_path):
    result = asvi.fit(model, data, family=StructuredNormal(), progress_bar=False)
    result.save(tmp_path / "fit.asvi")
    for given in ((), (data,)):
        loaded = asvi.load(tmp_path / "fit.asvi", model, *given)
        ours, theirs = (r.posterior.sample(jax.random.key(1), (10,)) for r in (result, loaded))
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
