"""Four programs with discrete latents, fitted with nothing to set.

A mixture with explicit assignments, a hidden Markov model with explicit states, a change point, and
a program whose branch depends on a latent. Run it: ``python examples/discrete.py`` (a minute).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import cond, scan

import asvi


def mixture(y):
    """Which component each point belongs to, and where the components are."""
    where = numpyro.sample("where", dist.Normal(jnp.array([-2.0, 2.0]), 2.0).to_event(1))
    with numpyro.plate("point", len(y)):
        which = numpyro.sample("which", dist.Categorical(jnp.array([0.5, 0.5])))
        numpyro.sample("y", dist.Normal(where[which], 1.0), obs=y)


def hidden_markov(y):
    """The state at each step, under scan."""
    go = jnp.array([[0.9, 0.1], [0.2, 0.8]])

    def step(state, y_t):
        state = numpyro.sample("state", dist.Categorical(go[state]))
        numpyro.sample("y", dist.Normal(2.0 * state, 1.0), obs=y_t)
        return state, None

    scan(step, 0, y)


def change_point(counts):
    """When the rate of events changed, and from what to what."""
    early = numpyro.sample("early", dist.Gamma(2.0, 1.0))
    late = numpyro.sample("late", dist.Gamma(2.0, 1.0))
    days = jnp.arange(len(counts))
    day = numpyro.sample("day", dist.Categorical(jnp.ones(len(counts)) / len(counts)))
    rate = jnp.where(days < day, early, late)
    with numpyro.plate("time", len(counts)):
        numpyro.sample("count", dist.Poisson(rate), obs=counts)


def branching(y):
    """Whether the signal or the background explains the data; each branch has its own latent."""
    signal = numpyro.sample("signal", dist.Bernoulli(0.3))

    def present(_):
        return numpyro.sample("level", dist.Normal(3.0, 1.0))

    def absent(_):
        return numpyro.sample("level", dist.Normal(0.0, 0.3))

    level = cond(signal == 1, present, absent, None)
    with numpyro.plate("n", len(y)):
        numpyro.sample("y", dist.Normal(level, 1.0), obs=y)


def main() -> None:
    rng = np.random.default_rng(0)
    points = np.where(rng.random(30) < 0.6, -1.5, 2.5) + rng.normal(size=30)
    series = 2.0 * (np.arange(30) // 10 % 2) + rng.normal(size=30)
    counts = rng.poisson(np.where(np.arange(40) < 25, 1.0, 4.0))
    cases = {
        mixture: points.astype(np.float32),
        hidden_markov: series.astype(np.float32),
        change_point: counts,
        branching: np.array([0.8, 1.9, 1.2], np.float32),
    }
    for model, data in cases.items():
        result = asvi.fit(model, data, rng_key=jax.random.key(0), progress_bar=False)
        print(f"\n{model.__name__}: {(model.__doc__ or '').strip()}")
        print(f"ELBO {result.elbo:.3f} ± {result.elbo_se:.3f}; {result.diagnose().verdict}")
        for name, mean in result.posterior.mean().items():
            print(f"  {name}: mean {np.array2string(np.asarray(mean), precision=2)}")


if __name__ == "__main__":
    main()
