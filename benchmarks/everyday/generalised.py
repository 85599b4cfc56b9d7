"""Takes nothing; gives regressions of yes or no, counts, grades and survival times."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import OrderedTransform

from benchmarks.everyday.entry import Data, Everyday


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def logistic_raw(age: jax.Array, income: jax.Array, y: jax.Array | None = None):
    """Logistic regression on age and income as they stand in the table."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 10.0))
    b_age = numpyro.sample("b_age", dist.Normal(0.0, 1.0))
    b_income = numpyro.sample("b_income", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(age)):
        logits = intercept + b_age * age + b_income * income
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def logistic_raw_data() -> Data:
    rng = np.random.default_rng(11)
    age = rng.integers(18, 70, 300).astype(float)
    income = np.round(rng.lognormal(np.log(48_000), 0.4, 300), -2)
    chance = sigmoid(0.05 * (age - 42) + 4e-5 * (income - 50_000))
    return (age, income), {"y": (rng.uniform(size=300) < chance).astype(int)}


def logistic_collinear(x: jax.Array, y: jax.Array | None = None):
    """Logistic regression with two columns correlated at 0.99."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 5.0))
    b = numpyro.sample("b", dist.Normal(0.0, 2.5).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=intercept + x @ b), obs=y)


def logistic_collinear_data() -> Data:
    rng = np.random.default_rng(12)
    x = rng.normal(size=(200, 4))
    x[:, 1] = x[:, 0] + 0.14 * x[:, 1]
    x = np.round(x, 3)
    chance = sigmoid(-0.5 + x @ np.array([0.8, 0.4, -1.0, 0.0]))
    return (x,), {"y": (rng.uniform(size=200) < chance).astype(int)}


def logistic_cauchy(x: jax.Array, y: jax.Array | None = None):
    """Logistic regression with Cauchy priors, as Gelman et al. (2008) recommend by default."""
    intercept = numpyro.sample("intercept", dist.Cauchy(0.0, 10.0))
    b = numpyro.sample("b", dist.Cauchy(0.0, 2.5).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=intercept + x @ b), obs=y)


def logistic_cauchy_data() -> Data:
    rng = np.random.default_rng(18)
    x = np.round(0.5 * rng.normal(size=(80, 5)), 3)
    chance = sigmoid(0.3 + x @ np.array([2.0, -3.0, 0.0, 0.5, 6.0]))
    return (x,), {"y": (rng.uniform(size=80) < chance).astype(int)}


def bioassay(log_dose: jax.Array, animals: jax.Array, deaths: jax.Array | None = None):
    """Deaths of 20 animals at four doses (Racine et al. 1986): very few data."""
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 5.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 20.0))
    with numpyro.plate("dose", len(log_dose)):
        chance = dist.Binomial(animals, logits=alpha + beta * log_dose)
        numpyro.sample("deaths", chance, obs=deaths)


def bioassay_data() -> Data:
    log_dose = np.array([-0.86, -0.30, -0.05, 0.73])
    return (log_dose, np.full(4, 5)), {"deaths": np.array([0, 1, 3, 5])}


def poisson_exposure(age: jax.Array, exposure: jax.Array, y: jax.Array | None = None):
    """Poisson regression of claims on the driver's raw age, with years insured as exposure."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 5.0))
    b_age = numpyro.sample("b_age", dist.Normal(0.0, 0.5))
    with numpyro.plate("driver", len(age)):
        rate = jnp.exp(intercept + b_age * age + jnp.log(exposure))
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def poisson_exposure_data() -> Data:
    rng = np.random.default_rng(13)
    age = rng.integers(18, 80, 250).astype(float)
    exposure = np.round(rng.uniform(0.2, 5.0, 250), 2)
    return (age, exposure), {"y": rng.poisson(exposure * np.exp(0.2 - 0.03 * age))}


def negative_binomial(temperature: jax.Array, weekend: jax.Array, y: jax.Array | None = None):
    """Overdispersed counts of visitors on temperature and weekend."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 5.0))
    b_temperature = numpyro.sample("b_temperature", dist.Normal(0.0, 1.0))
    b_weekend = numpyro.sample("b_weekend", dist.Normal(0.0, 1.0))
    concentration = numpyro.sample("concentration", dist.Exponential(0.1))
    with numpyro.plate("day", len(temperature)):
        mean = jnp.exp(intercept + b_temperature * temperature + b_weekend * weekend)
        numpyro.sample("y", dist.NegativeBinomial2(mean, concentration), obs=y)


def negative_binomial_data() -> Data:
    rng = np.random.default_rng(14)
    temperature = np.round(rng.normal(18.0, 6.0, 200), 1)
    weekend = (np.arange(200) % 7 >= 5).astype(float)
    mean = np.exp(1.0 + 0.06 * temperature + 0.5 * weekend)
    return (temperature, weekend), {"y": rng.poisson(mean * rng.gamma(2.5, 1 / 2.5, 200))}


def zero_inflated(persons: jax.Array, camper: jax.Array, y: jax.Array | None = None):
    """Fish caught by groups of visitors, of whom some did not fish at all."""
    gate = numpyro.sample("gate", dist.Beta(1.0, 1.0))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 2.0))
    b_persons = numpyro.sample("b_persons", dist.Normal(0.0, 1.0))
    b_camper = numpyro.sample("b_camper", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", len(persons)):
        rate = jnp.exp(intercept + b_persons * persons + b_camper * camper)
        numpyro.sample("y", dist.ZeroInflatedPoisson(gate, rate), obs=y)


def zero_inflated_data() -> Data:
    rng = np.random.default_rng(15)
    persons = rng.integers(1, 5, 200).astype(float)
    camper = rng.integers(0, 2, 200).astype(float)
    caught = rng.poisson(np.exp(-0.8 + 0.5 * persons + 0.4 * camper))
    return (persons, camper), {"y": np.where(rng.uniform(size=200) < 0.35, 0, caught)}


def ordered_logistic(x: jax.Array, y: jax.Array | None = None):
    """Grades from 0 to 4 on two predictors, with ordered cut points."""
    b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
    base = dist.Normal(0.0, 2.0).expand([4]).to_event(1)
    cuts = numpyro.sample("cuts", dist.TransformedDistribution(base, OrderedTransform()))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.OrderedLogistic(x @ b, cuts), obs=y)


def ordered_logistic_data() -> Data:
    rng = np.random.default_rng(16)
    x = np.round(rng.normal(size=(200, 2)), 3)
    hidden = x @ np.array([1.2, -0.6]) + rng.logistic(size=200)
    return (x,), {"y": np.searchsorted(np.array([-2.0, -0.5, 0.8, 2.2]), hidden)}


def survival(treated: jax.Array, age: jax.Array, event: jax.Array, months: jax.Array):
    """Weibull survival times, some of them censored at the end of the study."""
    shape = numpyro.sample("shape", dist.LogNormal(0.0, 0.5))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 5.0))
    b_treated = numpyro.sample("b_treated", dist.Normal(0.0, 1.0))
    b_age = numpyro.sample("b_age", dist.Normal(0.0, 1.0))
    scale = jnp.exp(intercept + b_treated * treated + b_age * age)
    with numpyro.plate("patient", len(months)):
        with numpyro.handlers.mask(mask=event):
            numpyro.sample("months", dist.Weibull(scale, shape), obs=months)
        with numpyro.handlers.mask(mask=~event):
            numpyro.factor("survived", -((months / scale) ** shape))


def survival_data() -> Data:
    rng = np.random.default_rng(17)
    treated = rng.integers(0, 2, 120).astype(float)
    age = rng.integers(40, 80, 120).astype(float)
    scale = np.exp(4.5 + 0.5 * treated - 0.025 * age)
    months = np.round(scale * rng.weibull(1.4, 120), 1) + 0.1
    return (treated, age, months < 24.0, np.minimum(months, 24.0)), {}


ENTRIES = [
    Everyday("logistic-raw", logistic_raw, logistic_raw_data),
    Everyday("logistic-collinear", logistic_collinear, logistic_collinear_data),
    Everyday("logistic-cauchy", logistic_cauchy, logistic_cauchy_data),
    Everyday("bioassay", bioassay, bioassay_data),
    Everyday("poisson-exposure", poisson_exposure, poisson_exposure_data),
    Everyday("negative-binomial", negative_binomial, negative_binomial_data),
    Everyday("zero-inflated", zero_inflated, zero_inflated_data),
    Everyday("ordered-logistic", ordered_logistic, ordered_logistic_data),
    Everyday("survival", survival, survival_data),
]
