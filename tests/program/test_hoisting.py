"""Noise drawn before the loop: the same numbers as in `lax.scan`, wherever the key goes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asvi.program.control_flow import hoisting
from asvi.program.control_flow.lookback import look_back


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


def listening(state, inputs):
    """Moved by the noise of the last steps, and by what that had become itself."""
    (x, memory), (key, drift) = state, inputs
    noise = jax.random.normal(key, (2,))
    moved = noise + 0.3 * memory["noise"].sum(0)
    x = x * 0.9 + (moved + 0.1 * memory["moved"][0] * drift).sum()
    return (x, {"moved": moved, "noise": noise}), (x, moved)


def waiting(state, inputs):
    """What it remembers is what the loop makes."""
    (x, memory), (key, drift) = state, inputs
    x = 0.5 * x + drift * jax.random.normal(key) + memory["made"].sum()
    return (x, {"made": jnp.stack([x, drift])}), x


ROWS = jnp.arange(18.0).reshape(9, 2) / 9
REGISTERS = {
    "settled": (listening, {"moved": ROWS[:3], "noise": -ROWS[:3]}),
    "settled, one step": (listening, {"moved": jnp.zeros((1, 2)), "noise": jnp.zeros((1, 2))}),
    "longer than the scan": (listening, {"moved": ROWS, "noise": ROWS**2}),
    "waiting": (waiting, {"made": ROWS[:3]}),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("case", REGISTERS)
def test_registers_hold_the_last_steps_newest_first(case, reverse):
    body, registers = REGISTERS[case]
    keys, drifts = jax.random.split(jax.random.key(1), 7), jnp.linspace(0.1, 1.0, 7)

    def by_hand(state, step):
        (carry, now), ys = body(state, step)
        pushed = jax.tree.map(lambda n, r: jnp.concatenate([n[None], r[:-1]]), now, state[1])
        return (carry, pushed), ys

    def ours(drifts):
        return hoisting.scan(body, 0.5, keys, drifts, registers=registers, reverse=reverse)

    def stock(drifts):
        state = (jnp.asarray(0.5), registers)
        (carry, _), ys = jax.lax.scan(by_hand, state, (keys, drifts), reverse=reverse)
        return carry, ys

    for a, b in zip(*map(jax.tree.leaves, (ours(drifts), stock(drifts))), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5)
    grads = [jax.grad(lambda d, f=f: f(d)[0])(drifts) for f in (ours, stock)]
    np.testing.assert_allclose(*grads, rtol=2e-4, atol=1e-6)


def test_a_window_of_noise_is_not_carried_through_the_loop():
    body, registers = REGISTERS["settled"]
    keys = jax.random.split(jax.random.key(0), 7)

    def run(keys):
        return hoisting.scan(body, 0.5, keys, jnp.ones(7), registers=registers)

    (loop,) = [e for e in jax.make_jaxpr(run)(keys).jaxpr.eqns if e.primitive.name == "scan"]
    inside = [v.aval.shape for v in loop.params["jaxpr"].jaxpr.invars]
    assert not [shape for shape in inside if len(shape) > 1], inside


def test_effects_stay_in_their_step_and_carries_that_no_step_changes_are_kept():
    seen = []

    def body(state, inputs):
        x, fixed = state
        jax.debug.callback(lambda i: seen.append(float(i)), inputs[1], ordered=True)
        return (x + fixed, fixed), x

    keys = jax.random.split(jax.random.key(0), 4)
    (x, fixed), xs = hoisting.scan(body, (0.0, 2.0), keys, jnp.arange(4.0))
    jax.effects_barrier()
    assert (float(x), float(fixed), xs.tolist()) == (8.0, 2.0, [0.0, 2.0, 4.0, 6.0])
    assert seen == [0.0, 1.0, 2.0, 3.0]


def looking_back(state, inputs):
    """Two numbers hear the last steps' noise, and what that had become, by weights of the step."""
    (x, memory), (key, (drift, weights)) = state, inputs
    noise = jax.random.normal(key, (2,))
    moved = noise + look_back(weights, memory["noise"])
    shift = look_back(weights[:, :2], memory["moved"])  # one step back alone
    x = 0.9 * x + jnp.sum((moved + shift) * drift)
    return (x, {"moved": moved, "noise": noise}), (x, moved)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("window", [1, 3, 9])
@pytest.mark.parametrize("first", [np.zeros((9, 2), np.float32), ROWS])
def test_looking_back_is_the_same_for_all_steps_at_once(first, window, reverse):
    keys, drifts = jax.random.split(jax.random.key(1), 7), jnp.linspace(0.1, 1.0, 7)
    weights = 0.3 * jax.random.normal(jax.random.key(2), (7, 2, 2 * window))
    registers = {"moved": first[:window], "noise": -first[:window]}

    def by_hand(state, step):
        (carry, now), ys = looking_back(state, step)
        pushed = jax.tree.map(lambda n, r: jnp.concatenate([n[None], r[:-1]]), now, state[1])
        return (carry, pushed), ys

    def ours(weights):
        xs = (drifts, weights)
        return hoisting.scan(looking_back, 0.5, keys, xs, registers=registers, reverse=reverse)

    def stock(weights):
        state = (jnp.asarray(0.5), jax.tree.map(jnp.asarray, registers))
        (carry, _), ys = jax.lax.scan(by_hand, state, (keys, (drifts, weights)), reverse=reverse)
        return carry, ys

    for a, b in zip(*map(jax.tree.leaves, (ours(weights), stock(weights))), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    grads = [jax.grad(lambda w, f=f: f(w)[0])(weights) for f in (ours, stock)]
    np.testing.assert_allclose(*grads, rtol=2e-4, atol=1e-6)


def test_windows_that_span_the_scan_are_not_written_down():
    keys, xs = jax.random.split(jax.random.key(0), 7), (jnp.ones(7), jnp.ones((7, 2, 12)))
    nothing = np.zeros((6, 2), np.float32)

    def run(keys):
        registers = {"moved": nothing[:1], "noise": nothing}
        return hoisting.scan(looking_back, 0.5, keys, xs, registers=registers)[0]

    compiled = jax.jit(run).lower(keys).compile().as_text()
    assert "7,6,2]" not in compiled  # steps, window, numbers
    assert "7,12]" not in compiled.replace("7,2,12]", "")


def test_a_function_of_the_model_may_have_the_same_name():
    @jax.jit
    def look_back(x, y):
        return x * y

    def body(carry, inputs):
        _key, x = inputs
        return carry + look_back(x, 2.0) + look_back(carry, x), carry

    keys, xs = jax.random.split(jax.random.key(0), 4), jnp.arange(4.0)
    ours, stock = hoisting.scan(body, 0.5, keys, xs), jax.lax.scan(body, 0.5, (keys, xs))
    np.testing.assert_allclose(ours[1], stock[1])
