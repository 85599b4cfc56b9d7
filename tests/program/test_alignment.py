"""Which entries depend on which: what is said of a program holds for its numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import lax
from jax.scipy.linalg import solve_triangular

from asvi.density.numpy_backend.tape import NumpyFunction
from asvi.program.dependence.alignment import LOST, alignment

SHAPE = (3, 4)
WEIGHTS = np.random.default_rng(0).normal(size=(4, 4))
LOWER = np.tril(WEIGHTS) + 3 * np.eye(4)


def _matrices(x):
    """A matrix for each row."""
    return 0.1 * x[:, :, None] * x[:, None, :] + jnp.eye(4)


def _gaussian(x):
    return dist.MultivariateNormal(x, scale_tril=LOWER)


#: By what it does, a function of (3, 4) that gives (3, 4), and the axes that it keeps.
KEEPING = {
    "entries": (lambda x: jnp.where(x > 0, jnp.exp(-x), x**2), (0, 1)),
    "with a row": (lambda x: x * jnp.arange(4.0) + 1.0, (0, 1)),
    "sum over rows": (lambda x: x + jnp.sum(x, 0), (1,)),
    "mean of a row": (lambda x: x - jnp.mean(x, 1, keepdims=True), (0,)),
    "all": (lambda x: x + jnp.max(x), ()),
    "softmax": (lambda x: jax.nn.softmax(x, 1), (0,)),
    "roll rows": (lambda x: jnp.roll(x, 1, 0), (1,)),
    "roll columns": (lambda x: jnp.roll(x, 1, 1), (0,)),
    "reversed": (lambda x: x + x[::-1], (1,)),
    "shifted": (lambda x: jnp.concatenate([x[1:], x[:1]]), (1,)),
    "padded": (lambda x: jnp.pad(x, ((0, 0), (1, 0)))[:, :-1], (0,)),
    "matmul": (lambda x: x @ WEIGHTS, (0,)),
    "matmul from the left": (lambda x: WEIGHTS[:3, :3] @ x, (1,)),
    "einsum": (lambda x: jnp.einsum("ij,ik->ij", x, x), (0,)),
    "cumsum of rows": (lambda x: jnp.cumsum(x, 1), (0,)),
    "cumsum over rows": (lambda x: jnp.cumsum(x, 0), (1,)),
    "flat and back": (lambda x: jnp.reshape(jnp.reshape(x, -1), SHAPE), ()),
    "scrambled": (lambda x: jnp.reshape(x.T, SHAPE), ()),
    "there and back": (lambda x: jnp.transpose(x.T) + x[:, None, :][:, 0], (0, 1)),
    "in order": (lambda x: x[jnp.arange(3)], (0, 1)),
    "partner": (lambda x: x[np.array([1, 0, 2])], (1,)),
    "backwards": (lambda x: x[2 - jnp.arange(3)], (1,)),
    "by its own values": (lambda x: jnp.arange(5.0)[jnp.clip(x, 0, 4).astype(int)], (0, 1)),
    "along": (lambda x: jnp.take_along_axis(x, np.array([[0], [1], [2]]), 1) + x, (0,)),
    "set": (lambda x: x.at[0].set(0.0), (0, 1)),
    "set from another": (lambda x: x.at[:, 0].set(x[:, 1]), (0,)),
    "scattered": (lambda x: jnp.zeros(SHAPE).at[np.array([2, 0, 1])].add(x), (1,)),
    "stack": (lambda x: jnp.stack([x, 2 * x], 1)[:, 1], (0, 1)),
    "pairs": (lambda x: jnp.sum(x[:, None] * x[None], 1), (1,)),
    "vmap": (lambda x: jax.vmap(jnp.cumsum)(x), (0,)),
    "loop": (lambda x: lax.fori_loop(0, 3, lambda _, s: 0.5 * s + x, x), (0, 1)),
    "loop by its values": (
        lambda x: lax.while_loop(lambda s: jnp.max(s) > 2.0, lambda s: 0.5 * s, x),
        (),
    ),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, c), jnp.zeros(4), x)[1], (1,)),
    "scan beside": (
        lambda x: lax.scan(lambda c, t: (c + t * x[:, 0], x), jnp.zeros(3), jnp.arange(2.0))[1][0],
        (0, 1),
    ),
    "branch": (lambda x: lax.cond(x[0, 0] > 0, lambda x: x, lambda x: -x, x), ()),
    "known branch": (lambda x: lax.cond(1 > 0, lambda x: x, lambda x: -x, x), (0, 1)),
    "derivative": (jax.grad(lambda x: jnp.sum(jax.nn.softplus(x) ** 2)), (0, 1)),
    "cholesky": (lambda x: jnp.linalg.cholesky(_matrices(x))[:, :, 0], (0,)),
    "solved": (lambda x: solve_triangular(LOWER, x.T, lower=True).T, (0,)),
    "density": (lambda x: dist.Normal(x, 1.0 + x**2).log_prob(0.3), (0, 1)),
    "event": (lambda x: x * _gaussian(x).log_prob(x**2)[:, None], (0,)),
    "constant": (lambda x: jnp.ones(SHAPE), ()),
}  # fmt: skip


def places_of(function):
    return alignment(lambda v: {"out": function(v["x"])}, {"x": jnp.zeros(SHAPE)}, {"x": (0, 1)})[
        "out"
    ].places


def is_true(function, places, seed):
    """Whether changes in one row or column stay where they are said to."""
    rng = np.random.default_rng(seed)
    try:
        run = NumpyFunction(function, jnp.zeros(SHAPE))
    except NotImplementedError:
        run = jax.jit(function)
    for _ in range(2):
        x = rng.normal(size=SHAPE).astype(np.float32)
        before = np.asarray(run(x))
        for axis in (0, 1):
            for i in range(SHAPE[axis]):
                moved = x.copy()
                where = (i,) if axis == 0 else (slice(None), i)
                moved[where] = rng.normal(size=moved[where].shape)
                changed = ~np.isclose(before, np.asarray(run(moved)), rtol=1e-4, atol=1e-5)
                if ("x", None) not in places:
                    assert not changed.any()
                elif (place := places["x", axis]) != LOST:
                    assert not np.delete(changed, i, place).any()


@pytest.mark.parametrize("name", list(KEEPING))
def test_what_is_kept(name):
    function, kept = KEEPING[name]
    places = places_of(function)
    assert [a for a in (0, 1) if places.get(("x", a)) == a] == list(kept)
    is_true(function, places, 0)


@pytest.mark.parametrize("seed", range(100))
def test_one_after_the_other(seed):
    rng = np.random.default_rng(seed)
    first, second, third = (list(KEEPING.values())[k][0] for k in rng.integers(0, len(KEEPING), 3))

    def function(x):
        y = first(x)
        return (second(y) + third(x)) if seed % 2 else third(second(jnp.tanh(y)))

    is_true(function, places_of(function), seed)


def test_unknown_operations_lose_everything():
    assert set(places_of(lambda x: jnp.fft.ifft(jnp.fft.fft(x)).real).values()) == {LOST}


def test_an_axis_in_two_places_is_lost():
    places = alignment(
        lambda v: {"sum": v["z"][:, None] + v["z"][None], "turned": (0 * v["z"])[:, None] + v["w"]},
        {"z": jnp.zeros(3), "w": jnp.zeros((3, 3))},
        {"z": (0,), "w": (0, 1)},
    )
    assert places["sum"].places["z", 0] == LOST
    assert places["turned"].places["z", 0] == 0
    assert places["turned"].places["w", 1] == 1


def test_indices_of_the_data_are_not_looked_at():
    """Another call has other data; an index that counts in this one may not in that."""
    rows = jnp.arange(3)
    places = alignment(lambda v: {"out": v["x"][rows]}, {"x": jnp.zeros(3)}, {"x": (0,)})
    assert places["out"].places["x", 0] == LOST
