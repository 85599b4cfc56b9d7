"""AutoASVI as a NumPyro guide: plates, handlers, modules, dtypes, families, draws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from flax import linen as nn
from jax.example_libraries import stax
from numpyro import handlers
from numpyro.contrib.module import flax_module, random_flax_module
from numpyro.distributions import constraints
from numpyro.infer import SVI, Predictive
from numpyro.infer.reparam import LocScaleReparam

import asvi
from asvi.families import ConvexUpdate, Family, MeanField, Parameter
from tests.support.helpers import fit, params_of

Y = jnp.array([2.0, 3.0, 4.5])


def groups(y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    with numpyro.plate("group", 3):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.deterministic("shifted", theta + 1.0)
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


@pytest.fixture(scope="module")
def fitted():
    return fit(groups, Y, steps=1500)


def test_parameter_names_are_the_contract(fitted):
    _, result = fitted
    names = {n for n in result.params if n.startswith("auto/theta/")}
    assert names == {
        "auto/theta/loc/prior_weight",
        "auto/theta/loc/data_term",
        "auto/theta/scale/prior_weight",
        "auto/theta/scale/data_term",
    }
    assert all(result.params[n].shape == (3,) for n in names)


def test_two_parameters_per_parameter_of_the_model():
    def model():
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with numpyro.plate("n", 4):
            numpyro.sample("b", dist.Gamma(2.0, jnp.exp(a)))
        numpyro.sample("c", dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
        numpyro.sample("y", dist.Normal(a, 1.0), obs=0.0)

    svi = SVI(model, asvi.AutoASVI(model), optax.sgd(1.0), asvi.ELBO())
    free = svi.optim.get_params(svi.init(jax.random.key(0)).optim_state)
    parameters_of_the_model = 2 + 4 * 2 + (3 + 6)
    assert sum(x.size for x in free.values()) == 2 * parameters_of_the_model


def test_draws_medians_and_quantiles(fitted, key):
    guide, result = fitted
    draws = guide.sample_posterior(key, result.params, sample_shape=(400, 5))
    assert draws["theta"].shape == (400, 5, 3)
    np.testing.assert_allclose(draws["shifted"], draws["theta"] + 1.0, rtol=1e-6)
    assert "y" not in draws
    median = guide.median(result.params)
    low, high = (guide.quantiles(result.params, [0.05, 0.95])["theta"][i] for i in (0, 1))
    assert bool(jnp.all((low < median["theta"]) & (median["theta"] < high)))
    np.testing.assert_allclose(median["theta"], jnp.median(draws["theta"], (0, 1)), atol=0.15)


def test_predictive_with_and_without_data(fitted, key):
    guide, result = fitted
    for args in ((Y,), ()):
        drawn = Predictive(guide, params=result.params, num_samples=7)(key, *args)
        assert drawn["theta"].shape == (7, 3)
        assert "y" not in drawn
    predicted = Predictive(groups, guide=guide, params=result.params, num_samples=4000)(key)
    assert predicted["y"].shape == (4000, 3)
    expected = guide.sample_posterior(key, result.params, sample_shape=(4000,))["theta"].mean(0)
    np.testing.assert_allclose(predicted["y"].mean(0), expected, atol=0.15)


def test_the_guide_keeps_the_dependence_that_mean_field_loses(fitted, key):
    guide, result = fitted
    kept = guide.sample_posterior(key, result.params, sample_shape=(4000,))
    free_guide, free = fit(groups, Y, steps=1500, family=MeanField())
    lost = free_guide.sample_posterior(key, free.params, sample_shape=(4000,))

    def correlation(d):
        return float(np.corrcoef(d["mu"], d["theta"][:, 0])[0, 1])

    assert correlation(kept) > 0.1
    assert abs(correlation(lost)) < 0.06
    assert {n.rsplit("/", 1)[1] for n in free.params} == {"data_term"}


def test_subsampled_plates_have_full_size_parameters_and_unbiased_losses(float64):
    y = jnp.asarray(np.random.default_rng(1).normal(size=6) + 2.0)

    def model(y, size):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        with numpyro.plate("row", 6, subsample_size=size) as rows:
            x = numpyro.sample("x", dist.Normal(mu, 1.0))
            numpyro.sample("y", dist.Normal(x, 0.5), obs=y[rows])

    guide = asvi.AutoASVI(model)
    params = params_of(guide, y, 2)
    assert params["auto/x/loc/data_term"].shape == (6,)
    keys = jax.random.split(jax.random.key(0), len(params))
    params = {
        n: jax.random.uniform(k, v.shape, minval=0.3, maxval=0.9)
        for (n, v), k in zip(params.items(), keys, strict=True)
    }

    def estimates(size, draws):
        one = jax.value_and_grad(
            lambda p, k: asvi.ELBO(estimator="analytic").loss(k, p, model, guide, y, size)
        )
        return jax.jit(jax.vmap(one, (None, 0)))(
            params, jax.random.split(jax.random.key(size), draws)
        )

    part, whole = estimates(2, 40_000), estimates(6, 40_000)
    for a, b in zip(jax.tree.leaves(part), jax.tree.leaves(whole), strict=True):
        spread = np.sqrt((np.var(a, 0) + np.var(b, 0)) / len(a))
        assert np.all(np.abs(np.mean(a, 0) - np.mean(b, 0)) < 4.5 * spread + 1e-9)


def test_nested_and_crossed_plates(key):
    def model(y):
        with numpyro.plate("column", 3, dim=-1):
            c = numpyro.sample("c", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", 2, dim=-2):
            r = numpyro.sample("r", dist.Normal(0.0, 1.0))
            with numpyro.plate("column2", 3, dim=-1):
                x = numpyro.sample("x", dist.Dirichlet(jnp.ones(4) * jnp.exp(c + r)[..., None]))
                numpyro.sample("y", dist.Normal(x.sum(-1) + c, 1.0), obs=y)

    params = params_of(asvi.AutoASVI(model), jnp.zeros((2, 3)))
    assert params["auto/r/loc/data_term"].shape == (2, 1)
    assert params["auto/x/concentration/data_term"].shape == (2, 3, 4)
    program = asvi.Program.of(model, jnp.zeros((2, 3)))
    assert program["x"].parents == ("c", "r")
    assert [str(p) for p in program["x"].plates] == ["column2[3]", "row[2]"]


def test_per_site_families_stay_connected():
    family = {"theta*": ConvexUpdate(initial_prior_weight=0.9), "mu": MeanField()}
    guide = asvi.AutoASVI(groups, family=family)
    params = params_of(guide, Y)
    assert "auto/mu/loc/prior_weight" not in params
    assert "auto/tau/loc/prior_weight" in params  # the default
    np.testing.assert_allclose(params["auto/theta/loc/prior_weight"], 0.9, rtol=1e-5)


def test_a_family_of_the_users_own(key):
    class Shifted(Family):
        def declare(self, site):
            return {"shift": Parameter(site.full_batch_shape, constraints.real)}

        def update(self, prior, parameters, site):
            scale = prior.variance**0.5
            return dist.Normal(prior.mean + parameters["shift"] * scale, scale)

    _, result = fit(groups, Y, steps=50, family={"theta": Shifted()})
    assert result.params["auto/theta/shift"].shape == (3,)


@pytest.mark.parametrize("start", ["prior_mean", "prior_draw", "random"])
@pytest.mark.parametrize("family", [ConvexUpdate, MeanField])
def test_every_start_is_finite(family, start, key):
    guide = asvi.AutoASVI(groups, family=family(start=start))
    svi = SVI(groups, guide, optax.adam(1e-2), asvi.ELBO(num_particles=16))
    loss, gradient = jax.value_and_grad(
        lambda p: svi.loss.loss(key, svi.constrain_fn(p), groups, guide, Y)
    )(svi.optim.get_params(svi.init(key, Y).optim_state))
    assert bool(jnp.isfinite(loss))
    assert all(bool(jnp.all(jnp.isfinite(g))) for g in gradient.values())


def test_the_start_is_the_prior(key):
    """Before training the guide draws (almost) from the prior."""
    guide = asvi.AutoASVI(groups)
    params = params_of(guide, Y)
    draws = guide.sample_posterior(key, params, Y, sample_shape=(20_000,))
    assert float(draws["mu"].std()) == pytest.approx(5.0, rel=0.05)
    assert float(draws["tau"].mean()) == pytest.approx(2.0 * np.sqrt(2 / np.pi), rel=0.05)
    assert float((draws["theta"][:, 0] - draws["mu"]).std()) == pytest.approx(2.0, rel=0.05)


def test_restarts_from_other_keys_differ_and_the_same_key_repeats():
    guide = asvi.AutoASVI(groups, family=ConvexUpdate(start="prior_draw"))
    svi = SVI(groups, guide, optax.adam(1e-2), asvi.ELBO())
    keys = jax.random.split(jax.random.key(0), 3)
    params = jax.vmap(lambda k: svi.get_params(svi.init(k, Y)))(keys)
    starts = params["auto/theta/loc/data_term"][:, 0]
    assert len(set(np.asarray(starts).tolist())) == 3
    again = svi.get_params(svi.init(keys[1], Y))
    np.testing.assert_allclose(again["auto/theta/loc/data_term"][0], starts[1], rtol=1e-6)


def test_support_that_depends_on_a_parent_follows_it(key):
    def model(y):
        a = numpyro.sample("a", dist.Uniform(0.0, 1.0))
        b = numpyro.sample("b", dist.Uniform(0.0, 1.0 - a))
        numpyro.sample("y", dist.Normal(a - b, 0.1), obs=y)

    for family in (ConvexUpdate(), MeanField()):
        guide, result = fit(model, 0.3, steps=400, family=family)
        draws = guide.sample_posterior(key, result.params, sample_shape=(4000,))
        assert bool(jnp.all(draws["a"] + draws["b"] <= 1.0))
        assert bool(jnp.isfinite(result.losses[-1]))
        assert float((draws["a"] - draws["b"]).mean()) == pytest.approx(0.3, abs=0.06)


# ------------------------------------------------------------------------- handlers in the model


def simple(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    z = numpyro.sample("z", dist.Normal(x, 1.0))
    numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def test_condition_and_do():
    conditioned = handlers.condition(simple, {"x": jnp.array(1.0)})
    params = params_of(asvi.AutoASVI(conditioned), 0.5)
    assert not any("/x/" in n for n in params)
    guide, result = fit(conditioned, 0.5, steps=800)
    assert float(guide.median(result.params)["z"]) == pytest.approx(0.75, abs=0.1)
    intervened = handlers.do(simple, {"x": jnp.array(1.0)})
    guide, result = fit(intervened, 0.5, steps=800)
    assert float(guide.median(result.params)["z"]) == pytest.approx(0.75, abs=0.1)


def test_scope_and_reparam(key):
    scoped = handlers.scope(simple, prefix="inner")
    assert "auto/inner/z/loc/data_term" in params_of(asvi.AutoASVI(scoped), 0.5)
    decentered = handlers.reparam(groups, {"theta": LocScaleReparam(0.0)})
    guide, result = fit(decentered, Y, steps=300)
    assert "auto/theta_decentered/loc/data_term" in result.params
    draws = guide.sample_posterior(key, result.params, sample_shape=(9,))
    assert draws["theta"].shape == (9, 3)  # deterministic now


@pytest.mark.slow
def test_factor_scale_and_mask(float64, key):
    """Each changes the model's density as it should, and never the guide's."""

    def model(y):
        with handlers.scale(scale=3.0):
            x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.factor("pull", -0.5 * (x - y) ** 2)

    guide, result = fit(model, 2.0, steps=1500, estimator="path")
    # density exp(-3 x²/2 - (x-2)²/2): normal with precision 4 and mean 1/2
    draws = guide.sample_posterior(key, result.params, sample_shape=(20_000,))
    assert float(draws["x"].mean()) == pytest.approx(0.5, abs=0.02)
    assert float(draws["x"].std()) == pytest.approx(0.5, abs=0.02)

    used = jnp.array([True, False])

    def masked(y):
        with numpyro.plate("n", 2), handlers.mask(mask=used):
            x = numpyro.sample("x", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    guide, result = fit(masked, jnp.array([1.0, 1.0]), steps=800)
    elbo = -asvi.ELBO(num_particles=4000).loss(key, result.params, masked, guide, jnp.ones(2))
    exact = float(dist.Normal(0.0, jnp.sqrt(2.0)).log_prob(1.0))
    assert float(elbo) == pytest.approx(exact, abs=0.02)


def test_partly_observed_sites(key):
    seen = jnp.array([True, False, True])

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("n", 3):
            numpyro.sample("y", dist.Normal(mu, 0.5), obs=y, obs_mask=seen)

    guide, result = fit(model, jnp.array([1.0, 0.0, 1.2]), steps=800)
    draws = guide.sample_posterior(key, result.params, sample_shape=(4000,))
    assert float(draws["mu"].mean()) == pytest.approx(1.1 * 8 / 9, abs=0.05)
    assert bool(jnp.isfinite(result.losses).all())


def test_parameters_and_modules_of_the_model_are_learned_jointly(key):
    x = jnp.linspace(-1.0, 1.0, 20)[:, None]
    y = 2.0 * x[:, 0] + 1.0

    def model(x, y):
        network = numpyro.module("net", stax.Dense(1), (1,))
        noise = numpyro.param("noise", 1.0, constraint=constraints.positive)
        offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
        with numpyro.plate("n", len(x)):
            numpyro.sample("y", dist.Normal(network(x)[:, 0] + offset, noise), obs=y)

    _, result = fit(model, x, y, steps=1500, lr=5e-2)
    assert float(result.params["net$params"][0][0, 0]) == pytest.approx(2.0, abs=0.05)
    assert float(result.params["noise"]) < 0.2


@pytest.mark.slow
def test_networks_with_state_and_with_priors(key):
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.BatchNorm(use_running_average=False)(nn.Dense(4)(x))
            return nn.Dense(1)(nn.tanh(x))[:, 0]

    x = jnp.linspace(-1.0, 1.0, 20)[:, None]
    y = 2.0 * x[:, 0] + 1.0

    def with_state(x, y):
        net = flax_module("net", Net(), input_shape=(1, 1), mutable=["batch_stats"])
        offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
        with numpyro.plate("n", len(x)):
            numpyro.sample("y", dist.Normal(net(x) + offset, 0.3), obs=y)

    _, result = fit(with_state, x, y, steps=300, draws=1)
    assert result.losses[-20:].mean() < result.losses[:20].mean()
    mean = result.state.mutable_state["net$state"]["batch_stats"]["BatchNorm_0"]["mean"]
    assert float(jnp.abs(mean).max()) > 0.0  # the running mean moved

    def with_priors(x, y):
        net = random_flax_module("net", nn.Dense(1), dist.Normal(0.0, 2.0), input_shape=(1,))
        with numpyro.plate("n", len(x)):
            numpyro.sample("y", dist.Normal(net(x)[:, 0], 0.3), obs=y)

    guide, result = fit(with_priors, x, y, steps=600)
    draws = guide.sample_posterior(key, result.params, sample_shape=(500,))
    assert float(draws["net/kernel"].mean()) == pytest.approx(2.0, abs=0.15)


@pytest.mark.parametrize("x64", [False, True])
def test_float32_and_float64(x64, key):
    jax.config.update("jax_enable_x64", x64)
    try:
        guide, result = fit(groups, jnp.asarray(Y), steps=20)
        dtype = jnp.float64 if x64 else jnp.float32
        assert all(v.dtype == dtype for v in result.params.values())
        assert guide.sample_posterior(key, result.params)["theta"].dtype == dtype
    finally:
        jax.config.update("jax_enable_x64", False)


def test_the_observed_set_is_frozen_at_the_first_call(key):
    guide = asvi.AutoASVI(groups)
    params = params_of(guide, Y)
    with handlers.seed(rng_seed=key), handlers.substitute(data=params), handlers.trace() as sites:
        guide(None)
    assert "y" not in sites


def test_delta_passes_through():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        d = numpyro.sample("d", dist.Delta(2 * x))
        numpyro.sample("y", dist.Normal(d, 1.0), obs=y)

    _, result = fit(model, 1.0, steps=50)
    assert not any("/d/" in name for name in result.params)


def test_natural_and_logit_parameterisations():
    natural = asvi.AutoASVI(simple, family=ConvexUpdate(parameterization="natural"))
    assert "auto/z/precision/data_term" in params_of(natural, 0.5)
    guide, result = fit(
        simple,
        0.5,
        steps=1500,
        family=ConvexUpdate(parameterization="natural"),
    )
    assert float(guide.median(result.params)["z"]) == pytest.approx(1 / 3, abs=0.08)
