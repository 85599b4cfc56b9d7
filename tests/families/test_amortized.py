"""Amortised families: the laws of the others, networks of all kinds, new points, bad input."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from flax import linen, nnx
from numpyro import handlers
from numpyro.contrib.module import flax_module, nnx_module
from numpyro.infer import SVI

import asvi
from asvi.families import Amortized, ConvexUpdate, Coupled, MeanField, SetEncoder
from asvi.program.run_trace import trace_of
from tests.support.helpers import params_of
from tests.support.marks import all_but

Y = jnp.array([0.5, 1.5, 2.5, -1.0, 0.0, 4.0])
SMALL = SetEncoder(width=4, depth=1)


def points(y, batch=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("point", len(y), subsample_size=batch) as rows:
        z = numpyro.sample("z", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Normal(z, 0.5), obs=y[rows])


def two_levels(y):
    """Two latents per point, one a vector, and several observations of each point."""
    with numpyro.plate("group", y.shape[-1], dim=-1):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(a[..., None], jnp.ones(3)).to_event(1))
        with numpyro.plate("time", y.shape[0], dim=-2):
            numpyro.sample("y", dist.Normal(b.sum(-1), 1.0), obs=y)


def loss_and_gradient(model, family, *args, key=0):
    guide = asvi.AutoASVI(model, family=family)
    svi = SVI(model, guide, optax.adam(1e-2), asvi.ELBO())
    params = svi.get_params(svi.init(jax.random.key(key), *args))
    loss = asvi.ELBO()

    def at(params):
        return loss.loss(jax.random.key(1), params, model, guide, *args)

    return params, *jax.jit(jax.value_and_grad(at))(params)


def log_q(guide, params, values, *args):
    drawn = trace_of(guide, jax.random.key(0), params, values, args, {})
    return {name: drawn[name]["fn"].log_prob(values[name]).sum() for name in values}


# --------------------------------------------------------------------------------------- laws


def terms(y):
    return {"z": {"loc": 2.0 * y, "scale": jnp.exp(0.1 * y)}}


def test_the_same_terms_give_the_density_of_a_family_with_terms_of_its_own():
    amortised = asvi.AutoASVI(points, family=Amortized(terms, plate="point"))
    own = asvi.AutoASVI(points, family=ConvexUpdate())
    values = {"mu": jnp.asarray(0.3), "z": jnp.linspace(-1.0, 1.0, 6)}
    shared = params_of(amortised, Y)
    each = params_of(own, Y)
    weights = {"auto/z/loc/prior_weight": 0.3, "auto/z/scale/prior_weight": 0.8}
    shared |= {name: jnp.full((1,), value) for name, value in weights.items()}
    each |= {name: jnp.full(6, value) for name, value in weights.items()}
    each |= {f"auto/z/{leaf}/data_term": x for leaf, x in terms(Y)["z"].items()}
    found = log_q(amortised, shared, values, Y)
    wanted = log_q(own, each, values, Y)
    for name in values:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5)


def test_mean_field_has_no_weights_and_follows_nobody():
    guide = asvi.AutoASVI(points, family=Amortized(terms, plate="point", base=MeanField()))
    params = params_of(guide, Y)
    assert not any("prior_weight" in name for name in params)
    at = [log_q(guide, params, {"mu": jnp.asarray(m), "z": Y}, Y)["z"] for m in (0.0, 5.0)]
    assert at[0] == at[1]


def test_only_the_leaves_named_in_follow_have_a_weight():
    guide = asvi.AutoASVI(points, family=Amortized(terms, plate="point", follow=("loc",)))
    weights = [name for name in params_of(guide, Y) if "/z/" in name]
    assert weights == ["auto/z/loc/prior_weight"]


@pytest.mark.parametrize("features", [None, lambda y, batch: y])
def test_the_mean_over_minibatches_is_the_full_elbo(features):
    family = Amortized(SMALL, plate="point", features=features)
    guide = asvi.AutoASVI(points, family=family)
    params = params_of(guide, Y, 2)
    values = {"mu": jnp.asarray(0.3)}

    @partial(jax.jit, static_argnums=0)
    def elbo(batch, rows):
        z = jnp.sin(3.0 * Y)[rows]
        taken = {**values, "z": z} | ({} if batch is None else {"point": rows})
        loss = asvi.ELBO().run(
            jax.random.key(0), params, None, points, guide, (Y, batch), {}, taken
        )
        return sum(jnp.sum(term) for term in loss.terms.values())

    parts = [elbo(2, jnp.array(rows)) for rows in ((0, 1), (2, 3), (4, 5))]
    np.testing.assert_allclose(np.mean(parts), elbo(None, jnp.arange(6)), rtol=1e-5)


def test_guide_and_model_see_the_same_rows_and_the_encoder_reads_them(key):
    guide = asvi.AutoASVI(points, family=Amortized(terms, plate="point", base=MeanField()))
    params = params_of(guide, Y, 2)
    drawn = trace_of(guide, key, params, {}, (Y, 2), {})
    rows = drawn["point"]["value"]
    np.testing.assert_allclose(drawn["z"]["fn"].loc, 2.0 * Y[rows], rtol=1e-6)


def test_a_data_iterator_gives_minibatches_too():
    def model(batch):
        with numpyro.plate("point", 1000, subsample_size=len(batch)):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(z, 0.5), obs=batch)

    guide = asvi.AutoASVI(model, family=Amortized(terms))
    params = params_of(guide, Y[:2])
    drawn = trace_of(guide, jax.random.key(0), params, {}, (Y[2:4],), {})
    np.testing.assert_allclose(drawn["z"]["fn"].loc, 2.0 * Y[2:4])
    assert drawn["z"]["scale"] == 500.0


def test_the_number_of_parameters_does_not_depend_on_the_plate():
    sizes = []
    for n in (10, 1000):
        params = params_of(asvi.AutoASVI(points, family=Amortized(SMALL)), jnp.zeros(n), 5)
        sizes.append(sum(x.size for x in params.values()))
    assert sizes[0] == sizes[1]


# ---------------------------------------------------------------------------------- hierarchies


def test_each_level_has_its_own_head_and_the_order_of_observations_does_not_matter():
    y = jax.random.normal(jax.random.key(0), (5, 4))
    family = Amortized(SMALL, plate="group")
    params, loss, gradient = loss_and_gradient(two_levels, family, y)
    assert params["auto/b/loc/data_term/head_kernel"].shape == (4, 3)
    assert params["auto/a/scale/data_term/head_bias"].shape == ()
    assert params["auto/b/loc/prior_weight"].shape == (1, 3)
    assert all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(gradient))
    again = asvi.ELBO().loss(
        jax.random.key(1), params, two_levels, asvi.AutoASVI(two_levels, family=family), y[::-1]
    )
    np.testing.assert_allclose(loss, again, rtol=1e-5)


def test_weights_from_the_encoder_differ_between_points():
    family = Amortized(SMALL, plate="group", prior_weights="encoder")
    y = jax.random.normal(jax.random.key(0), (5, 4))
    params, _, gradient = loss_and_gradient(two_levels, family, y)
    assert "auto/b/loc/prior_weight" not in params
    assert jnp.any(gradient["auto/b/loc/prior_weight/head_kernel"] != 0)


# ------------------------------------------------------------------------------------- networks


class Nnx(nnx.Module):
    def __init__(self):
        self.layer = nnx.Linear(1, 4, rngs=nnx.Rngs(0))

    def __call__(self, y):
        return jnp.tanh(self.layer(y[:, None]))


class Linen(linen.Module):
    @linen.compact
    def __call__(self, y):
        return jnp.tanh(linen.Dense(4)(y[:, None]))


class Eqx(eqx.Module):
    layer: eqx.nn.Linear

    def __call__(self, y):
        return {"z": jnp.tanh(self.layer(y[None]))}


def tanh(params, y):
    return jnp.tanh(y[:, None] * params)


@pytest.mark.parametrize(
    "encoder",
    [
        Nnx(),
        Linen(),
        Eqx(eqx.nn.Linear(1, 4, key=jax.random.key(0))),
        (tanh, jnp.ones(4)),
        (tanh, lambda key, y: jax.random.normal(key, (4,))),
    ],
    ids=["nnx", "linen", "equinox", "params", "init"],
)
def test_networks_of_all_kinds_are_trained(encoder):
    params, loss, gradient = loss_and_gradient(points, Amortized(encoder), Y, 3)
    assert jnp.isfinite(loss)
    own = [name for name in params if name.startswith("auto/encoder/")]
    assert own
    assert all(jnp.any(gradient[name] != 0) for name in own)


def test_neither_flax_nor_equinox_is_imported():
    code = (
        "import sys, asvi, asvi.families; f = asvi.families.Amortized((lambda p, y: y, {}));"
        "assert not {'flax', 'equinox'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("kind", all_but(["flax"], ["flax", "nnx"]))
def test_networks_of_the_model_are_learned_beside_the_encoder(kind):
    made = nnx.Linear(1, 2, rngs=nnx.Rngs(0))

    def model(y):
        if kind == "nnx":
            net = nnx_module("net", made)
        else:
            net = flax_module("net", linen.Dense(2), input_shape=(1, 1))
        with numpyro.plate("point", len(y)):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(net(z[:, None]), 0.5).to_event(1), obs=y)

    y = jnp.stack([Y, 2 * Y], -1)
    _, loss, gradient = loss_and_gradient(model, Amortized(SMALL), y)
    assert jnp.isfinite(loss)
    assert all(jnp.any(g != 0) for g in jax.tree.leaves(gradient["net$params"]))
    if kind == "flax":
        result = asvi.fit(
            model,
            y,
            family=Amortized(SMALL),
            training=asvi.Training(num_steps=100, num_restarts=1, num_particles=1),
            progress_bar=False,
        )
        assert np.isfinite(result.elbo)


# -------------------------------------------------------------------------- fits, and new points


@pytest.mark.slow
def test_amortised_and_per_point_fits_agree():
    def trained(family):
        guide = asvi.AutoASVI(points, family=family)
        optimizer = optax.adam(optax.cosine_decay_schedule(5e-2, 1000))
        svi = SVI(points, guide, optimizer, asvi.ELBO(num_particles=2))
        params = svi.run(jax.random.key(0), 1000, Y, progress_bar=False).params
        judge = asvi.ELBO(num_particles=500)
        return -float(judge.loss(jax.random.key(1), params, points, guide, Y))

    linear = (lambda params, y: y[:, None] * params, jnp.ones(1))
    n = len(Y)
    covariance = jnp.eye(n) * 1.25 + 4.0
    exact = float(dist.MultivariateNormal(jnp.zeros(n), covariance).log_prob(Y))
    own, amortised = trained(ConvexUpdate()), trained(Amortized(linear))
    assert abs(own - amortised) / n < 0.1
    assert exact - 0.1 * n < amortised < exact + 0.05


def test_fit_amortises_a_plate_and_serves_new_points(key):
    quick = {
        "training": asvi.Training(num_steps=100, num_restarts=1, num_particles=1),
        "progress_bar": False,
    }
    result = asvi.fit(points, Y, 3, family=asvi.families.Amortized(plate="point"), **quick)
    new = jnp.array([0.0, 1.0, 2.0, 3.0])
    draws = result.posterior.at(new).sample(key, 50)
    assert draws["z"].shape == (50, 4)
    elbo, error = result.posterior.at(new).elbo(key)
    assert np.isfinite(elbo)
    assert error > 0
    assert "Amortized ConvexUpdate" in str(result.explain())


@pytest.mark.slow
@pytest.mark.parametrize("encoder", [None, SMALL])
def test_a_saved_fit_serves_new_points(tmp_path, key, encoder):
    result = asvi.fit(
        points,
        Y,
        family=Amortized(encoder),
        training=asvi.Training(num_steps=250, num_restarts=2),
        progress_bar=False,
    )
    new = jnp.array([0.0, 1.0, 2.0, 3.0])
    draws = result.posterior.at(new).sample(key, 50)
    result.save(tmp_path / "fit.asvi")
    loaded = asvi.load(tmp_path / "fit.asvi", points)
    np.testing.assert_allclose(loaded.posterior.at(new).sample(key, 50)["z"], draws["z"], rtol=1e-5)


# ------------------------------------------------------------------------------------- bad input


def no_data(y):
    with numpyro.plate("point", 3):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)


def two_plates(y):
    with numpyro.plate("left", 2, dim=-2):
        numpyro.sample("a", dist.Normal(0.0, 1.0))
    with numpyro.plate("right", 3, dim=-1):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(b, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "family", "y", "words"),
    [
        (points, {"plate": "points"}, Y, ["no plate 'points'", 'Amortized(plate="point")']),
        (two_plates, {}, jnp.ones(3), ["left, right", 'plate="left"']),
        (no_data, {}, 1.0, ["'point' holds no observed site", "features="]),
        (points, {"encoder": lambda y: y}, Y, ["site 'z'", "shape (6,)", "(6, any number)"]),
        (
            points,
            {"encoder": lambda y: {"z": {"loc": y[:3], "scale": y}}},
            Y,
            ["site 'z'", "loc of shape (3,)", "wanted is (6,)", "return {"],
        ),
        (points, {"encoder": lambda y: {"z": {"loc": y}}}, Y, ["site 'z'", "lacks scale"]),
        (points, {"encoder": lambda y: {"w": y}}, Y, ["site 'z'", "only for w"]),
        (points, {"encoder": lambda y: y @ jnp.ones((3, 3))}, Y, ["'point'", "fails", "(6,)"]),
        (points, {"features": lambda y: y[:4]}, Y, ["'point'", "(4,)", "features="]),
        (points, {"features": lambda: 1}, Y, ["'point'", "could not be called"]),
    ],
    ids=lambda x: None,
)
def test_errors_name_the_site_or_plate_and_show_the_mended_code(model, family, y, words):
    guide = asvi.AutoASVI(model, family=Amortized(**family))
    with pytest.raises(asvi.AsviError) as error, handlers.seed(rng_seed=0):
        guide(y)
    for word in (*words, "Write instead"):
        assert word in str(error.value)


def test_a_plate_without_latents_is_named():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("point", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    with pytest.raises(asvi.FamilyError, match="'point' holds no latent site"):
        params_of(asvi.AutoASVI(model, family=Amortized(plate="point")), Y)


def test_data_must_be_given_where_the_encoder_reads_them():
    def model(n, y=None):
        with numpyro.plate("point", n):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    guide = asvi.AutoASVI(model, family=Amortized(SMALL))
    params = params_of(guide, 6, Y)
    with pytest.raises(asvi.SiteError, match="'y': it holds no data in this call"):
        guide.sample_posterior(jax.random.key(0), params, 6)


@pytest.mark.parametrize(
    "arguments",
    [
        {"base": Coupled()},
        {"encoder": 3},
        {"encoder": Nnx},
        {"features": 3},
        {"prior_weights": "both"},
        {"follow": "loc"},
    ],
)
def test_arguments_are_checked_at_once(arguments):
    with pytest.raises(asvi.FamilyError):
        Amortized(**arguments)
