"""Takes a task's name and its data; gives TFP's ASVI on it: run in the peer's own environment."""

from __future__ import annotations

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tensorflow_probability.substrates.jax as tfp
from measure import report

tfd = tfp.distributions
DT = 0.02


def drift(x):
    a, b, c = x[..., 0], x[..., 1], x[..., 2]
    return jnp.stack([10.0 * (b - a), a * (28.0 - c) - b, a * b - 8.0 / 3.0 * c], -1)


def walk_likelihood(x, y, seen, noise):
    return jnp.sum(jnp.where(seen, tfd.Normal(x, noise).log_prob(y), 0.0), -1)


def brownian(y, seen):
    @tfd.JointDistributionCoroutineAutoBatched
    def prior():
        yield tfd.MarkovChain(
            tfd.Normal(0.0, 0.1), lambda _, x: tfd.Normal(x, 0.1), num_steps=30, name="x"
        )

    return prior, lambda v: walk_likelihood(v.x, y, seen, 0.15)


def brownian_global(y, seen):
    @tfd.JointDistributionCoroutineAutoBatched
    def prior():
        innovation = yield tfd.LogNormal(0.0, 2.0, name="innovation")
        yield tfd.LogNormal(0.0, 2.0, name="noise")
        yield tfd.MarkovChain(
            tfd.Normal(0.0, innovation),
            lambda _, x: tfd.Normal(x, innovation),
            num_steps=30,
            name="x",
        )

    return prior, lambda v: walk_likelihood(v.x, y, seen, v.noise)


def brownian_loop(y, seen):
    @tfd.JointDistributionCoroutineAutoBatched
    def prior():
        x = yield tfd.Normal(0.0, 0.1, name="x_0")
        for t in range(1, 30):
            x = yield tfd.Normal(x, 0.1, name=f"x_{t}")

    return prior, lambda v: walk_likelihood(jnp.stack(list(v), -1), y, seen, 0.15)


def _lorenz_chain(innovation):
    return tfd.MarkovChain(
        tfd.Independent(tfd.Normal(jnp.zeros(3), 1.0), 1),
        lambda _, x: tfd.Independent(tfd.Normal(x + DT * drift(x), DT**0.5 * innovation), 1),
        num_steps=30,
        name="x",
    )


def lorenz(y, seen):
    @tfd.JointDistributionCoroutineAutoBatched
    def prior():
        yield _lorenz_chain(0.1)

    return prior, lambda v: walk_likelihood(v.x[..., 0], y, seen, 1.0)


def lorenz_global(y, seen):
    @tfd.JointDistributionCoroutineAutoBatched
    def prior():
        innovation = yield tfd.LogNormal(-1.0, 1.0, name="innovation")
        yield tfd.LogNormal(-1.0, 1.0, name="noise")
        yield _lorenz_chain(innovation)

    return prior, lambda v: walk_likelihood(v.x[..., 0], y, seen, v.noise)


def eight_schools(sigma, y):
    @tfd.JointDistributionCoroutineAutoBatched
    def prior():
        mu = yield tfd.Normal(0.0, 10.0, name="mu")
        log_tau = yield tfd.Normal(5.0, 1.0, name="log_tau")
        yield tfd.Normal(mu * jnp.ones(8), jnp.exp(log_tau), name="theta")

    return prior, lambda v: jnp.sum(tfd.Normal(v.theta, sigma).log_prob(y), -1)


def radon(features, county, y):
    @tfd.JointDistributionCoroutineAutoBatched
    def prior():
        mu = yield tfd.Normal(0.0, 1.0, name="mu")
        tau = yield tfd.HalfNormal(1.0, name="tau")
        yield tfd.Normal(mu * jnp.ones(85), tau, name="theta")
        yield tfd.Normal(jnp.zeros(3), 1.0, name="w")
        yield tfd.HalfNormal(1.0, name="sigma")

    def likelihood(v):
        loc = features @ v.w + v.theta[county]
        return jnp.sum(tfd.Normal(loc, v.sigma).log_prob(y), -1)

    return prior, likelihood


def main(name: str, data: str, steps: int) -> None:
    arrays = np.load(data)
    begun = time.perf_counter()
    args = [jnp.asarray(arrays[f"arg{i}"]) for i in range(len(arrays.files))]
    prior, likelihood = globals()[name.replace("-", "_")](*args)
    init, apply = tfp.experimental.vi.build_asvi_surrogate_posterior_stateless(prior)
    params = init(seed=jax.random.PRNGKey(0))
    optimizer = optax.flatten(optax.adam(1e-2))

    def loss(params, key):
        posterior = apply(*params)
        value, log_q = posterior.experimental_sample_and_log_prob(seed=key)
        return log_q - prior.log_prob(value) - likelihood(value)

    def step(state):
        params, memory, key = state
        key, sub = jax.random.split(key)
        gradient = jax.grad(loss)(params, sub)
        updates, memory = optimizer.update(gradient, memory)
        return optax.apply_updates(params, updates), memory, key

    def judge(state):
        keys = jax.random.split(jax.random.PRNGKey(1), 1000)
        return jax.jit(lambda p: jax.lax.map(lambda k: loss(p, k), keys).mean())(state[0])

    start = (params, optimizer.init(params), jax.random.PRNGKey(2))
    report(name, "tfp", start, step, judge, steps, begun)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
