"""Takes the priors that need a stand-in; gives the gap of each candidate, over seeds.

``python -m benchmarks.stand_ins`` fits a normal hierarchy whose spread ``tau`` has each prior, with
each candidate stand-in for it, and reports how far the ELBO stays from the exact log evidence (one
dimension is left after the normal parts are integrated: quadrature).
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints, transforms

import asvi
from asvi.distributions.substitutions import substitution_of
from benchmarks.harness import save, table, train

SEEDS, STEPS, DRAWS = 10, 5000, 8


def _zeros(x):
    return jnp.zeros_like(jnp.asarray(x, jnp.result_type(float)))


def _beta(d):
    ones = _zeros(d.low) + 1.0
    interval = transforms.AffineTransform(d.low, d.high - d.low, domain=constraints.unit_interval)
    return dist.TransformedDistribution(dist.Beta(ones, ones), interval)


OTHERS = {
    dist.HalfNormal: (
        "truncated normal",
        lambda d: dist.TruncatedNormal(_zeros(d.scale), d.scale, low=0.0),
    ),
    dist.HalfCauchy: (
        "truncated Cauchy",
        lambda d: dist.TruncatedCauchy(_zeros(d.scale), d.scale, low=0.0),
    ),
    dist.Exponential: ("Gamma", lambda d: dist.Gamma(_zeros(d.rate) + 1.0, d.rate)),
    dist.Uniform: ("affine Beta", _beta),
}
PRIORS = {
    "HalfNormal": lambda: dist.HalfNormal(5.0),
    "HalfCauchy": lambda: dist.HalfCauchy(5.0),
    "Exponential": lambda: dist.Exponential(0.2),
    "Uniform": lambda: dist.Uniform(0.0, 20.0),
}
DATA = {
    "8 groups, spread near 0": np.array([2.8, 0.8, -0.3, 0.7, -0.1, 0.1, 1.8, 1.2]),
    "50 groups, spread 3": 3.0 * np.random.default_rng(0).standard_normal(50),
}


def model_with(prior):
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", prior())
        with numpyro.plate("group", len(y)):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)

    return model


def log_evidence(prior, y) -> float:
    """Quadrature over log tau; mu and theta in closed form."""
    n, log_tau = len(y), np.linspace(-14.0, 7.0, 20001)
    tau = np.exp(log_tau)
    s2 = 1.0 + tau**2  # y given mu: independent with variance s2; mu adds 25 to all entries
    total, squares = y.sum(), (y**2).sum()
    quadratic = squares / s2 - 25.0 * total**2 / (s2 * (s2 + 25.0 * n))
    log_det = (n - 1) * np.log(s2) + np.log(s2 + 25.0 * n)
    log_joint = -0.5 * (quadratic + log_det + n * np.log(2 * np.pi))
    log_prior = np.array(prior().log_prob(jnp.asarray(tau)))
    inside = np.array(prior().support(jnp.asarray(tau)))
    values = np.where(inside, log_joint + log_prior + log_tau, -np.inf)
    peak = values.max()
    return float(peak + np.log(np.trapezoid(np.exp(values - peak), log_tau)))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    rows = []
    for name, prior in PRIORS.items():
        cls = type(prior())
        ours = substitution_of(cls)
        other_name, other = OTHERS[cls]
        for label, stand_in in (("quantile of normal", ours), (other_name, other)):
            asvi.register_stand_in(cls, stand_in)
            for data_name, y in DATA.items():
                model, args = model_with(prior), (jnp.asarray(y),)
                begin = time.perf_counter()
                fits = train(
                    model,
                    asvi.AutoASVI(model),
                    args,
                    keys=jax.random.split(jax.random.key(0), SEEDS),
                    steps=STEPS,
                    learning_rate=2e-2,
                    loss=asvi.ELBO(num_particles=DRAWS),
                    evaluation_draws=20000,
                    batch=500,
                )
                gaps = log_evidence(prior, y) - np.array(fits["elbo"])
                rows.append(
                    {
                        "prior": name,
                        "data": data_name,
                        "stand-in": label,
                        "median gap": float(np.median(gaps)),
                        "worst gap": float(np.max(gaps))
                        if np.isfinite(gaps).all()
                        else "not finite",
                        "seconds for all seeds": round(time.perf_counter() - begin, 1),
                    }
                )
                print(rows[-1], flush=True)
        asvi.register_stand_in(cls, ours)
    save("stand_ins", rows)
    print(table(rows))


if __name__ == "__main__":
    main()
