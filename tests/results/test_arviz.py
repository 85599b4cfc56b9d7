"""What is handed over to ArviZ: groups, chains, names of axes, labels; in ArviZ 0.x and 1.x."""

from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import asvi
from asvi.errors import AsviError
from asvi.results.groups import GROUPS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import arviz

IS_NEW = int(arviz.__version__.split(".")[0]) >= 1
Y = np.array([28, 8, -3, 7, -1, 1, 18, 12.0])
SIGMA = np.array([15, 10, 16, 11, 9, 11, 10, 18.0])
QUICK = {"progress_bar": False}


def schools(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.LogNormal(1, 1))
    with numpyro.plate("school", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.deterministic("shift", theta - mu)
        numpyro.deterministic("both", jnp.stack([theta, mu - theta], -1))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def pooled(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    with numpyro.plate("school", 8):
        numpyro.sample("y", dist.Normal(mu, sigma), obs=y)


def groups_of(data):
    names = data.groups() if callable(data.groups) else data.groups
    return {name.strip("/") for name in names} - {""}


@pytest.fixture(scope="module")
def schools_fit():
    return asvi.fit(schools, SIGMA, Y, **QUICK)


@pytest.fixture(scope="module")
def pooled_fit():
    return asvi.fit(pooled, SIGMA, Y, **QUICK)


@pytest.fixture(scope="module")
def data(schools_fit):
    return schools_fit.to_arviz()


# -------------------------------------------------------------------------------- groups, chains


def test_all_groups_are_there_in_four_chains(data):
    assert groups_of(data) == set(GROUPS)
    for group in ("posterior", "sample_stats", "posterior_predictive", "log_likelihood"):
        assert dict(data[group].sizes)["chain"] == 4
        assert dict(data[group].sizes)["draw"] == 250
    assert {"lp", "log_p", "log_q"} <= set(data["sample_stats"].data_vars)
    assert dict(data["prior_predictive"]["y"].sizes) == {"chain": 1, "draw": 1000, "school": 8}
    np.testing.assert_allclose(data["observed_data"]["y"], Y)
    np.testing.assert_allclose(data["constant_data"]["sigma"], SIGMA)
    assert data["constant_data"]["sigma"].dims == ("school",)


def test_predictions_belong_to_the_draws_beside_them(data):
    theta = np.asarray(data["posterior"]["theta"]).reshape(-1, 8)
    noise = np.asarray(data["posterior_predictive"]["y"]).reshape(-1, 8) - theta
    np.testing.assert_allclose(noise.std(0), SIGMA, rtol=0.12)
    assert np.all(np.abs(noise.mean(0)) < 4 * SIGMA / np.sqrt(1000))


def test_draws_of_the_prior_and_its_data_belong_together(data):
    prior = np.asarray(data["prior"]["theta"])[0]
    noise = np.asarray(data["prior_predictive"]["y"])[0] - prior
    np.testing.assert_allclose(noise.std(0), SIGMA, rtol=0.12)


def test_groups_are_asked_for_by_name(schools_fit):
    assert groups_of(schools_fit.to_arviz(8, groups="prior")) == {"prior"}
    chosen = schools_fit.to_arviz(8, groups=["posterior", "observed_data"])
    assert groups_of(chosen) == {"posterior", "observed_data"}
    with pytest.raises(AsviError, match=r"no 'posteriors'; there are posterior, sample_stats"):
        schools_fit.to_arviz(8, groups=["posteriors"])
    with pytest.raises(AsviError, match="at least 1 draw"):
        schools_fit.to_arviz(0)


def test_attributes_are_those_of_the_schema(schools_fit, data):
    for group in GROUPS:
        attrs = data[group].attrs
        assert attrs["inference_library"] == "asvi"
        assert attrs["inference_library_version"]
        assert attrs["created_at"].startswith("20")
    attrs = data["posterior"].attrs
    assert attrs["sampling_time"] == schools_fit.seconds
    assert attrs["log_marginal_likelihood"] == schools_fit.log_evidence


def test_islands_of_particles_are_chains():
    result = asvi.fit(funnel, Y, **QUICK)
    assert result.correction.rung == "moves"
    found = result.to_arviz(400, groups="posterior")["posterior"]
    islands = result.correction.pool.islands
    name = result.program.latent[0].name
    pool = np.asarray(result.correction.pool.sites[name], np.float32)
    pool = pool.reshape(4, islands // 4, -1)
    for chain in range(4):
        assert np.isin(np.asarray(found[name])[chain].ravel(), pool[chain].ravel()).all()


def funnel(y):
    scale = numpyro.sample("scale", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", 8):
        x = numpyro.sample("x", dist.Normal(0.0, jnp.exp(scale)))
        numpyro.sample("y", dist.StudentT(2.0, x, 5.0), obs=y)


# ---------------------------------------------------------------------------------- ArviZ's own


def test_summary_has_no_gaps(data):
    table = arviz.summary(data, var_names=["mu", "tau", "theta"])
    assert len(table) == 10
    assert np.isfinite(table["r_hat"].astype(float)).all()
    assert (table["r_hat"].astype(float) < 1.05).all()


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")
def test_loo_and_compare(schools_fit, pooled_fit, data):
    assert np.isfinite(arviz.loo(data).elpd if IS_NEW else arviz.loo(data).elpd_loo)
    table = arviz.compare({"schools": data, "pooled": pooled_fit.to_arviz()})
    assert set(table.index) == {"schools", "pooled"}


@pytest.mark.skipif(not IS_NEW, reason="loo_approximate_posterior is of ArviZ 1.x")
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")
def test_loo_of_a_guide(pooled_fit):
    stats = pooled_fit.to_arviz(groups=["sample_stats", "log_likelihood", "posterior"])
    log_p, log_q = (stats["sample_stats"][name] for name in ("log_p", "log_q"))
    assert np.isfinite(arviz.loo_approximate_posterior(stats, log_p, log_q).elpd)


def test_the_data_can_be_written_and_read(data, tmp_path):
    pytest.importorskip("netCDF4")
    path = tmp_path / "draws.nc"
    data.to_netcdf(str(path))
    again = arviz.from_netcdf(str(path))
    np.testing.assert_allclose(again["posterior"]["theta"], data["posterior"]["theta"])


def test_the_adapter_is_what_from_numpyro_takes(schools_fit):
    if not IS_NEW:
        with pytest.raises(AsviError, match=r"ArviZ 1\.x(.|\n)*result\.to_arviz\(\)"):
            schools_fit.arviz_adapter()
        return
    found = arviz.from_numpyro(schools_fit.arviz_adapter(), log_likelihood=True)
    ours = schools_fit.to_arviz()
    np.testing.assert_allclose(found["posterior"]["theta"], ours["posterior"]["theta"])
    assert found["posterior"]["theta"].dims == ("chain", "draw", "school")
    np.testing.assert_allclose(
        found["log_likelihood"]["y"], ours["log_likelihood"]["y"], rtol=1e-4, atol=1e-4
    )
    assert {"lp", "log_q"} <= set(found["sample_stats"].data_vars)


# -------------------------------------------------------------------------------- names of axes


def dims_of(model, *args, **options):
    result = asvi.fit(model, *args, effort="quick", **QUICK)
    data = result.to_arviz(8, groups=["posterior", "log_likelihood", "observed_data"], **options)
    return {name: x.dims[2:] for name, x in data["posterior"].data_vars.items()}, data


def test_deterministic_sites_have_plates(data):
    assert data["posterior"]["shift"].dims == ("chain", "draw", "school")
    assert data["posterior"]["both"].dims == ("chain", "draw", "school", "both_dim_0")


def test_event_dims_name_axes():
    def model(y):
        with numpyro.plate("row", 3):
            infer = {"event_dims": ["part"]}
            x = numpyro.sample("x", dist.Normal(jnp.zeros(2), 1.0).to_event(1), infer=infer)
        free = numpyro.sample("free", dist.Normal(jnp.zeros(2), 1.0), infer=infer)
        numpyro.sample("y", dist.Normal(x + free, 1.0).to_event(2), obs=y)

    found, data = dims_of(model, np.ones((3, 2)), coords={"part": ["a", "b"]})
    assert found == {"x": ("row", "part"), "free": ("part",)}
    assert data["posterior"]["x"].coords["part"].values.tolist() == ["a", "b"]
    assert data["log_likelihood"]["y"].dims == ("chain", "draw")


def test_plates_of_one_name_and_two_sizes():
    def model(y):
        with numpyro.plate("i", 3):
            a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with numpyro.plate("i", 5):
            b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a.sum() + b.sum(), 1.0), obs=y)

    found, _ = dims_of(model, 1.0)
    assert found == {"a": ("i_3",), "b": ("i_5",)}


def test_a_plate_with_the_name_of_a_deterministic_site_or_of_chains():
    def model(y):
        with numpyro.plate("draw", 2), numpyro.plate("twice", 3):
            x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.deterministic("twice", 2 * x.sum())
        numpyro.sample("y", dist.Normal(x.sum(), 1.0), obs=y)

    found, _ = dims_of(model, 1.0)
    assert found == {"x": ("draw_dim", "twice_dim"), "twice": ()}


def test_sites_in_scans():
    def model(y):
        def step(before, now):
            with numpyro.plate("place", 2):
                x = numpyro.sample("x", dist.Normal(before, 1.0))
                numpyro.deterministic("twice", 2 * x)
                numpyro.sample("y", dist.Normal(x, 1.0), obs=now)
            return x, None

        scan(step, jnp.zeros(2), y)

    found, data = dims_of(model, np.zeros((4, 2)))
    assert found == {"x": ("scan0_step", "place"), "twice": ("scan0_step", "place")}
    assert data["log_likelihood"]["y"].dims[2:] == ("scan0_step", "place")
    assert data["observed_data"]["y"].dims == ("scan0_step", "place")


def test_names_with_a_slash():
    def model(y):
        with numpyro.handlers.scope(prefix="inner"):
            x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    found, _ = dims_of(model, 1.0)
    assert found == {"inner.x" if IS_NEW else "inner/x": ()}


def test_a_users_own_names_and_labels(schools_fit):
    data = schools_fit.to_arviz(
        8, dims={"both": [None, "part"]}, coords={"school": list("abcdefgh"), "part": ["l", "r"]}
    )
    assert data["posterior"]["both"].dims[2:] == ("school", "part")
    assert data["posterior"].coords["part"].values.tolist() == ["l", "r"]
    assert data["observed_data"].coords["school"].values.tolist() == list("abcdefgh")
    for wrong, said in (
        ({"coords": {"school": ["a"]}}, "'school' has 1 labels, and the axis is of length 8"),
        ({"dims": {"nobody": ["a"]}}, "no 1 axes of 'nobody'"),
        ({"dims": {"both": ["school", "school"]}}, "'school' has length 8 elsewhere, and 2"),
    ):
        with pytest.raises(AsviError, match=said):
            schools_fit.to_arviz(8, **wrong)
