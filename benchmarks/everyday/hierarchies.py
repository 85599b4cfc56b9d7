"""Takes nothing; gives hierarchical models: schools, subjects, players, pumps, plates, exams.

A centred hierarchy has a non-centred twin, in which NUTS gets into the neck of the funnel.
"""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats

from benchmarks.everyday import exact
from benchmarks.everyday.entry import Data, Everyday


def schools_centred(errors: jax.Array, y: jax.Array | None = None):
    """Effects in ten schools, each measured with a known error; centred."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("school", len(errors)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, errors), obs=y)


def schools_non_centred(errors: jax.Array, y: jax.Array | None = None):
    """Effects in ten schools, each measured with a known error; non-centred."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("school", len(errors)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("y", dist.Normal(theta, errors), obs=y)


def schools_data() -> Data:
    rng = np.random.default_rng(21)
    errors = rng.integers(6, 16, 10).astype(float)
    effects = rng.normal(6.0, 5.0, 10)
    return (errors,), {"y": np.round(rng.normal(effects, errors))}


def schools_evidence(errors, y) -> float:
    fixed = 10.0**2 + np.diag(errors**2)  # the population's mean is shared by all schools
    return exact.over_scales(
        lambda tau: exact.gaussian(y, 0.0, fixed + tau[:, None, None] ** 2 * np.eye(len(y))),
        [lambda tau: stats.halfcauchy.logpdf(tau, scale=5.0)],
        [(1e-8, 1e4)],
        points=600,
    )


def varying_slopes(
    subject: jax.Array, day: jax.Array, subjects: int, reaction: jax.Array | None = None
):
    """Reaction times over days without sleep: an intercept and a slope of each subject."""
    mean_intercept = numpyro.sample("mean_intercept", dist.Normal(250.0, 100.0))
    mean_slope = numpyro.sample("mean_slope", dist.Normal(0.0, 50.0))
    sd_intercept = numpyro.sample("sd_intercept", dist.HalfNormal(50.0))
    sd_slope = numpyro.sample("sd_slope", dist.HalfNormal(20.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(50.0))
    with numpyro.plate("subject", subjects):
        intercept = numpyro.sample("intercept", dist.Normal(mean_intercept, sd_intercept))
        slope = numpyro.sample("slope", dist.Normal(mean_slope, sd_slope))
    with numpyro.plate("row", len(day)):
        mean = intercept[subject] + slope[subject] * day
        numpyro.sample("reaction", dist.Normal(mean, sigma), obs=reaction)


def varying_slopes_twin(subject, day, subjects, reaction=None):
    mean_intercept = numpyro.sample("mean_intercept", dist.Normal(250.0, 100.0))
    mean_slope = numpyro.sample("mean_slope", dist.Normal(0.0, 50.0))
    sd_intercept = numpyro.sample("sd_intercept", dist.HalfNormal(50.0))
    sd_slope = numpyro.sample("sd_slope", dist.HalfNormal(20.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(50.0))
    with numpyro.plate("subject", subjects):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    intercept = numpyro.deterministic("intercept", mean_intercept + sd_intercept * z)
    slope = numpyro.deterministic("slope", mean_slope + sd_slope * w)
    with numpyro.plate("row", len(day)):
        mean = intercept[subject] + slope[subject] * day
        numpyro.sample("reaction", dist.Normal(mean, sigma), obs=reaction)


def varying_slopes_data() -> Data:
    rng = np.random.default_rng(22)
    subject = np.repeat(np.arange(18), 10)
    day = np.tile(np.arange(10.0), 18)
    mean = rng.normal(250.0, 25.0, 18)[subject] + rng.normal(10.0, 6.0, 18)[subject] * day
    return (subject, day, 18), {"reaction": np.round(rng.normal(mean, 25.0), 1)}


def outlying_groups(group: jax.Array, groups: int, y: jax.Array | None = None):
    """Groups some of which lie far out: Student t effects, half-t scales as `brms` has them."""
    centre = numpyro.sample("centre", dist.StudentT(3.0, 0.0, 2.5))
    tau = numpyro.sample("tau", dist.FoldedDistribution(dist.StudentT(3.0, 0.0, 2.5)))
    sigma = numpyro.sample("sigma", dist.FoldedDistribution(dist.StudentT(3.0, 0.0, 2.5)))
    with numpyro.plate("group", groups):
        effect = numpyro.sample("effect", dist.StudentT(4.0, centre, tau))
    with numpyro.plate("row", len(group)):
        numpyro.sample("y", dist.Normal(effect[group], sigma), obs=y)


def outlying_groups_data() -> Data:
    rng = np.random.default_rng(28)
    group = np.repeat(np.arange(15), 5)
    effect = 1.0 + 0.8 * rng.standard_t(2.0, 15)
    return (group, 15), {"y": np.round(rng.normal(effect[group], 1.2), 2)}


def correlated_slopes(group: jax.Array, x: jax.Array, groups: int, y: jax.Array | None = None):
    """Intercepts and slopes of groups that are correlated, with an LKJ prior."""
    centre = numpyro.sample("centre", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    spread = numpyro.sample("spread", dist.HalfNormal(2.0).expand([2]).to_event(1))
    correlation = numpyro.sample("correlation", dist.LKJCholesky(2, 2.0))
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    factor = spread[:, None] * correlation
    with numpyro.plate("group", groups):
        effect = numpyro.sample("effect", dist.MultivariateNormal(centre, scale_tril=factor))
    with numpyro.plate("row", len(x)):
        mean = effect[group, 0] + effect[group, 1] * x
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def correlated_slopes_data() -> Data:
    rng = np.random.default_rng(23)
    group = np.repeat(np.arange(15), 8)
    x = np.round(rng.normal(size=120), 3)
    covariance = np.array([[1.0, -0.4], [-0.4, 0.5]])
    effect = rng.multivariate_normal([2.0, 1.0], covariance, 15, method="cholesky")
    mean = effect[group, 0] + effect[group, 1] * x
    return (group, x, 15), {"y": np.round(rng.normal(mean, 0.6), 3)}


def batting(at_bats: jax.Array, hits: jax.Array | None = None):
    """Batting averages of 18 players (Efron and Morris 1975): beta-binomial."""
    phi = numpyro.sample("phi", dist.Uniform(0.0, 1.0))
    kappa = numpyro.sample("kappa", dist.LogNormal(4.0, 1.0))
    with numpyro.plate("player", len(at_bats)):
        theta = numpyro.sample("theta", dist.Beta(phi * kappa, (1.0 - phi) * kappa))
        numpyro.sample("hits", dist.Binomial(at_bats, theta), obs=hits)


def batting_data() -> Data:
    hits = np.array([18, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7])
    return (np.full(18, 45),), {"hits": hits}


def batting_evidence(at_bats, hits) -> float:
    # phi / (1 - phi) is the positive number that is integrated over; phi is uniform.
    return exact.over_scales(
        lambda odds, kappa: exact.beta_binomial(
            hits, at_bats, odds / (1 + odds) * kappa, kappa / (1 + odds)
        ),
        [
            lambda odds: -2.0 * np.log1p(odds),
            lambda kappa: stats.lognorm.logpdf(kappa, 1.0, scale=np.exp(4.0)),
        ],
        [(0.05, 2.0), (0.5, 2e4)],
    )


def pumps(hours: jax.Array, failures: jax.Array | None = None):
    """Failures of ten pumps in a power plant (George et al. 1993): gamma-Poisson."""
    alpha = numpyro.sample("alpha", dist.Exponential(1.0))
    beta = numpyro.sample("beta", dist.Gamma(0.1, 1.0))
    with numpyro.plate("pump", len(hours)):
        rate = numpyro.sample("rate", dist.Gamma(alpha, beta))
        numpyro.sample("failures", dist.Poisson(rate * hours), obs=failures)


def pumps_data() -> Data:
    hours = np.array([94.3, 15.7, 62.9, 126.0, 5.24, 31.4, 1.05, 1.05, 2.1, 10.5])
    return (hours,), {"failures": np.array([5, 1, 5, 14, 3, 19, 1, 1, 4, 22])}


def pumps_evidence(hours, failures) -> float:
    return exact.over_scales(
        lambda alpha, beta: exact.gamma_poisson(failures, hours, alpha, beta),
        [stats.expon.logpdf, lambda beta: stats.gamma.logpdf(beta, 0.1)],
        [(0.05, 20.0), (1e-4, 50.0)],
    )


def seeds(total: jax.Array, bean: jax.Array, root: jax.Array, germinated: jax.Array | None = None):
    """Germination on 21 plates (Crowder 1978): logistic regression with an effect of each."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 5.0))
    b = numpyro.sample("b", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("plate", len(total)):
        effect = numpyro.sample("effect", dist.Normal(0.0, sigma))
        logits = intercept + b[0] * bean + b[1] * root + b[2] * bean * root + effect
        numpyro.sample("germinated", dist.Binomial(total, logits=logits), obs=germinated)


def seeds_twin(total, bean, root, germinated=None):
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 5.0))
    b = numpyro.sample("b", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("plate", len(total)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        effect = numpyro.deterministic("effect", sigma * z)
        logits = intercept + b[0] * bean + b[1] * root + b[2] * bean * root + effect
        numpyro.sample("germinated", dist.Binomial(total, logits=logits), obs=germinated)


def seeds_data() -> Data:
    germinated = [10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3]
    total = [39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7]
    bean = np.repeat([0.0, 1.0], [11, 10])
    root = np.repeat([0.0, 1.0, 0.0, 1.0], [5, 6, 5, 5])
    return (np.array(total), bean, root), {"germinated": np.array(germinated)}


def item_response(
    person: jax.Array, item: jax.Array, persons: int, items: int, y: jax.Array | None = None
):
    """An exam of 10 questions taken by 20 people: two-parameter logistic."""
    with numpyro.plate("person", persons):
        ability = numpyro.sample("ability", dist.Normal(0.0, 1.0))
    with numpyro.plate("item", items):
        difficulty = numpyro.sample("difficulty", dist.Normal(0.0, 2.0))
        discrimination = numpyro.sample("discrimination", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("answer", len(person)):
        logits = discrimination[item] * (ability[person] - difficulty[item])
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def item_response_data() -> Data:
    rng = np.random.default_rng(24)
    person, item = (a.ravel() for a in np.meshgrid(np.arange(20), np.arange(10), indexing="ij"))
    ability, difficulty = rng.normal(size=20), np.linspace(-1.5, 1.5, 10)
    discrimination = rng.lognormal(0.2, 0.4, 10)
    logits = discrimination[item] * (ability[person] - difficulty[item])
    y = (rng.uniform(size=200) < 1.0 / (1.0 + np.exp(-logits))).astype(int)
    return (person, item, 20, 10), {"y": y}


ENTRIES = [
    Everyday(
        "schools-centred",
        schools_centred,
        schools_data,
        truth_model=schools_non_centred,
        closed_form=schools_evidence,
        target_accept=0.98,
    ),
    Everyday(
        "schools-non-centred",
        schools_non_centred,
        schools_data,
        closed_form=schools_evidence,
        target_accept=0.98,
    ),
    Everyday(
        "varying-slopes", varying_slopes, varying_slopes_data, truth_model=varying_slopes_twin
    ),
    Everyday("outlying-groups", outlying_groups, outlying_groups_data, target_accept=0.95),
    Everyday("correlated-slopes", correlated_slopes, correlated_slopes_data, target_accept=0.95),
    Everyday("batting", batting, batting_data, closed_form=batting_evidence, target_accept=0.97),
    Everyday("pumps", pumps, pumps_data, closed_form=pumps_evidence),
    Everyday("seeds", seeds, seeds_data, truth_model=seeds_twin, target_accept=0.95),
    Everyday("item-response", item_response, item_response_data),
]
