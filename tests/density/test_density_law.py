"""What is fitted is `numpyro.infer.util.log_density`; the guide's draws have their whole density.

Over small models that say a thing in every way that NumPyro knows, with priors of many kinds, at
random parameters of every family, and without training:

- the log density of model and data in the ELBO, and in ``Posterior.model_log_prob``, is NumPyro's;
- the guide's log density in the ELBO is ``Posterior.log_prob``, and integrates to 1;
- no two draws are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import log_density

from asvi import families
from asvi.fitting.problem import Problem
from asvi.objective import ELBO
from asvi.results.posterior import Posterior
from tests.support.marks import every

Y = jnp.array([1.0, 2.0, 0.5])
MASK = jnp.array([True, False, True])
DRAWS = 3

PRIORS: dict[str, Callable] = {
    "Normal": lambda: dist.Normal(0.5, 2.0),
    "StudentT": lambda: dist.StudentT(5.0, 0.0, 1.0),
    "Laplace": lambda: dist.Laplace(0.0, 1.0),
    "Logistic": lambda: dist.Logistic(0.0, 1.0),
    "LogNormal": lambda: dist.LogNormal(0.0, 0.5),
    "Gamma": lambda: dist.Gamma(3.0, 2.0),
    "InverseGamma": lambda: dist.InverseGamma(4.0, 3.0),
    "HalfNormal": lambda: dist.HalfNormal(1.0),
    "Exponential": lambda: dist.Exponential(1.0),
    "Beta": lambda: dist.Beta(2.0, 3.0),
    "Uniform": lambda: dist.Uniform(-1.0, 2.0),
    "MultivariateNormal": lambda: dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)),
    "Dirichlet": lambda: dist.Dirichlet(jnp.array([2.0, 3.0, 4.0])),
}
#: Priors whose surrogates draw without loops: there is little to compile.
QUICK = ("Normal", "Laplace", "LogNormal", "HalfNormal", "Exponential", "MultivariateNormal")
FAMILIES = {
    "convex": families.ConvexUpdate(),
    "mean field": families.MeanField(),
    "coupled": families.Coupled(),
    "structured normal": families.StructuredNormal(),
    "multivariate normal": families.baselines.MultivariateNormal(),
}


# ----------------------------------------------------------------- one thing, said in many ways


def data(x):
    """Three data that depend on all of ``x``, (..., event)."""
    return numpyro.sample("y", dist.Normal(jnp.sum(x), 1.0).expand([3]), obs=Y)


def plain(prior):
    data(numpyro.sample("x", prior()))


def flat(prior):
    data(numpyro.sample("x", prior().mask(False)))


def flat_event(prior):
    p = prior().mask(False).expand([2])
    data(numpyro.sample("x", p.to_event(1)))


def partly_masked(prior):
    data(numpyro.sample("x", prior().expand([3]).mask(MASK)))


def mask_around(prior):
    with handlers.mask(mask=MASK), numpyro.plate("n", 3):
        x = numpyro.sample("x", prior())
    data(x)


def masked_plate(prior):
    x = numpyro.sample("x", prior())
    with numpyro.plate("n", 3), handlers.mask(mask=MASK):
        numpyro.sample("y", dist.Normal(jnp.sum(x), 1.0), obs=Y)


def scaled(prior):
    with handlers.scale(scale=0.3):
        data(numpyro.sample("x", prior()))


def scaled_each(prior):
    with numpyro.plate("n", 3), handlers.scale(scale=jnp.array([0.5, 1.0, 2.0])):
        x = numpyro.sample("x", prior())
    data(x)


def shaped(prior):
    data(numpyro.sample("x", prior(), sample_shape=(2,)))


def shaped_in_plate(prior):
    with numpyro.plate("n", 3):
        x = numpyro.sample("x", prior(), sample_shape=(2, 1))
    data(x)


def shaped_data(prior):
    x = numpyro.sample("x", prior())
    numpyro.sample("y", dist.Normal(jnp.sum(x), 1.0), obs=Y, sample_shape=(3,))


def own_key(prior):
    data(numpyro.sample("x", prior(), rng_key=jax.random.key(3)))


def seeded_site(prior):
    with handlers.seed(rng_seed=3):
        x = numpyro.sample("x", prior())
    data(x)


def seeded_features(prior):
    x = numpyro.sample("x", prior())
    data(jnp.sum(x) * jax.random.normal(numpyro.prng_key(), (3,)))


def seeded_steps(prior):
    def step(last, y):
        x = numpyro.sample("x", prior())
        feature = jax.random.normal(numpyro.prng_key())
        numpyro.sample("y", dist.Normal(last + feature * jnp.sum(x), 1.0), obs=y)
        return jnp.sum(x), None

    scan(step, 0.0, Y)


def masked_steps(prior):
    def step(last, given):
        y, mask = given
        with handlers.mask(mask=mask):
            x = numpyro.sample("x", prior())
        numpyro.sample("y", dist.Normal(last + jnp.sum(x), 1.0), obs=y)
        return jnp.sum(x), None

    scan(step, 0.0, (Y, MASK))


def hidden_but_drawn(prior):
    with handlers.block(hide=["noise"]), handlers.seed(rng_seed=1):
        noise = numpyro.sample("noise", dist.Normal(0.0, 1.0))
    data(noise + jnp.sum(numpyro.sample("x", prior())))


def auxiliary(prior):
    data(numpyro.sample("x", prior(), infer={"is_auxiliary": True}))


def two(prior):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    data(a + jnp.sum(numpyro.sample("x", prior())))


def trained(prior):
    a = numpyro.param("a", 0.5)
    data(a + jnp.sum(numpyro.sample("x", prior())))


WAYS: dict[str, tuple[Callable, Callable]] = {
    f.__name__: (f, lambda model: model)
    for f in (
        *(plain, flat, flat_event, partly_masked, mask_around, masked_plate, scaled, scaled_each),
        *(shaped, shaped_in_plate, shaped_data, own_key, seeded_site, masked_steps),
        *(hidden_but_drawn, auxiliary),
    )
} | {
    "seeded": (plain, lambda model: handlers.seed(model, 0)),
    "seeded_features": (seeded_features, lambda model: handlers.seed(model, 0)),
    "seeded_steps": (seeded_steps, lambda model: handlers.seed(model, 0)),
    "substituted": (two, lambda model: handlers.substitute(model, data={"a": 0.7})),
    "conditioned": (two, lambda model: handlers.condition(model, data={"a": 0.7})),
    "intervened": (two, lambda model: handlers.do(model, data={"a": 0.7})),
    "lifted": (trained, lambda model: handlers.lift(model, prior={"a": dist.Normal(0.0, 1.0)})),
    "configured": (two, lambda model: handlers.infer_config(model, lambda _: {"a": 1})),
    "uncertain data": (two, handlers.uncondition),
}
#: Ways in which the model has something to say of the keys of its draws.
RANDOM = {"own_key", "seeded_site", "seeded", "seeded_features", "seeded_steps"}


def cases():
    """Every way with two families, and every prior as it is or masked out, in turns."""
    priors, kinds = cycle(QUICK), cycle(FAMILIES)
    for way in WAYS:
        for _ in range(2):
            yield way, next(priors), next(kinds)
    for prior, way in zip(PRIORS, cycle(("plain", "flat")), strict=False):
        yield way, prior, next(kinds)


# ------------------------------------------------------------------------------------- the law


def opened(model, family):
    """A problem and, at a vector of parameters, its posterior and a draw of its ELBO.

    All that this file knows of how arguments travel.
    """
    problem = Problem(model, family, (), {}, check=False)
    problem.bound.complete()

    def posterior(flat):
        return Posterior(problem, problem.params(flat))

    def drawn(flat, key):
        found = ELBO().draw(key, problem.params(flat), None, problem.model, problem.guide, (), {})
        values = {name: site["value"] for name, site in (found.latent or {}).items()}
        return values, sum(found.terms.values())

    return problem, posterior, drawn


@pytest.mark.filterwarnings("ignore:Missing a plate statement:UserWarning")
@pytest.mark.parametrize(("way", "prior", "kind"), every(6, dict.fromkeys(cases())))
def test_the_density_is_numpyros_and_the_guides_own(way, prior, kind, key):
    body, wrap = WAYS[way]
    model = wrap(lambda: body(PRIORS[prior]))
    problem, posterior_at, drawn = opened(model, FAMILIES[kind])
    assert not problem.improper
    sites = problem.program.latent
    one_number = len(sites) == 1 and sites[0].shape == ()
    steps = jnp.linspace(-12.0, 12.0, 2401)
    # As far as tails reach: those of a Student t on the line are heavy.
    wide = PRIORS[prior]().support is dist.constraints.real
    grid, width = (jnp.sinh(steps), jnp.cosh(steps)) if wide else (1.5 * steps, 1.5)

    def everything(key):
        start, key = jax.random.split(key)
        flat = 0.3 * jax.random.normal(start, (problem.size,))
        posterior = posterior_at(flat)
        values, elbo = jax.vmap(lambda k: drawn(flat, k))(jax.random.split(key, DRAWS))
        values = {site.name: values[site.name] for site in sites}
        wanted = jax.vmap(lambda v: log_density(model, (), {}, v)[0])(values)
        sampled = posterior.sample(key, (DRAWS,)) if way in RANDOM else values
        asked, mass = values, jnp.ones(())
        if one_number:
            name, transform = sites[0].name, dist.biject_to(PRIORS[prior]().support)
            points = transform(grid)
            asked = {name: jnp.concatenate([values[name], points])}
        own = posterior.log_prob(asked)
        if one_number:
            density = own[DRAWS:] + transform.log_abs_det_jacobian(grid, points)
            mass = jnp.sum(jnp.exp(density) * width) * (steps[1] - steps[0])
        return values, sampled, elbo, posterior.model_log_prob(values), wanted, own[:DRAWS], mass

    values, sampled, elbo, density, wanted, own, mass = jax.jit(everything)(key)
    np.testing.assert_allclose(density, wanted, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(elbo, wanted - own, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(mass, 1.0, atol=5e-3)
    assert np.isfinite(own).all()
    for site in sites:
        for draws in (values, sampled):
            assert (np.std(np.asarray(draws[site.name]), axis=0) > 0).all(), site.name
