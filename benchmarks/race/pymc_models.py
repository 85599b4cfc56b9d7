"""Takes a problem's arguments; gives the same model in PyMC: same sites, same priors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def linear_raw(age, income, year, y) -> Any:
    import pymc as pm

    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 1000.0)
        b_age = pm.Normal("b_age", 0.0, 10.0)
        b_income = pm.Normal("b_income", 0.0, 1.0)
        b_year = pm.Normal("b_year", 0.0, 10.0)
        sigma = pm.HalfNormal("sigma", 50.0)
        mean = intercept + b_age * age + b_income * income + b_year * year
        pm.Normal("y", mean, sigma, observed=y)
    return model


def linear_collinear(x, y) -> Any:
    import pymc as pm

    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 10.0)
        b = pm.Normal("b", 0.0, 10.0, shape=x.shape[1])
        sigma = pm.Exponential("sigma", 1.0)
        pm.Normal("y", intercept + x @ b, sigma, observed=y)
    return model


def robust(x, y) -> Any:
    import pymc as pm

    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 10.0)
        slope = pm.Normal("slope", 0.0, 10.0)
        sigma = pm.HalfNormal("sigma", 5.0)
        nu = pm.Gamma("nu", alpha=2.0, beta=0.1)
        pm.StudentT("y", nu=nu, mu=intercept + slope * x, sigma=sigma, observed=y)
    return model


def logistic_raw(age, income, y) -> Any:
    import pymc as pm

    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 10.0)
        b_age = pm.Normal("b_age", 0.0, 1.0)
        b_income = pm.Normal("b_income", 0.0, 1.0)
        pm.Bernoulli("y", logit_p=intercept + b_age * age + b_income * income, observed=y)
    return model


def poisson_exposure(age, exposure, y) -> Any:
    import numpy as np
    import pymc as pm

    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 5.0)
        b_age = pm.Normal("b_age", 0.0, 0.5)
        pm.Poisson("y", pm.math.exp(intercept + b_age * age + np.log(exposure)), observed=y)
    return model


def schools_non_centred(errors, y) -> Any:
    import pymc as pm

    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 10.0)
        tau = pm.HalfCauchy("tau", 5.0)
        z = pm.Normal("z", 0.0, 1.0, shape=len(errors))
        theta = pm.Deterministic("theta", mu + tau * z)
        pm.Normal("y", theta, errors, observed=y)
    return model


def varying_slopes(subject, day, subjects, reaction) -> Any:
    import pymc as pm

    with pm.Model() as model:
        mean_intercept = pm.Normal("mean_intercept", 250.0, 100.0)
        mean_slope = pm.Normal("mean_slope", 0.0, 50.0)
        sd_intercept = pm.HalfNormal("sd_intercept", 50.0)
        sd_slope = pm.HalfNormal("sd_slope", 20.0)
        sigma = pm.HalfNormal("sigma", 50.0)
        intercept = pm.Normal("intercept", mean_intercept, sd_intercept, shape=subjects)
        slope = pm.Normal("slope", mean_slope, sd_slope, shape=subjects)
        mean = intercept[subject] + slope[subject] * day
        pm.Normal("reaction", mean, sigma, observed=reaction)
    return model


def pumps(hours, failures) -> Any:
    import pymc as pm

    with pm.Model() as model:
        alpha = pm.Exponential("alpha", 1.0)
        beta = pm.Gamma("beta", alpha=0.1, beta=1.0)
        rate = pm.Gamma("rate", alpha=alpha, beta=beta, shape=len(hours))
        pm.Poisson("failures", rate * hours, observed=failures)
    return model


def eight_schools(sigma, y) -> Any:
    import pymc as pm

    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 10.0)
        log_tau = pm.Normal("log_tau", 5.0, 1.0)
        theta = pm.Normal("theta", mu, pm.math.exp(log_tau), shape=len(y))
        pm.Normal("y", theta, sigma, observed=y)
    return model


def radon(features, county, y) -> Any:
    import pymc as pm

    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        tau = pm.HalfNormal("tau", 1.0)
        theta = pm.Normal("theta", mu, tau, shape=85)
        w = pm.Normal("w", 0.0, 1.0, shape=3)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", features @ w + theta[county], sigma, observed=y)
    return model


MODELS: dict[str, Callable[..., Any]] = {
    "linear-raw": linear_raw,
    "linear-collinear": linear_collinear,
    "robust": robust,
    "logistic-raw": logistic_raw,
    "poisson-exposure": poisson_exposure,
    "schools-non-centred": schools_non_centred,
    "varying-slopes": varying_slopes,
    "pumps": pumps,
    "eight-schools": eight_schools,
    "radon": radon,
}
