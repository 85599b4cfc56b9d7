"""Noise drawn before the loop: the same numbers as in `lax.scan`, wherever the key goes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asvi import hoisting


def walk(x, inputs):
    key, drift = inputs
    first, second = jax.random.split(key)
    x = x + drift * jax.random.normal(first) + jax.random.uniform(second, minval=drift, maxval=9.0)
    return x, x


def branching(x, inputs):
    key, drift = inputs
    noise = jax.lax.cond(x > 0, lambda k: jax.random.normal(k), lambda k: -jnp.ones(()), key)
    return x + noise, (noise, drift)


def no_noise(x, inputs):
    _key, drift = inputs
    return x + drift, x


def tree(carry, inputs):
    key, drift = inputs
    a = carry["a"] + jax.random.normal(key, (2,))
    return {"a": a, "n": carry["n"] + 1}, a.sum() * drift


def forgetful(x, inputs):
    key, drift = inputs
    made = drift + jax.random.normal(key)
    return made, x * made


CASES = {
    "no step waits for another": (forgetful, jnp.asarray(0.5)),
    "walk": (walk, 0.0),
    "the carry decides whether to draw": (branching, 0.5),
    "no noise": (no_noise, 1.0),
    "pytree": (tree, {"a": jnp.zeros(2), "n": 0}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("make_key", [jax.random.key, jax.random.PRNGKey])
def test_same_as_lax_scan(case, reverse, make_key):
    body, init = CASES[case]
    keys, drifts = jax.random.split(make_key(1), 7), jnp.linspace(0.1, 1.0, 7)
    ours = hoisting.scan(body, init, keys, drifts, reverse=reverse)
    stock = jax.lax.scan(body, init, (keys, drifts), reverse=reverse)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(stock), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
        assert a.dtype == b.dtype


def test_gradients_and_batches_go_through():
    keys = jax.random.split(jax.random.key(0), (3, 5))

    def end(scan, scale, keys):
        body = lambda x, i: ((x * 0.9 + scale * jax.random.normal(i[0])), x * i[1])  # noqa: E731
        return jnp.sum(scan(body, scale, keys, jnp.ones(5))[1])

    def stock(body, init, keys, xs):
        return jax.lax.scan(body, init, (keys, xs))

    grads = [
        jax.jit(jax.vmap(jax.grad(lambda s, k, f=f: end(f, s, k)), (None, 0)))(2.0, keys)
        for f in (hoisting.scan, stock)
    ]
    np.testing.assert_allclose(*grads, rtol=1e-5)


def test_the_noise_is_drawn_outside_of_the_loop():
    """No random bits are left in the loop's body."""
    keys = jax.random.split(jax.random.key(0), 7)
    closed = jax.make_jaxpr(lambda k: hoisting.scan(walk, 0.0, k, jnp.ones(7)))(keys)
    bodies = [str(e.params["jaxpr"]) for e in closed.jaxpr.eqns if e.primitive.name == "scan"]
    assert len(bodies) == 1
    assert "random_bits" not in bodies[0]
    assert "random_bits" in str(closed)


def test_steps_that_need_not_wait_run_together():
    """A chain whose states are given has no loop; one whose carry is used has."""
    keys = jax.random.split(jax.random.key(0), 7)

    def loops(body):
        closed = jax.make_jaxpr(lambda k: hoisting.scan(body, jnp.zeros(()), k, jnp.ones(7)))(keys)
        return [e.primitive.name for e in closed.jaxpr.eqns].count("scan")

    assert loops(forgetful) == 0
    assert loops(walk) == 1
