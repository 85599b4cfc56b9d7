"""Random draws that NumPy makes: the bits of JAX, and its samplers with their loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from asvi.density.numpy_backend import Tape

DRAWN = {
    "normal": dist.Normal(0.0, 1.0),
    "gamma": dist.Gamma(0.4, 1.0),
    "t": dist.StudentT(3.0),
    "poisson": dist.Poisson(np.array([0.5, 4.0, 400.0])),
    "binomial": dist.Binomial(np.array([3, 40, 4000]), 0.3),
    "categorical": dist.Categorical(logits=np.arange(3.0)),
    "correlations": dist.LKJCholesky(3, 1.5),
    "angles": dist.VonMises(0.0, 2.0),
}


@pytest.mark.parametrize("name", DRAWN)
def test_draws_of_distributions_are_those_that_jax_compiles(name):
    def draws(key):
        return jax.vmap(lambda k: DRAWN[name].sample(k))(jax.random.split(key, 500))

    key = jax.random.key(3)
    (found,) = Tape(jax.make_jaxpr(draws)(key), draws=True)([key])
    wanted = np.asarray(jax.jit(draws)(key))
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    # Rounding may decide whether a proposal is taken, and which whole number it is rounded to.
    assert np.mean(np.isclose(found, wanted, rtol=1e-3, atol=1e-4)) > 0.99
    assert np.mean(np.abs(found - wanted)) < 0.01 * np.std(wanted)


def of_keys(key, number):
    one, *some = jax.random.split(key, 3)
    folded = jax.random.fold_in(one, number)
    grid = jax.random.split(folded, (2, 3))
    kept = jnp.where(number > 0, grid[:, 1], grid[:, 2])
    joined = jnp.concatenate([kept, jnp.stack(some), grid[number]])
    again = jax.random.wrap_key_data(jax.random.key_data(joined))
    new = jax.random.key(number - 5)
    bits = [jax.random.bits(k, (3, 2), f"uint{n}") for n in (8, 16, 32) for k in (new, again[2])]
    return jax.random.key_data(joined), bits, new, jax.random.randint(again[4], (5,), -3, 30)


def test_keys_and_bits_are_those_of_jax():
    key, number = jax.random.key(5), np.int32(1)
    closed, shape = jax.make_jaxpr(of_keys, return_shape=True)(key, number)
    found = Tape(closed, draws=True)([key, number])
    wanted = jax.jit(of_keys)(key, number)
    assert jax.tree.structure(shape) == jax.tree.structure(wanted)
    for x, y in zip(found, jax.tree.leaves(wanted), strict=True):
        assert x.dtype == y.dtype
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(x, y)


def test_keys_wait_for_the_compiler_where_nothing_is_drawn():
    closed = jax.make_jaxpr(lambda key: jax.random.normal(key))(jax.random.key(0))
    with pytest.raises(NotImplementedError):
        Tape(closed)


def test_rows_of_a_loop_end_each_when_its_own_condition_does():
    def rounds(x, most):
        def grown(state):
            return state[0] * 2 + state[2], state[1] + 1, state[2]

        return jax.lax.while_loop(lambda s: s[0] < most, grown, (x, 0, jnp.ones(2)[0]))

    x, most = np.array([0.5, 100.0, 3.0, 7.0], np.float32), np.float32(9)
    one, each = (rounds, (x[0], most)), (jax.vmap(rounds, (0, None)), (x, most))
    ends = jax.vmap(rounds, (None, 0)), (x[0], x)
    for function, given in (one, each, ends):
        found = Tape(jax.make_jaxpr(function)(*given), draws=True)(list(given))
        for ours, theirs in zip(found, function(*given), strict=True):
            np.testing.assert_allclose(ours, theirs)


def test_branches_are_chosen_as_it_runs():
    def either(which, x):
        return jax.lax.switch(which, [lambda x: x + 1, lambda x: 2 * x, jnp.square], x)

    x = np.arange(3.0, dtype=np.float32)
    tape = Tape(jax.make_jaxpr(either)(np.int32(0), x), draws=True)
    for which in (-5, 0, 1, 2, 9):
        np.testing.assert_allclose(tape([np.int32(which), x])[0], either(which, x))


def test_loops_without_an_end_are_given_up():
    def stuck(x):
        return jax.lax.while_loop(lambda x: x > 0, lambda x: x, x)

    tape = Tape(jax.make_jaxpr(stuck)(1.0), draws=True)
    assert tape([np.float32(-1)])[0] == -1
    with pytest.raises(NotImplementedError, match="so long"):
        tape([np.float32(1)])


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_keys_of_other_generators_are_left_to_the_compiler(impl):
    key = jax.random.key(0, impl=impl)
    inside = jax.make_jaxpr(lambda x: x + jax.random.normal(key))(1.0)
    given = jax.make_jaxpr(lambda key: jax.random.normal(key))(key)
    made = jax.make_jaxpr(lambda: jax.random.normal(jax.random.key(0, impl=impl)))()
    for closed in (inside, given, made):
        with pytest.raises(NotImplementedError):
            Tape(closed, draws=True)


def test_bits_are_numbered_as_jax_once_did_by_the_compiler_alone():
    with jax.threefry_partitionable(False):
        closed = jax.make_jaxpr(lambda key: jax.random.normal(key))(jax.random.key(0))
        with pytest.raises(NotImplementedError):
            Tape(closed, draws=True)
