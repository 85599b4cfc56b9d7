"""Families of the whole model: the baselines."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.handlers import seed as seeded
from numpyro.handlers import substitute, trace
from numpyro.infer import SVI

import asvi
from asvi.errors import FamilyError
from asvi.families.baselines import (
    AR1,
    InverseAutoregressiveFlow,
    LinearCoupling,
    MultivariateNormal,
)
from tests.support.marks import every

EACH = [MultivariateNormal(), InverseAutoregressiveFlow(4), AR1(), LinearCoupling()]


def randomized(guide, args, key, scale=0.2):
    """Parameters away from their start, so that couplings and networks are at work."""
    svi = SVI(guide.model, guide, optax.sgd(1.0), asvi.ELBO())
    state = svi.init(key, *args)
    free = svi.optim.get_params(state.optim_state)
    leaves, tree = jax.tree.flatten(free)
    keys = jax.random.split(key, len(leaves))
    moved = [x + scale * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return svi.constrain_fn(jax.tree.unflatten(tree, moved))


@pytest.mark.parametrize("family", EACH, ids=lambda f: type(f).__name__)
def test_the_density_is_that_of_the_draws(family, key):
    """E_q[p/q] = 1 for a density p: any error in q's density or Jacobians would show.

    Importance sampling of a Gaussian target narrow enough to lie inside the guide.
    """

    def model():
        a = numpyro.sample("a", dist.LogNormal(0.0, 1.0))
        with numpyro.plate("n", 3):
            numpyro.sample("x", dist.Normal(jnp.log(a), 1.0))

    guide = asvi.autoguide(model, family=family)
    params = randomized(guide, (), key)
    params = {k: 10 * v if k.endswith("_scale") else v for k, v in params.items()}
    if isinstance(family, MultivariateNormal):
        params["auto_scale_tril"] = params["auto_scale_tril"] * 10

    def ratio(key):
        run = trace(seeded(substitute(guide, params), key)).get_trace()
        log_q = sum(
            s["fn"].log_prob(s["value"]).sum() for s in run.values() if s["type"] == "sample"
        )
        log_p = dist.LogNormal(0.0, 0.3).log_prob(run["a"]["value"])
        log_p += dist.Normal(0.0, 0.3).log_prob(run["x"]["value"]).sum()
        return jnp.exp(log_p - log_q)

    ratios = jax.jit(jax.vmap(ratio))(jax.random.split(key, 40_000))
    error = float(ratios.std() / 200.0)
    assert error < 0.1
    assert abs(float(ratios.mean()) - 1.0) < 5 * error


@pytest.mark.parametrize("family", every(3, EACH[1:]), ids=lambda f: type(f).__name__)
def test_transforms_have_the_jacobian_and_inverse_that_they_say(family, key):
    """Against automatic differentiation, with couplings, networks and scales away from 1."""
    task = asvi.tasks.get("brownian-global")
    guide = asvi.autoguide(task.model, family=family)
    params = randomized(guide, task.args, key)
    transforms = seeded(substitute(guide._get_posterior, params), 0)().transforms
    x = jax.random.normal(key, (guide.latent_dim,))
    for transform in transforms:
        y = transform(x)
        exact = np.linalg.slogdet(np.asarray(jax.jacobian(transform)(x), float))[1]
        np.testing.assert_allclose(
            transform.log_abs_det_jacobian(x, y), exact, rtol=1e-3, atol=1e-3
        )
        np.testing.assert_allclose(transform.inv(y), x, rtol=1e-3, atol=1e-3)
        x = y


def test_the_flow_is_autoregressive(key):
    """Output i depends on inputs before i alone: the Jacobian of shift and scale is triangular."""

    def model():
        numpyro.sample("x", dist.Normal(jnp.zeros(6), 1.0).to_event(1))

    guide = asvi.autoguide(model, family=InverseAutoregressiveFlow(3))
    params = randomized(guide, (), key, scale=1.0)
    network = seeded(substitute(lambda: guide._network(0), params), 0)()
    for jacobian in jax.jit(jax.jacobian(network))(jnp.ones(6)):
        assert np.allclose(np.triu(jacobian), 0.0)
        assert np.abs(np.tril(jacobian, -1)).max() > 1e-3


def _linear_chain(y, mask):
    x = 0.0
    for t in range(4):
        x = numpyro.sample(f"x{t}", dist.Normal(x, 1.0))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def test_chains_are_found_in_scans_and_loops():
    lorenz = asvi.tasks.get("lorenz-global")
    guide = asvi.autoguide(lorenz.model, family=AR1())
    jax.eval_shape(lambda: seeded(guide, 0)(*lorenz.args))
    assert [chain.shape for chain in guide.chains] == [(30, 3)]  # x0, then 29 steps; no scales
    guide = asvi.autoguide(_linear_chain, family=AR1())
    seeded(guide, 0)(1.0, None)
    assert [chain.shape for chain in guide.chains] == [(4, 1)]
    schools = asvi.tasks.get("eight-schools")
    guide = asvi.autoguide(schools.model, family=AR1())
    jax.eval_shape(lambda: seeded(guide, 0)(*schools.args))
    assert guide.chains == []


@pytest.mark.slow
def test_ar1_reaches_the_exact_posterior_of_a_linear_gaussian_chain(key):
    """Its family contains it: a Markov chain with linear Gaussian steps."""
    task = asvi.tasks.get("brownian")
    guide = asvi.autoguide(task.model, family=AR1())
    schedule = optax.cosine_decay_schedule(3e-2, 6000)
    svi = SVI(task.model, guide, optax.adam(schedule), asvi.ELBO(8))
    result = svi.run(key, 6000, *task.args, progress_bar=False)
    judge = asvi.ELBO(2000)
    elbo = -judge.loss(key, result.params, task.model, guide, *task.args)
    assert -0.02 < task.log_evidence - float(elbo) < 0.1


def test_one_matrix_for_all_steps():
    task = asvi.tasks.get("lorenz")
    sizes = {}
    for family in (AR1(), LinearCoupling()):
        guide = asvi.autoguide(task.model, family=family)
        run = trace(seeded(guide, 0)).get_trace(*task.args)
        sizes[type(family).__name__] = run["auto_coupling_0"]["value"].shape
    assert sizes == {"AR1": (29, 3, 3), "LinearCoupling": (3, 3)}


def test_joint_families_are_not_families_of_sites():
    with pytest.raises(FamilyError, match=r"asvi.autoguide\(model, family=AR1\(init_scale=0.1\)\)"):
        asvi.AutoASVI(_linear_chain, family=AR1())


@pytest.mark.parametrize(
    "make",
    [lambda: AR1(init_scale=0.0), lambda: MultivariateNormal(init_scale=-1.0)],
)
def test_a_scale_must_be_positive(make):
    with pytest.raises(FamilyError, match="init_scale must be positive"):
        make()


def test_a_flow_needs_units():
    with pytest.raises(FamilyError, match=r"InverseAutoregressiveFlow\(512, flows=2\)"):
        InverseAutoregressiveFlow(0)
