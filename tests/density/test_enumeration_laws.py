"""Generated programs with discrete sites: whatever they do with the values, sums are exact."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import lax
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer.util import log_density

from asvi.density.enumeration import Enumerated
from asvi.program import Program

#: What a program may do with a vector of whole numbers: some keep cells apart, some do not.
USES = {
    "itself": lambda v, r: 1.0 * v,
    "square": lambda v, r: v**2 + 0.5,
    "neighbour": lambda v, r: v + 2.0 * jnp.roll(v, 1),
    "reversed": lambda v, r: v - jnp.flip(v) * 0.5,
    "differences": lambda v, r: jnp.concatenate([v[:1], jnp.diff(v)]),
    "sum": lambda v, r: v * 0.3 + jnp.sum(v),
    "largest": lambda v, r: jnp.max(v) + 0.0 * v,
    "sorted": lambda v, r: jnp.sort(v) * 1.0,
    "running": lambda v, r: jnp.cumsum(v) * 0.7,
    "product": lambda v, r: jnp.asarray(r.normal(size=(len(v), len(v)))) @ v,
    "banded": lambda v, r: jnp.convolve(v * 1.0, jnp.array([1.0, 0.5, 0.2]), mode="same"),
    "looked up": lambda v, r: jnp.asarray(r.normal(size=4))[v],
    "by data": lambda v, r: v[r.integers(len(v), size=len(v))] * 1.5,
    "row by row": lambda v, r: jnp.take_along_axis(
        jnp.asarray(r.normal(size=(len(v), 4))), v[:, None], 1
    )[:, 0],
    "pairs": lambda v, r: jnp.asarray(r.normal(size=(4, 4)))[v, jnp.roll(v, -1)],
    "chosen": lambda v, r: jnp.where(v > 0, jnp.roll(v, 2), -1.0),
    "which is most": lambda v, r: jnp.argmax(v) + 0.1 * v,
    "one of them": lambda v, r: v[jnp.clip(v[0], 0, len(v) - 1)] + 0.0 * v,
    "a slice": lambda v, r: jnp.repeat(lax.dynamic_slice(v, (v[-1],), (1,)), len(v)) * 1.0,
    "scan": lambda v, r: lax.scan(lambda c, x: (0.5 * c + x, c * x), 1.0, v)[1],
    "one before": lambda v, r: lax.scan(lambda c, x: (x, 2.0 * c + x), 0, v)[1],
    "branch": lambda v, r: lax.cond(v[0] > 0, lambda v: v * 2.0, lambda v: -1.0 * v, v),
    "put": lambda v, r: (1.0 * v).at[r.integers(len(v))].set(v[0] * 3.0),
    "added": lambda v, r: jnp.zeros(len(v)).at[r.integers(len(v), size=len(v))].add(v),
    "padded": lambda v, r: jnp.pad(1.0 * v, (1, 0))[:-1] + v,
    "folded": lambda v, r: jnp.vdot(v, v) + jnp.outer(v, v).reshape(-1)[: len(v)],
}


def generated(seed: int):
    """A program, and its values of the continuous site."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 5))
    count = 2 if size == 4 else int(rng.integers(2, 4))
    names = sorted(USES)
    picks = [names[k] for k in rng.integers(len(names), size=4)]

    def model():
        r = np.random.default_rng(seed + 1)
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        with numpyro.plate("cell", size):
            a = numpyro.sample("a", dist.Categorical(logits=jnp.asarray(r.normal(size=count))))
        told = USES[picks[0]](a, r)
        if picks[1] < "m":
            with numpyro.plate("cell", size):
                b = numpyro.sample("b", dist.Bernoulli(logits=told * 0.3 + x))
        else:
            one = numpyro.sample("b", dist.Bernoulli(logits=told[-1] + x))
            b = jnp.full(size, one)
        mean = USES[picks[2]](a, r) + x * USES[picks[3]](b, r)
        with numpyro.plate("cell", size):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=jnp.asarray(r.normal(size=size)))

    return model, {"x": jnp.float32(rng.normal())}, picks


def errors(seed: int) -> tuple[float, float, list[str]]:
    """Of the sum, and of the probabilities of all configurations, beside NumPyro's."""
    model, values, picks = generated(seed)
    summing = Enumerated(Program.of(model), model, (), {})
    every = [summing._made(np.array(k)) for k in itertools.product(*map(range, summing.counts))]
    every = {n: jnp.asarray(np.stack([x[n] for x in every])) for n in every[0]}

    @jax.jit
    def both(every):
        each = jax.vmap(lambda z: log_density(handlers.seed(model, 0), (), {}, {**values, **z})[0])(
            every
        )
        found, kept = summing.summed(model, values, {}, (), {})
        return each, found, jax.vmap(lambda z: summing.log_prob(kept, z))(every)

    each, found, shares = both(every)
    total = logsumexp(each)
    return (
        float(abs(found - total) / (1 + abs(total))),
        float(np.abs(np.exp(shares) - np.exp(each - total)).max()),
        picks,
    )


@pytest.mark.parametrize("seed", range(12))
def test_sums_of_generated_programs_are_numpyros(seed):
    total, shares, picks = errors(seed)
    assert total < 1e-4, picks
    assert shares < 1e-3, picks


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 120))
def test_sums_of_more_generated_programs_are_numpyros(seed):
    test_sums_of_generated_programs_are_numpyros(seed)
