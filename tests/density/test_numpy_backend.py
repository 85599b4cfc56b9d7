"""Programs that NumPy runs: the same numbers and derivatives as JAX has."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
import pytest
from numpy.testing import assert_allclose

from asvi.density.numpy_backend import NumpyFunction, Tape

pytestmark = pytest.mark.usefixtures("float64")

INDEX = np.array([2, 0, 2, 1])


def _loop(x):
    def step(state, row):
        state = 0.5 * state + jnp.sin(row)
        return state, state * row

    return jax.lax.scan(step, jnp.zeros(3), x)


@jax.custom_jvp
def _root_of_square(x):
    """Its derivative at 0 is NaN as it stands, and 1 by the rule."""
    return jnp.sqrt(x * x)


@_root_of_square.defjvp
def _root_of_square_jvp(primals, tangents):
    return _root_of_square(*primals), jnp.where(primals[0] < 0, -1.0, 1.0) * tangents[0]


#: Functions of x (4, 3), positive and below 1, that have derivatives.
SMOOTH = {
    "arithmetic": lambda x: (x + 2) * x / (1 + x) - x,
    "powers": lambda x: x**3 + x**-2 + x**-1 + x**0.7 + 2.0**x + jnp.square(x) + jnp.cbrt(x),
    "exponentials": lambda x: jnp.exp(x) * jnp.log(x) + jnp.expm1(x) * jnp.log1p(x) + jnp.exp2(x),
    "roots": lambda x: jnp.sqrt(x) + jax.lax.rsqrt(x),
    "circles": lambda x: jnp.sin(x) + jnp.cos(x) * jnp.tan(x) + jnp.arcsin(x) + jnp.arccos(x),
    "more circles": lambda x: jnp.arctan(x) + jnp.sinh(x) * jnp.cosh(x) + jnp.arcsinh(x),
    "saturating": lambda x: jnp.tanh(x) + jax.nn.sigmoid(x) + jnp.arctanh(x) + jax.nn.softplus(x),
    "normal": lambda x: special.erf(x) + special.erfc(x) + special.erfinv(x) + special.log_ndtr(-x),
    "quantile": lambda x: special.ndtri(x),
    "gamma": lambda x: special.gammaln(x) + special.digamma(x),
    "max and min": lambda x: jnp.maximum(x, 0.5) + jnp.minimum(x, x[::-1]) + jnp.clip(x, 0.3, 0.6),
    "absolute": lambda x: jnp.abs(x - 0.5) * jnp.sign(x - 0.2) + jnp.floor(9 * x) + jnp.ceil(x),
    "where": lambda x: jnp.where(x > 0.5, x**2, jnp.where(jnp.isfinite(x), 3 * x, 0.0)),
    "select of many": lambda x: jax.lax.select_n(INDEX[:, None] + 0 * INDEX[:3], x, 2 * x, x * x),
    "sums": lambda x: jnp.sum(x, 0) + jnp.sum(x * x) + jnp.mean(x, 1)[:3],
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=1) + jnp.max(x, 1) - jnp.min(x),
    "cumulated": lambda x: jnp.cumsum(x, 0) + jax.lax.cumsum(x, 1, reverse=True),
    "products": lambda x: x @ x.T @ x + jnp.einsum("ij,kj->ik", x, x)[:, :3],
    "batched products": lambda x: jnp.einsum("ij,ijk->ik", x, jnp.stack([x, 2 * x], -1)),
    "shapes": lambda x: jnp.transpose(x.reshape(2, 6)[:, None])[::-1] * x[0, 1],
    "joined": lambda x: jnp.concatenate([x[:1], x, x[:, ::-1]]) + jnp.pad(x, ((3, 2), (0, 0))),
    "padded between": lambda x: jax.lax.pad(x, 1.0, ((1, -1, 2), (-1, 2, 0))),
    "stacked": lambda x: jnp.stack([x, 1 - x]) + jnp.split(x, 2)[0][0],
    "stepped": lambda x: x[::2, 1:] * jnp.arange(2.0),
    "rows": lambda x: x[INDEX] + x[-1],
    "columns": lambda x: x[:, INDEX],
    "entries": lambda x: x[INDEX, INDEX],
    "along": lambda x: jnp.take_along_axis(x, INDEX[:, None], 1),
    "beyond": lambda x: x.at[np.array([0, 9])].get(mode="fill", fill_value=2.0),
    "sliced": lambda x: jax.lax.dynamic_slice(x, (INDEX[0], 9), (2, 2)),
    "replaced": lambda x: jax.lax.dynamic_update_slice(x, x[:2, :2] ** 2, (1, 1)),
    "added rows": lambda x: jnp.zeros((5, 3)).at[INDEX].add(x),
    "added beyond": lambda x: jnp.zeros((2, 3)).at[INDEX].add(x, mode="drop"),
    "added entries": lambda x: x.at[INDEX, INDEX].add(x[:, 0]),
    "added columns": lambda x: jnp.zeros((4, 3)).at[:, INDEX].add(jnp.ones((4, 4)) * x[:, :1]),
    "overwritten": lambda x: x.at[INDEX[1:]].set(x[:3] ** 2) * x.at[1:9, 2].set(x[:3, 0]),
    "barrier": lambda x: (
        jax.lax.optimization_barrier(x) * jax.lax.optimization_barrier((x, 2 * x))[1]
    ),
    "segments": lambda x: jax.ops.segment_sum(x, INDEX, 3),
    "polynomial": lambda x: jnp.polyval(jnp.array([1.0, 2.0, 3.0]), x),
    "custom": lambda x: jax.nn.relu(x - 0.5) + jax.checkpoint(jnp.sin)(x),
    "rule of its own": lambda x: 2 * _root_of_square(x - x[0]) + jax.nn.softplus(x),
    "gradient": jax.grad(lambda x: jnp.sum(jnp.log(1 + x[INDEX] ** 2 @ x.T[:, :2]))),
}

#: And some of which NumPy knows the values alone.
VALUES = {
    "loop": _loop,
    "loop backwards": lambda x: jax.lax.scan(
        lambda s, r: (s + r, (s, s * r)), jnp.zeros(3), x, reverse=True
    ),
    "gradient of a loop": jax.grad(lambda x: jnp.sum(_loop(x)[1] ** 2)),
    "whole numbers": lambda x: jnp.round(9 * x - 4).astype(int) // 2 + jnp.argmax(x, 1)[:, None],
    "division towards zero": lambda x: jax.lax.div(jnp.arange(-4, 8).reshape(4, 3), 3) + 0 * x,
    "remainders": lambda x: jax.lax.rem(x - 0.5, 0.2),
    "logic": lambda x: (x > 0.5) & ~(x > 0.7) | (x == x[0]),
    "products along": lambda x: jnp.prod(x, 1) + jax.lax.cumprod(x, 0)[:, 0] + jnp.any(x > 0.9),
    "triangular": lambda x: jax.scipy.linalg.solve_triangular(
        jnp.linalg.cholesky(x.T @ x + jnp.eye(3)), x.T, lower=True
    ),
    "no factor": lambda x: jnp.linalg.cholesky(x.T @ x - 9 * jnp.eye(3)),
    "incomplete": lambda x: special.gammainc(x, 2.0) + special.betainc(x, 2.0, 0.3),
}


@pytest.fixture
def x():
    return _inputs()[0]


def _same(found, wanted):
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, wanted)


@pytest.fixture(scope="module")
def by_jax():
    """What JAX finds, by name: all functions in one program, which takes a tenth of the time."""
    x, way, many, ways = _inputs()
    whole = np.broadcast_to(x, many.shape)

    def all_of(x, way, many, ways, whole):
        moved = {name: jax.jvp(f, (x,), (way,)) for name, f in SMOOTH.items()}
        along = {
            name: jax.vmap(lambda way, f=f: jax.jvp(f, (x,), (way,))[1])(ways)
            for name, f in SMOOTH.items()
        }
        both = {**SMOOTH, **VALUES}
        values = {name: f(x) for name, f in both.items()}
        batches = {name: (jax.vmap(f)(many), jax.vmap(f)(whole)) for name, f in both.items()}
        return values, moved, batches, along

    with jax.enable_x64(True):
        return jax.jit(all_of)(x, way, many, ways, whole)


def _inputs():
    rng = np.random.default_rng(0)
    inside = [rng.uniform(0.05, 0.95, shape) for shape in ((4, 3), (5, 4, 3))]
    return inside[0], rng.normal(size=(4, 3)), inside[1], rng.normal(size=(6, 4, 3))


@pytest.mark.parametrize("name", [*SMOOTH, *VALUES])
def test_values_are_those_of_jax(name, x, by_jax):
    _same(NumpyFunction({**SMOOTH, **VALUES}[name], x)(x), by_jax[0][name])


@pytest.mark.parametrize("name", SMOOTH)
def test_forward_derivatives_are_those_of_jax(name, x, by_jax):
    found = NumpyFunction(SMOOTH[name], x, moving=1).jvp((x,), (_inputs()[1],))
    _same(found, by_jax[1][name])


@pytest.mark.parametrize("name", [*SMOOTH, *VALUES])
def test_batches_and_rows_that_are_all_the_same(name, x, by_jax):
    many = _inputs()[2]
    program = NumpyFunction(jax.vmap({**SMOOTH, **VALUES}[name]), np.zeros(many.shape))
    _same((program(many), program(x[None])), by_jax[2][name])


@pytest.mark.parametrize("name", SMOOTH)
def test_all_directions_at_once(name, x, by_jax):
    ways = _inputs()[3]
    program = NumpyFunction(jax.vmap(SMOOTH[name]), np.zeros(ways.shape), moving=1)
    _, moved = program.jvp((x[None],), (ways,))
    _same(moved, by_jax[3][name])


def test_what_is_the_same_in_all_rows_is_computed_once(x):
    def function(x):
        return x * x.sum() + x[INDEX] @ jnp.ones((3, 3)), jnp.concatenate([x, x])

    tape = Tape(jax.make_jaxpr(jax.vmap(function))(np.zeros((1000, 4, 3))))
    assert [np.shape(found)[0] for found in tape.run([x[None]])] == [1, 1]


def test_what_nobody_asks_for_is_left_out(x):
    def function(x):
        jax.random.normal(jax.random.key(0))  # NumPy could not compute it
        jax.lax.sort(x)
        return x + jnp.log(2.0)

    _same(NumpyFunction(function, x)(x), x + np.log(2.0))


def test_an_operation_that_is_not_known_is_named(x):
    with pytest.raises(NotImplementedError, match="'sort'"):
        NumpyFunction(jnp.sort, x)
    with pytest.raises(NotImplementedError, match="'while'"):
        NumpyFunction(lambda x: jax.lax.while_loop(lambda y: y[0, 0] < 9, lambda y: 2 * y, x), x)
    with pytest.raises(NotImplementedError, match="'scan'"):
        NumpyFunction(_loop, x, moving=1)


def test_inputs_that_do_not_move_need_no_derivatives(x):
    program = NumpyFunction(lambda x, y: x * jnp.sum(special.gammainc(y, 2.0)), x, x, moving=1)
    _same(
        program.jvp((x, x), (x,)),
        jax.jvp(lambda z: z * special.gammainc(x, 2.0).sum(), (x,), (x,)),
    )


def test_single_precision_stays(x):
    found = NumpyFunction(SMOOTH["normal"], x.astype(np.float32))(x.astype(np.float32))
    assert found.dtype == np.float32


def test_of_ways_for_several_platforms_it_takes_the_processors():
    def model(x):
        return jax.lax.platform_dependent(x, tpu=jnp.sin, default=lambda x: 2.0 * x)

    x = np.array([1.0, 3.0], np.float32)
    assert_allclose(NumpyFunction(model, x)(x), 2 * x)


def test_what_is_done_twice_is_done_once_and_axes_move_in_one_step(x):
    def function(x):
        once, again = jnp.exp(x)[:, None], jnp.exp(x)[:, None]
        return jnp.sum(once[:, :, None] * again[:, :, None])

    assert len(NumpyFunction(function, x).tape._steps) == 4  # exp, its axes moved, a product, a sum


def test_inputs_that_stay_are_seen_once_and_slots_are_used_again(x):
    asked = NumpyFunction(
        lambda x, y: jnp.sum(x * jnp.exp(jnp.sin(y)) + jnp.cos(x)), x, x, varying=1
    )
    given = asked.given(2 * x)
    for at in (x, x + 1):
        assert float(given(at)) == float(asked(at, 2 * x))
    assert float(asked.given(x)(x)) == float(asked(x, x)) != float(given(x))
    with np.errstate(all="raise"):
        chain = NumpyFunction(lambda x: jnp.sin(jnp.sin(jnp.sin(jnp.sin(x)))), x)
    assert len(chain.tape._slots) <= 2


def test_an_input_that_is_given_back_stays(x):
    found = NumpyFunction(lambda x, y: (x, x + y, y), x, x, varying=1)(x, 2 * x)
    for here, there in zip(found, (x, 3 * x, 2 * x), strict=True):
        np.testing.assert_allclose(here, there)
