"""Takes nothing; gives small models with discrete latents in every kind of place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import cond, scan

sample, plate = numpyro.sample, numpyro.plate

#: Of the hidden Markov models: row i says where state i goes.
TABLE = jnp.array([[0.8, 0.2], [0.3, 0.7]])


class Small(NamedTuple):
    """A model, its data, and the ways in which its gradients can be had."""

    model: Callable
    args: tuple[Any, ...]
    ways: tuple[Any, ...] = ("enumerate", "score")


def loop(y):
    """Three switches in a row, in a Python loop."""
    z = 0.0
    for i in range(3):
        z = sample(f"z{i}", dist.Bernoulli(logits=2.0 * z - 0.5))
        sample(f"y{i}", dist.Normal(z, 0.7), obs=y[i])


def mixture(y):
    """Assignments in a plate, components known."""
    with plate("n", len(y)):
        z = sample("z", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
        sample("y", dist.Normal(jnp.array([-1.0, 0.0, 2.0])[z], 1.0), obs=y)


def mixture_subsampled(y):
    """The same, two of four data points at a time."""
    with plate("n", len(y), subsample_size=2) as index:
        z = sample("z", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
        sample("y", dist.Normal(jnp.array([-1.0, 0.0, 2.0])[z], 1.0), obs=y[index])


def mixture_learned(y):
    """Components unknown: continuous globals above discrete locals."""
    mu = sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 1.0).to_event(1))
    with plate("n", len(y)):
        z = sample("z", dist.Categorical(jnp.array([0.6, 0.4])))
        sample("y", dist.Normal(mu[z], 0.8), obs=y)


def hmm(y):
    """Hidden Markov states, explicit, under scan."""

    def step(z, y_t):
        z = sample("z", dist.Categorical(TABLE[z]))
        sample("y", dist.Normal(2.0 * z, 1.0), obs=y_t)
        return z, None

    scan(step, 0, y)


def hmm_with_plate(y):
    """Two chains side by side in a plate inside the scan."""

    def step(z, y_t):
        with plate("chain", 2):
            z = sample("z", dist.Categorical(TABLE[z]))
            sample("y", dist.Normal(2.0 * z, 1.0), obs=y_t)
        return z, None

    scan(step, jnp.zeros(2, int), y)


def switching(y):
    """A continuous state whose noise is switched by a discrete one, under scan."""

    def step(x, y_t):
        s = sample("s", dist.Bernoulli(jax.nn.sigmoid(x)))
        x = sample("x", dist.Normal(0.8 * x, jnp.where(s == 1, 1.0, 0.3)))
        sample("y", dist.Normal(x, 0.5), obs=y_t)
        return x, None

    scan(step, 0.0, y)


def branch(y):
    """A gate decides which sub-program explains the data."""
    gate = sample("gate", dist.Bernoulli(0.4))

    def left(_):
        return sample("x", dist.Normal(2.0, 1.0))

    def right(_):
        return sample("x", dist.Normal(-1.0, 0.5))

    x = cond(gate == 1, left, right, None)
    sample("y", dist.Normal(x, 1.0), obs=y)


def branch_discrete(y):
    """Discrete latents inside both branches."""
    gate = sample("gate", dist.Bernoulli(0.4))

    def left(_):
        return sample("k", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))

    def right(_):
        return sample("k", dist.Categorical(jnp.array([0.6, 0.3, 0.1])))

    k = cond(gate == 1, left, right, None)
    sample("y", dist.Normal(k + gate, 1.0), obs=y)


def active(y):
    """A random number of components takes part, the others are masked."""
    count = sample("count", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    with plate("component", 3):
        on = jnp.arange(3) <= count
        size = sample("size", dist.Normal(0.0, 1.0))
    sample("y", dist.Normal(jnp.sum(jnp.where(on, size, 0.0)), 0.5), obs=y)


def chosen(y):
    """A global choice above a plate."""
    k = sample("k", dist.Categorical(jnp.array([0.3, 0.3, 0.4])))
    with plate("n", len(y)):
        sample("y", dist.Normal(jnp.array([-1.0, 0.5, 2.0])[k], 1.0), obs=y)


def counted(y):
    """Switches in a plate, seen through their sum alone."""
    with plate("n", 3):
        z = sample("z", dist.Bernoulli(0.3))
    sample("y", dist.Normal(jnp.sum(z), 0.8), obs=y)


def back_into_the_plate(y):
    """The sum of a plate's sites goes back into the same plate: cells are not independent."""
    with plate("n", 3):
        z = sample("z", dist.Bernoulli(0.3))
    total = jnp.sum(z)
    with plate("n", 3):
        sample("y", dist.Normal(total + 0.0 * z, 1.0), obs=y)


def nested(y):
    """Plates within plates, a switch at each level."""
    with plate("group", 2, dim=-2):
        a = sample("a", dist.Bernoulli(0.4))
        with plate("row", 2, dim=-1):
            b = sample("b", dist.Bernoulli(jnp.where(a == 1, 0.8, 0.3)))
            sample("y", dist.Normal(a + b, 1.0), obs=y)


def binomial(y):
    """A number of successes, and what it does."""
    k = sample("k", dist.Binomial(3, 0.4))
    sample("y", dist.Normal(k, 1.0), obs=y)


def poisson(y):
    """Infinitely many values: the score function alone."""
    rate = sample("rate", dist.LogNormal(0.0, 0.5))
    k = sample("k", dist.Poisson(rate))
    sample("y", dist.Normal(k, 1.0), obs=y)


def multinomial(y):
    """Counts of several kinds at once."""
    k = sample("k", dist.Multinomial(2, jnp.array([0.2, 0.3, 0.5])))
    sample("y", dist.Normal(k @ jnp.array([0.0, 1.0, 3.0]), 1.0), obs=y)


FOUR = jnp.array([-1.3, 0.2, 2.5, 1.0])
MODELS = {
    "loop": Small(loop, (jnp.array([0.2, 1.1, 0.7]),)),
    "mixture": Small(mixture, (FOUR,), ("auto", "enumerate", "score")),
    "mixture-subsampled": Small(mixture_subsampled, (FOUR,)),
    "mixture-learned": Small(mixture_learned, (FOUR,)),
    "hmm": Small(hmm, (FOUR,)),
    "hmm-with-plate": Small(hmm_with_plate, (jnp.stack([FOUR[:2], FOUR[2:]], 1),)),
    "switching": Small(switching, (FOUR[:3],)),
    "branch": Small(branch, (0.6,)),
    "branch-discrete": Small(branch_discrete, (1.4,)),
    "active": Small(active, (1.5,)),
    "chosen": Small(chosen, (FOUR,)),
    "counted": Small(counted, (1.7,)),
    "back-into-the-plate": Small(back_into_the_plate, (FOUR[:3],), ("auto", "score")),
    "nested": Small(nested, (jnp.array([[0.1, 1.2], [2.0, 1.0]]),)),
    "binomial": Small(binomial, (1.2,)),
    "poisson": Small(poisson, (1.8,), ("score",)),
    "multinomial": Small(multinomial, (2.5,), ("score",)),
}
