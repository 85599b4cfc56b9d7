"""Takes nothing; gives models that pool: batters four ways, schools, admissions, a funnel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.numpyro_examples.entry import Data, Example

# Hits of eighteen batters in their first 45 at-bats of the season of 1970 (Efron and Morris, 1975).
AT_BATS = np.full(18, 45)
HITS = np.array([18, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7])


def batters() -> Data:
    return (AT_BATS,), {"hits": HITS}


def fully_pooled(at_bats: jax.Array, hits: jax.Array | None = None):
    """Batters, of whom all have one chance of a hit."""
    chance = numpyro.sample("chance", dist.Uniform(0, 1))
    with numpyro.plate("batter", len(at_bats)):
        numpyro.sample("hits", dist.Binomial(at_bats, probs=chance), obs=hits)


def not_pooled(at_bats: jax.Array, hits: jax.Array | None = None):
    """Batters, each with a chance of his own under a flat prior."""
    with numpyro.plate("batter", len(at_bats)):
        chance = numpyro.sample("chance", dist.Uniform(0, 1))
        numpyro.sample("hits", dist.Binomial(at_bats, probs=chance), obs=hits)


def partially_pooled(at_bats: jax.Array, hits: jax.Array | None = None):
    """Batters whose chances come from one beta distribution with a Pareto concentration."""
    centre = numpyro.sample("centre", dist.Uniform(0, 1))
    strength = numpyro.sample("strength", dist.Pareto(1.0, 1.5))
    with numpyro.plate("batter", len(at_bats)):
        prior = dist.Beta(centre * strength, (1 - centre) * strength)
        chance = numpyro.sample("chance", prior)
        numpyro.sample("hits", dist.Binomial(at_bats, probs=chance), obs=hits)


def partially_pooled_logit(at_bats: jax.Array, hits: jax.Array | None = None):
    """Batters whose log odds come from one normal distribution."""
    centre = numpyro.sample("centre", dist.Normal(-1.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfCauchy(1.0))
    with numpyro.plate("batter", len(at_bats)):
        log_odds = numpyro.sample("log_odds", dist.Normal(centre, spread))
        numpyro.sample("hits", dist.Binomial(at_bats, logits=log_odds), obs=hits)


def partially_pooled_logit_free(at_bats: jax.Array, hits: jax.Array | None = None):
    """The same batters, non-centred: for NUTS."""
    centre = numpyro.sample("centre", dist.Normal(-1.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfCauchy(1.0))
    with numpyro.plate("batter", len(at_bats)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        log_odds = numpyro.deterministic("log_odds", centre + spread * z)
        numpyro.sample("hits", dist.Binomial(at_bats, logits=log_odds), obs=hits)


def eight_schools(errors: jax.Array, y: jax.Array | None = None):
    """Effects of coaching in eight schools, centred, with a half-Cauchy scale."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("school", len(errors)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, errors), obs=y)


def eight_schools_free(errors: jax.Array, y: jax.Array | None = None):
    """The same schools, non-centred: for NUTS."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("school", len(errors)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("y", dist.Normal(theta, errors), obs=y)


def schools() -> Data:
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    return (np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),), {"y": y}


def funnel(size: int):
    """Neal's funnel, without data: normals whose scale is as wide as e to the 4.5."""
    y = numpyro.sample("y", dist.Normal(0.0, 3.0))
    x = numpyro.sample("x", dist.Normal(jnp.zeros(size - 1), jnp.exp(y / 2)).to_event(1))
    numpyro.deterministic("bent", jnp.arcsinh(x))  # the variance of x hangs on the rarest draws


def funnel_free(size: int):
    """The same funnel with its normals at scale 1: for NUTS."""
    y = numpyro.sample("y", dist.Normal(0.0, 3.0))
    z = numpyro.sample("z", dist.Normal(jnp.zeros(size - 1), 1.0).to_event(1))
    x = numpyro.deterministic("x", jnp.exp(y / 2) * z)
    numpyro.deterministic("bent", jnp.arcsinh(x))


def ucbadmit(department: jax.Array, male: jax.Array, applied: jax.Array, admitted=None):
    """Admissions to six departments: correlated intercepts and slopes, LKJ prior."""
    middle = numpyro.sample("middle", dist.Normal(0.0, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    scales = numpyro.sample("scales", dist.HalfNormal(1.0).expand([2]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, concentration=2.0))
    with numpyro.plate("departments", 6):
        both = dist.MultivariateNormal(
            jnp.stack([middle, slope]), scale_tril=scales[:, None] * factor
        )
        effect = numpyro.sample("effect", both)
    log_odds = effect[department, 0] + effect[department, 1] * male
    with numpyro.plate("group", len(department)):
        numpyro.sample("admitted", dist.Binomial(applied, logits=log_odds), obs=admitted)


def admissions() -> Data:
    """Berkeley, 1973 (Bickel, Hammel and O'Connell, 1975): men, then women, of departments A-F."""
    applied = np.array([825, 560, 325, 417, 191, 373, 108, 25, 593, 375, 393, 341])
    admitted = np.array([512, 353, 120, 138, 53, 22, 89, 17, 202, 131, 94, 24])
    male = np.repeat([1.0, 0.0], 6)
    return (np.tile(np.arange(6), 2), male, applied), {"admitted": admitted}


def proportions(is_new: jax.Array, age: jax.Array, bought: jax.Array | None = None):
    """A test of two pages: what of the buying is due to the new one, and what to age."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 1.0))
    effect = numpyro.sample("effect", dist.Normal(0.0, 0.5))
    per_decade = numpyro.sample("per_decade", dist.Normal(0.0, 0.5))
    log_odds = intercept + effect * is_new + per_decade * age
    with numpyro.plate("visitor", len(is_new)):
        numpyro.sample("bought", dist.Bernoulli(logits=log_odds), obs=bought)


def visitors() -> Data:
    rng = np.random.default_rng(1)
    is_new, age = rng.binomial(1, 0.5, 600), rng.normal(0.0, 1.0, 600)
    chance = 1 / (1 + np.exp(1.5 - 0.4 * is_new - 0.2 * age))
    return (is_new.astype(float), age), {"bought": rng.binomial(1, chance)}


def thompson(x: jax.Array, y: jax.Array | None = None):
    """A curve that is to be maximised: rewards of a quadratic with unknown noise."""
    weights = numpyro.sample("weights", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    mean = weights[0] + weights[1] * x + weights[2] * x**2
    with numpyro.plate("trial", len(x)):
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)


def trials() -> Data:
    rng = np.random.default_rng(2)
    x = rng.uniform(-1.0, 2.0, 12)
    return (x,), {"y": 0.5 + 1.2 * x - x**2 + rng.normal(0.0, 0.3, 12)}


ENTRIES = [
    Example("baseball-fully-pooled", fully_pooled, batters),
    Example("baseball-not-pooled", not_pooled, batters),
    Example("baseball-partially-pooled", partially_pooled, batters, heavy_tailed=("strength",)),
    Example(
        "baseball-partially-pooled-logit",
        partially_pooled_logit,
        batters,
        truth_model=partially_pooled_logit_free,
        target_accept=0.95,
    ),
    Example(
        "eight-schools", eight_schools, schools, truth_model=eight_schools_free, target_accept=0.95
    ),
    Example("funnel", funnel, lambda: ((5,), {}), truth_model=funnel_free, compared=("y", "bent")),
    Example("ucbadmit", ucbadmit, admissions, target_accept=0.95),
    Example("proportion-test", proportions, visitors),
    Example("thompson-sampling", thompson, trials),
]
