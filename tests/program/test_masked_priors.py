"""Masks, keys and values that a model itself sets: what is fitted is what NumPyro says of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import SVI
from numpyro.infer.reparam import CircularReparam
from numpyro.infer.util import log_density

import asvi
from asvi import families
from asvi.errors import SiteError
from asvi.program import Program
from asvi.program.improper import find_improper
from asvi.program.statements.masks import complete_model, counted_part, unmasked
from asvi.results.inference_data import prior_draws

Y = jnp.array([1.0, 2.0, 3.0, 0.0])


def flat(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0).mask(False))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def uninformed(y):
    numpyro.sample("mu", dist.Normal(3.0, 2.0).mask(False))
    s = numpyro.sample("s", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(s, 1.0), obs=y)


def plain(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def fit(model, *args, family=None, steps=None):
    training = None if steps is None else asvi.Training(num_steps=steps)
    return asvi.fit(model, *args, family=family, training=training, progress_bar=False)


# --------------------------------------------------------------------------------------- masks


@pytest.mark.parametrize("family", [None, families.ConvexUpdate()])
def test_a_flat_prior_leaves_the_likelihood(family):
    result = fit(flat, Y, family=family, steps=3000 if family else None)
    # y ~ N(mu, 1), four times: mu is N(1.5, 1/4) and the evidence an integral in closed form.
    residual = float(jnp.sum((Y - 1.5) ** 2))
    evidence = -0.5 * residual - 1.5 * np.log(2 * np.pi) - 0.5 * np.log(4.0)
    assert abs(result.posterior.mean()["mu"] - 1.5) < 0.03
    assert abs(result.posterior.sd()["mu"] - 0.5) < 0.03
    assert abs(result.elbo - evidence) < 0.01
    assert not result.diagnose().notes


def test_what_no_datum_informs_is_drawn_from_its_prior_and_named():
    result = fit(uninformed, Y)
    posterior = result.posterior
    assert abs(posterior.mean()["mu"] - 3.0) < 0.1
    assert abs(posterior.sd()["mu"] - 2.0) < 0.1
    assert abs(posterior.sd()["s"] - 0.2**0.5) < 0.03
    assert "site 'mu' has no posterior" in str(result)
    assert "site 'mu' has no posterior" in str(result.explain())
    assert result.diagnose().verdict == "good"


def imputed(y, seen):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    with numpyro.plate("n", 4):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y, obs_mask=seen)


def masked_steps(y, seen):
    def step(last, given):
        y, seen = given
        x = numpyro.sample("x", dist.Normal(last, 1.0).mask(False))
        with handlers.mask(mask=seen):
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
        return x, None

    scan(step, 0.0, (y, seen))


def unmasked_where_unseen(y, seen):
    """The same, with the priors of the unseen steps in the density."""

    def step(last, given):
        y, seen = given
        x = numpyro.sample("x", dist.Normal(last, 1.0).mask(~seen))
        with handlers.mask(mask=seen):
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
        return x, None

    scan(step, 0.0, (y, seen))


def test_numbers_without_a_posterior_are_found_one_by_one():
    seen = jnp.array([True, True, False, True])
    found = find_improper(imputed, Program.of(imputed, Y, seen), (Y, seen), {})
    assert found["y_unobserved"].count == 3  # where there are data, nothing is to be imputed
    seen = jnp.array([True, True, False, False])
    program = Program.of(masked_steps, Y, seen)
    found = find_improper(masked_steps, program, (Y, seen), {})
    assert found["x"].where.tolist() == [False, False, True, True]
    values = {"x": jnp.array([0.3, -1.0, 2.0, 0.5])}
    whole = log_density(unmasked_where_unseen, (Y, seen), {}, values)[0]
    problem = asvi.fitting.problem.Problem(masked_steps, families.ConvexUpdate(), (Y, seen), {})
    for model in (complete_model(masked_steps, found), problem.model):
        run = asvi.objective.trace_of(model, jax.random.key(0), {}, values, (Y, seen), {})
        density = sum(asvi.objective.log_density(s) for s in run.values() if s["type"] == "sample")
        np.testing.assert_allclose(density, whole, rtol=1e-5)


def test_what_informs_through_other_latents_counts():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).mask(False))
        lost = numpyro.sample("lost", dist.Normal(0.0, 1.0).mask(False))
        theta = numpyro.sample("theta", dist.Normal(mu, 1.0))
        numpyro.sample("loose", dist.Normal(lost, 1.0))
        bounded = numpyro.sample("bounded", dist.Beta(2.0, 2.0).mask(False))
        del bounded  # flat on an interval, it has a posterior
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)

    assert list(find_improper(model, Program.of(model, Y), (Y,), {})) == ["lost"]


def test_svi_with_our_loss_keeps_what_is_uninformed_at_its_prior(key):
    guide = asvi.AutoASVI(uninformed)
    svi = SVI(uninformed, guide, optax.adam(0.02), asvi.ELBO(num_particles=8))
    params = svi.run(key, 800, Y, progress_bar=False).params
    draws = guide.sample_posterior(key, params, sample_shape=(2000,))
    assert abs(float(draws["mu"].std()) - 2.0) < 0.2


@pytest.mark.parametrize(
    "masked",
    [
        lambda mask: dist.Normal(0.0, 1.0).expand([3]).mask(mask).to_event(1),
        lambda mask: dist.Normal(0.0, 1.0).expand([3]).mask(mask).expand([2, 3]),
        lambda mask: dist.TransformedDistribution(
            dist.Normal(0.0, 1.0).expand([3]).mask(mask), dist.transforms.ExpTransform()
        ),
    ],
)
def test_masks_are_found_and_taken_off_inside_other_distributions(masked):
    mask = jnp.array([True, False, True])
    found = masked(mask)
    assert counted_part(found).tolist() == jnp.broadcast_to(mask, found.shape()).tolist()
    whole, value = unmasked(found), jnp.full(found.shape(), 0.7)
    wanted = masked(jnp.ones(3, bool)).log_prob(value)
    np.testing.assert_allclose(whole.log_prob(value), wanted, rtol=1e-6)


# ---------------------------------------------------------------------------------------- keys


def test_a_seed_of_the_models_own_makes_no_draws_alike(key):
    model = handlers.seed(plain, 0)
    guide = asvi.AutoASVI(model)
    svi = SVI(model, guide, optax.adam(0.05), asvi.ELBO(num_particles=8))
    params = svi.run(key, 1500, Y, progress_bar=False).params
    draws = guide.sample_posterior(key, params, sample_shape=(2000,))
    assert abs(float(draws["mu"].std()) - 0.5) < 0.1
    result = fit(model, Y)
    posterior = result.posterior
    again = posterior.predictive(key, None, num_samples=400)  # each with noise of its own
    assert abs(np.std(np.asarray(again["y"])) - 1.25**0.5) < 0.15
    assert np.std(np.asarray(prior_draws(posterior, key, 20)["mu"])) > 1.0


def test_a_hidden_site_is_refused_by_name():
    def model(y):
        with handlers.block(hide=["z"]):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu + z, 1.0), obs=y)

    with pytest.raises(SiteError, match=r"site 'z': a `handlers.block` of the model hides it"):
        fit(model, Y)


# -------------------------------------------------------------------------------------- values


def test_a_sample_shape_is_part_of_the_distribution():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0), sample_shape=(4,))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    result = fit(model, Y)
    evidence = float(dist.Normal(0.0, 101.0**0.5).log_prob(Y).sum())
    assert result.posterior.mean()["mu"].shape == (4,)
    assert abs(result.elbo - evidence) < 0.01


def test_a_value_that_the_model_gives_is_no_latent():
    def model(y):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        numpyro.sample("y", dist.Normal(mu + slope, 1.0), obs=y)

    given = handlers.substitute(model, data={"slope": 1.0})
    program = Program.of(given, Y)
    assert program["slope"].kind == "fixed"
    assert [site.name for site in program.latent] == ["mu"]
    posterior = fit(given, Y).posterior
    draws = posterior.sample(jax.random.key(0), (3,))
    wanted = [log_density(given, (Y,), {}, {"mu": mu})[0] for mu in draws["mu"]]
    np.testing.assert_allclose(posterior.model_log_prob(draws), jnp.array(wanted), rtol=1e-5)
    assert list(posterior.predictive(jax.random.key(0), num_samples=2)) == ["y"]


def test_an_unwrapped_angle_is_an_angle():
    def model(y):
        angle = numpyro.sample("angle", dist.VonMises(2.8, 2.0))
        numpyro.sample("y", dist.Normal(jnp.sin(angle), 1.0), obs=y)

    unwrapped = handlers.reparam(model, config={"angle": CircularReparam()})
    for_values = {"angle_unwrapped": jnp.array(-3.0)}
    problem = asvi.fitting.problem.Problem(unwrapped, families.ConvexUpdate(), (Y,), {})
    run = asvi.objective.trace_of(problem.model, jax.random.key(0), {}, for_values, (Y,), {})
    density = sum(asvi.objective.log_density(s) for s in run.values() if s["type"] == "sample")
    np.testing.assert_allclose(density, log_density(model, (Y,), {}, {"angle": -3.0})[0], rtol=1e-5)
    surrogate = problem.guide.surrogates["angle_unwrapped"]
    assert type(surrogate).__name__ == "VonMises"  # which goes round: no turn has an edge
