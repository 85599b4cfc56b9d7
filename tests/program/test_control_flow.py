"""One model written as loop, plate and scan gives one ELBO; control flow of every kind trains."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.contrib.control_flow import cond, scan
from numpyro.handlers import mask, seed, trace
from numpyro.infer import SVI, Predictive, Trace_ELBO

import asvi
from asvi.program.control_flow.interpretation import Interpretation
from tests.support.helpers import (
    analytic_params,
    fit,
    log_evidence_of_chain,
    params_of,
    random_walk,
)

pytestmark = pytest.mark.usefixtures("float64")

Y = jnp.asarray(np.random.default_rng(0).normal(size=6).cumsum() * 0.3)


def loop(y):
    x = 0.0
    for t in range(len(y)):
        x = numpyro.sample(f"x{t}", dist.Normal(0.9 * x, 0.5))
        numpyro.sample(f"y{t}", dist.Normal(x, 0.3), obs=y[t])


def scanned(y):
    def step(x, y_t):
        x = numpyro.sample("x", dist.Normal(0.9 * x, 0.5))
        numpyro.sample("y", dist.Normal(x, 0.3), obs=y_t)
        return x, None

    scan(step, 0.0, y)


def chain_params(y, key):
    """Random parameters of the scanned chain, and the same by site of the loop."""
    params = params_of(asvi.AutoASVI(scanned), y)
    keys = jax.random.split(key, len(params))
    params = {
        name: jax.random.uniform(k, v.shape, minval=0.2, maxval=0.8)
        for (name, v), k in zip(params.items(), keys, strict=True)
    }
    by_site = {
        name.replace("/x/", f"/x{t}/"): value[t]
        for name, value in params.items()
        for t in range(len(y))
    }
    return params, by_site


def log_ratio(model, guide, values, y):
    """log p - log q at given values, as a function of the parameters."""

    def at(params):
        def total(program, data):
            with trace() as sites, numpyro.handlers.substitute(data=data), Interpretation():
                program(y)
            return sum(
                s["fn"].log_prob(s["value"]).sum() for s in sites.values() if s["type"] == "sample"
            )

        return total(model, values) - total(guide, {**params, **values})

    return at


def test_loop_and_scan_give_the_same_elbo_and_gradient(key):
    """At the same values of the latent sites: exactly."""
    params, by_site = chain_params(Y, key)
    x = jax.random.normal(key, Y.shape)
    guides = asvi.AutoASVI(scanned), asvi.AutoASVI(loop)
    for guide in guides:
        guide._setup_prototype(Y)
    value, gradient = jax.value_and_grad(log_ratio(scanned, guides[0], {"x": x}, Y))(params)
    by_name = {f"x{t}": x[t] for t in range(len(Y))}
    value_loop, gradient_loop = jax.value_and_grad(log_ratio(loop, guides[1], by_name, Y))(by_site)
    assert float(value) == pytest.approx(float(value_loop))
    for name, g in gradient.items():
        one_by_one = [gradient_loop[name.replace("/x/", f"/x{t}/")] for t in range(len(Y))]
        np.testing.assert_allclose(g, jnp.stack(one_by_one), rtol=1e-9)


@pytest.mark.slow
def test_loop_and_scan_agree_in_expectation(key):
    """Over all six steps: ELBO and every gradient, within Monte Carlo error of 20,000 draws."""
    params, by_site = chain_params(Y, key)
    results = []
    for model, p in ((scanned, params), (loop, by_site)):
        guide = asvi.AutoASVI(model)
        guide._setup_prototype(Y)
        one = jax.value_and_grad(
            lambda p, k, model=model, guide=guide: -asvi.ELBO().loss(k, p, model, guide, Y)
        )
        results.append(jax.jit(jax.vmap(one, (None, 0)))(p, jax.random.split(key, 20_000)))
    (value, gradient), (value_loop, gradient_loop) = results

    def close(a, b):
        spread = np.sqrt((np.var(a, 0) + np.var(b, 0)) / len(a))
        assert np.all(np.abs(np.mean(a, 0) - np.mean(b, 0)) < 4.5 * spread + 1e-9)

    close(value, value_loop)
    for name, g in gradient.items():
        stacked = [gradient_loop[name.replace("/x/", f"/x{t}/")] for t in range(len(Y))]
        close(g, jnp.stack(stacked, axis=1))


def test_scan_without_carry_equals_plate(key):
    """Independent steps under scan and under a plate: same parameters, same ELBO."""

    def under_scan(y):
        def step(_, y_t):
            x = numpyro.sample("x", dist.Normal(1.0, 2.0))
            numpyro.sample("y", dist.Normal(x, 0.3), obs=y_t)
            return None, None

        scan(step, None, y)

    def under_plate(y):
        with numpyro.plate("t", len(y)):
            x = numpyro.sample("x", dist.Normal(1.0, 2.0))
            numpyro.sample("y", dist.Normal(x, 0.3), obs=y)

    guides = [asvi.AutoASVI(m) for m in (under_scan, under_plate)]
    params = params_of(guides[0], Y)
    assert {n: v.shape for n, v in params.items()} == {
        n: v.shape for n, v in params_of(guides[1], Y).items()
    }
    elbo = asvi.ELBO(num_particles=40_000, estimator="analytic")
    a, b = (
        float(elbo.loss(key, params, m, g, Y))
        for m, g in zip((under_scan, under_plate), guides, strict=True)
    )
    assert a == pytest.approx(b, abs=0.3)


@pytest.mark.parametrize("length", [10, 100, 1000])
def test_smoothing_optimum_of_a_linear_gaussian_chain_is_in_the_family(length, key):
    """At the closed-form smoothing parameters the ELBO is the exact log evidence."""
    y = jnp.asarray(np.random.default_rng(length).normal(size=length).cumsum() * 0.1)

    model = random_walk(0.1, 0.15)
    guide = asvi.AutoASVI(model)
    guide._setup_prototype(y)
    params = analytic_params(np.asarray(y), innovation=0.1, noise=0.15)
    exact = log_evidence_of_chain(np.asarray(y), innovation=0.1, noise=0.15)
    elbo = -asvi.ELBO(num_particles=20).loss(key, params, model, guide, y)
    assert float(elbo) == pytest.approx(exact, abs=1e-3)


def test_filtering_optimum_of_a_linear_gaussian_chain_is_in_the_family(key):
    """With λ = 1 - gain and α = y_t, x_t given x_{t-1} is the exact filtering conditional.

    Then p(x, y) / q(x) is the product of the predictive densities of y_t given x_{t-1}, whatever x.
    """
    innovation, noise = 0.5, 0.3
    gain = innovation**2 / (innovation**2 + noise**2)
    guide = asvi.AutoASVI(scanned)
    guide._setup_prototype(Y)
    ones = jnp.ones(len(Y))
    params = {
        "auto/x/loc/prior_weight": (1 - gain) * ones,
        "auto/x/loc/data_term": Y,
        "auto/x/scale/prior_weight": 0 * ones,
        "auto/x/scale/data_term": jnp.sqrt(gain) * noise * ones,
    }
    x = jax.random.normal(key, Y.shape)
    before = 0.9 * jnp.concatenate([jnp.zeros(1), x[:-1]])
    predictive = dist.Normal(before, (innovation**2 + noise**2) ** 0.5).log_prob(Y).sum()
    ratio = log_ratio(scanned, guide, {"x": x}, Y)(params)
    assert float(ratio) == pytest.approx(float(predictive), abs=1e-9)


def test_nested_scan_with_plated_states_and_pytree_carries(key):
    y = jax.random.normal(key, (3, 4, 2))

    def model(y):
        def outer(carry, y_o):
            level = numpyro.sample("level", dist.Normal(carry["level"], 1.0))

            def inner(carry, y_i):
                with numpyro.plate("series", 2):
                    x = numpyro.sample("x", dist.Normal(0.8 * carry["x"], carry["s"]))
                    z = numpyro.sample("z", dist.Normal(x, 0.5))
                    numpyro.deterministic("twice", 2 * z)
                    numpyro.sample("y", dist.Normal(z, 0.5), obs=y_i)
                return {"x": x, "s": carry["s"]}, None

            last, _ = scan(inner, {"x": level * jnp.ones(2), "s": 0.7}, y_o)
            return {"level": last["x"].mean()}, None

        scan(outer, {"level": 0.0}, y)

    program = asvi.Program.of(model, y)
    assert program["x"].steps == (3, 4)
    assert program["x"].parents == ("level", "x")
    assert program["z"].parents == ("x",)
    assert program["level"].parents == ("x",)
    guide, result = fit(model, y, steps=300)
    assert result.params["auto/x/loc/prior_weight"].shape == (3, 4, 2)
    assert result.losses[-50:].mean() < result.losses[:50].mean()
    draws = guide.sample_posterior(key, result.params, sample_shape=(5,))
    assert draws["x"].shape == (5, 3, 4, 2)
    np.testing.assert_allclose(draws["twice"], 2 * draws["z"])
    predicted = Predictive(Interpretation(model), guide=guide, params=result.params, num_samples=5)(
        key, y
    )
    assert predicted["y"].shape == (5, 3, 4, 2)


def test_missing_data_in_a_scan_are_masked(key):
    seen = jnp.array([True, True, False, False, True, True])

    def model(y):
        def step(x, inputs):
            y_t, seen_t = inputs
            x = numpyro.sample("x", dist.Normal(x, 0.5))
            with mask(mask=seen_t):
                numpyro.sample("y", dist.Normal(x, 0.3), obs=y_t)
            return x, None

        scan(step, 0.0, (y, seen))

    holes = jnp.where(seen, Y, jnp.nan)
    guide, result = fit(model, holes, steps=1500, estimator="path")
    exact = log_evidence_of_chain(np.asarray(Y), 0.5, 0.3, seen=np.asarray(seen))
    elbo = -asvi.ELBO(num_particles=2000).loss(key, result.params, model, guide, holes)
    assert float(elbo) == pytest.approx(exact, abs=0.05)
    assert float(elbo) < exact + 0.02


def branching(y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    x = cond(
        y > 0,
        lambda _: numpyro.sample("x", dist.Normal(a + 2.0, 1.0)),
        lambda _: numpyro.sample("x", dist.Normal(a - 2.0, 0.5)),
        None,
    )
    numpyro.sample("y", dist.Normal(x, 0.5), obs=y)


def test_each_branch_of_a_cond_has_its_own_parameters_and_trains(key):
    guide, result = fit(branching, jnp.array(2.5), steps=1000, estimator="path")
    with pytest.warns(UserWarning, match="asvi.ELBO"):  # called by hand: no loss in sight
        untouched = params_of(asvi.AutoASVI(branching), jnp.array(2.5))
    name = "auto/x[false]/loc/data_term"
    np.testing.assert_array_equal(result.params[name], untouched[name])  # never taken
    # x given a is normal, and so is a: the posterior is in the family
    exact = float(dist.Normal(2.0, np.sqrt(1 + 1 + 0.25)).log_prob(2.5))
    elbo = -asvi.ELBO(num_particles=4000).loss(key, result.params, branching, guide, 2.5)
    assert float(elbo) == pytest.approx(exact, abs=5e-3)


def test_cond_inside_scan(key):
    def model(y):
        def step(x, y_t):
            x = cond(
                y_t > 0,
                lambda x: numpyro.sample("x", dist.Normal(x + 0.1, 0.3)),
                lambda x: numpyro.sample("x", dist.Normal(x - 0.1, 0.3)),
                x,
            )
            numpyro.sample("y", dist.Normal(x, 0.3), obs=y_t)
            return x, None

        scan(step, 0.0, Y)

    _, result = fit(model, Y, steps=400)
    assert result.params["auto/x[true]/loc/data_term"].shape == (6,)
    assert result.losses[-50:].mean() < result.losses[:50].mean()


def test_reversed_scan_is_replayed_in_order(key):
    """`asvi.ELBO` itself is right under reverse=True, with a guide of the user's own."""

    model = random_walk(0.5, 0.3, reverse=True)

    def guide(y):
        with numpyro.plate("t", len(y)):
            numpyro.sample("x", dist.Normal(y, 1e-9))

    x = jnp.array([2.0, 0.0, 0.5, 0.0, 1.0, -1.0])
    elbo = -asvi.ELBO(num_particles=20_000).loss(key, {}, model, guide, x)
    after = jnp.concatenate([x[1:], jnp.zeros(1)])  # the walk starts at the end
    log_p = dist.Normal(after, 0.5).log_prob(x) + dist.Normal(x, 0.3).log_prob(x)
    entropy = len(x) * (0.5 + 0.5 * np.log(2 * np.pi) + np.log(1e-9))
    assert float(elbo) == pytest.approx(float(log_p.sum() + entropy), abs=0.1)
    before = jnp.concatenate([jnp.zeros(1), x[:-1]])
    wrong = dist.Normal(before, 0.5).log_prob(x) + dist.Normal(x, 0.3).log_prob(x)
    assert abs(float(wrong.sum() - log_p.sum())) > 1.0  # the other order would show


def test_a_scan_of_another_length_is_refused(key):
    guide = asvi.AutoASVI(scanned)
    params = params_of(guide, Y)
    with pytest.raises(asvi.SiteError, match=r"site 'x': its scan has 4 steps now and had 6"):
        guide.sample_posterior(key, params, Y[:4])


def test_stock_loss_on_a_scan_agrees_with_ours(key):
    guide = asvi.AutoASVI(scanned)
    params = params_of(guide, Y)
    for loss in (asvi.ELBO(num_particles=4000), Trace_ELBO(num_particles=4000)):
        value = float(loss.loss(key, params, scanned, guide, Y))
        assert value == pytest.approx(
            float(asvi.ELBO(num_particles=4000).loss(jax.random.key(9), params, scanned, guide, Y)),
            rel=0.05,
        )


def test_interpretation_gives_the_same_densities_as_the_stock_scan(key):
    drawn = trace(seed(scanned, key)).get_trace(Y)
    again = trace(
        numpyro.handlers.substitute(Interpretation(scanned), {"x": drawn["x"]["value"]})
    ).get_trace(Y)
    for name in ("x", "y"):
        np.testing.assert_allclose(
            again[name]["fn"].log_prob(again[name]["value"]),
            drawn[name]["fn"].log_prob(drawn[name]["value"]),
        )


def test_svi_with_several_latents_per_step_keeps_its_parameters_per_step():
    def model(y):
        def step(carry, y_t):
            a = numpyro.sample("a", dist.Normal(carry, 1.0))
            b = numpyro.sample("b", dist.Gamma(2.0, 1.0))
            numpyro.sample("y", dist.Normal(a, b), obs=y_t)
            return a, None

        scan(step, 0.0, y)

    svi = SVI(model, asvi.AutoASVI(model), optax.adam(1e-2), asvi.ELBO())
    params = svi.get_params(svi.init(jax.random.key(0), Y))
    assert params["auto/b/concentration/data_term"].shape == (6,)
    assert params["auto/a/loc/prior_weight"].shape == (6,)
