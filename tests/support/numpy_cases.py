"""Programs of each operation that NumPy runs, at ordinary points and at awkward ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
from jax import lax

from asvi.distributions.prior_quantiles import noise_of, quantile_at

__all__ = ["CASES", "INDEX", "Case"]

INF, NAN = np.inf, np.nan


@dataclass
class Case:
    """A program, and its inputs in a type of numbers; ``held`` has values alone."""

    function: Callable
    inputs: Callable[[Any], tuple]
    held: bool = False


CASES: dict[str, Case] = {}


def _case(name: str, function: Callable, inputs: Callable, held: bool = False) -> None:
    assert name not in CASES
    CASES[name] = Case(function, inputs, held)


def _words(text: str) -> list[str]:
    return text.split()


def _pairs(*grids: Any) -> tuple:
    return tuple(x.ravel() for x in np.meshgrid(*grids, indexing="ij"))


# ------------------------------------------------------------------------- single entries

POINTS = [
    0.0,
    -0.0,
    1,
    -1,
    0.5,
    -0.5,
    2,
    -2,
    3,
    -3,
    1.5,
    -2.5,
    0.1,
    -0.7,
    4.2,
    30,
    -30.5,
    100,
    -100,
]
FAR = [1e10, -1e10, INF, -INF, NAN]


def _grid(dtype: Any) -> tuple:
    """(Without what is so small that the compiler takes it for 0.)"""
    ends = [s * float(x) for s in (1, -1) for x in (np.finfo(dtype).max / 1e6, 1e-10)]
    return (np.array([*POINTS, *FAR, *ends], dtype),)


def _near(dtype: Any) -> tuple:
    return (np.array([*POINTS, *FAR], dtype),)


def _two(dtype: Any) -> tuple:
    x = np.array([0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 1.5, 30, -30, 1e10, -1e10, *FAR[2:]])
    return _pairs(x.astype(dtype), x.astype(dtype))


def _three(dtype: Any) -> tuple:
    return _pairs(*[np.array([0.0, 1, -1, 2, INF, -INF, NAN, 0.5], dtype)] * 3)


def _positive(dtype: Any) -> tuple:
    x = [0.0, -0.0, 1, -1, 0.5, 2, 3.3, 10, 50, 1e-3, INF, -INF, NAN]
    return _pairs(np.array(x, dtype), np.array(x, dtype))


for _name in _words(
    "abs acos acosh asin asinh atan atanh cbrt ceil cos cosh digamma erf erf_inv erfc exp exp2 "
    "expm1 floor is_finite lgamma log log1p logistic neg rsqrt sign sin sinh sqrt square tan tanh"
):
    _case(_name, getattr(lax, _name), _grid)
for _name in _words("add sub mul div max min pow rem atan2 eq ne lt le gt ge"):
    _case(_name, getattr(lax, _name), _two)
for _n in (-3, -2, -1, 0, 1, 2, 3, 4, 7):
    _case(f"integer_pow {_n}", lambda x, n=_n: lax.integer_pow(x, n), _grid)

_case("powers", lambda x: (x**0.5, x**-0.5, x**2.0, 0.0**x, 2.0**x, x**1.5, x**2.5), _grid)
_case(
    "pow of whole numbers",
    lax.pow,
    lambda d: _pairs(_grid(d)[0], np.array([-2, -1, 0, 1, 2, 3], np.int32)),
)
_case("clamp", lax.clamp, _three)
_case("clip", lambda x: jnp.clip(x, -1.0, 2.0), _grid)
HALVES = [0.5 - 2.0**-54, 0.5 - 2.0**-25, 2.0**52 + 1, 2.0**23 + 1, 3.5, -3.5, -0.5, -0.2]
for _method in lax.RoundingMethod:
    _case(
        f"round {_method.name}",
        lambda x, method=_method: lax.round(x, method),
        lambda d: (np.array([*_grid(d)[0], *HALVES], d),),
    )
_case("igamma", lax.igamma, _positive, held=True)
_case("igammac", lax.igammac, _positive, held=True)
_case("polygamma", lambda x: [lax.polygamma(x.dtype.type(m), x) for m in range(4)], _grid)
_case(
    "polygamma of orders",
    lax.polygamma,
    lambda d: _pairs(np.array([0, 1, 2, 3, 0.5, -1, INF, NAN], d), _grid(d)[0]),
    held=True,
)
_case(
    "betainc",
    lax.betainc,
    lambda d: _pairs(
        *[np.array([0.0, 1, -1, 0.5, 2, 30, INF, NAN], d)] * 2,
        np.array([0.0, 1, -0.1, 0.3, 0.9, 1.1, NAN], d),
    ),
    held=True,
)
_case(
    "betainc along",
    lambda x: lax.betainc(jnp.full_like(x, 2.0), jnp.full_like(x, 0.5), x),
    lambda d: (np.array([0.0, 1, -0.1, 0.3, 0.9, 1.1, NAN], d),),
)
_case("select_n", lambda x, y: lax.select_n(x > 1, x, y), _two)
_case(
    "select_n of many",
    lambda k, x: lax.select_n(k, x, 2 * x, x * x),
    lambda d: (np.array([0, 1, 2, 3, -1, 100, -100], np.int32), np.arange(7).astype(d)),
)
_case("where", lambda x: jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1.0)), 0.0), _grid)
_case("where, unguarded", lambda x: jnp.where(x > 0, jnp.log(x) + lax.lgamma(x), 0.0), _near)
_case("copies", lambda x: (lax.optimization_barrier(x), lax.copy_p.bind(x), x + 0), _grid)
_case("stop_gradient", lambda x: x * lax.stop_gradient(x), _grid)
_case("isnan", lambda x: (jnp.isnan(x), jnp.isinf(x), jnp.isclose(x, x), jnp.nan_to_num(x)), _grid)
_case("bits", lambda x: lax.bitcast_convert_type(x, jnp.int32), lambda d: (np.ones(2, np.float32),))

for _name in _words(
    "relu softplus sigmoid log_sigmoid gelu elu silu leaky_relu selu celu relu6 soft_sign"
):
    _case(f"nn.{_name}", getattr(jax.nn, _name), _grid)
for _name in _words("gammaln erfinv expit logit log_ndtr ndtr ndtri entr i0e gamma spence"):
    _case(f"special.{_name}", getattr(special, _name), _grid)
for _kind in _words("half_normal half_cauchy exponential uniform"):
    # (Beyond, an exponential's slope is the exponential of a difference of two large numbers.)
    _case(
        f"quantile_at.{_kind}",
        partial(quantile_at, _kind),
        lambda t: (np.linspace(-5, 5, 23, dtype=t),),
    )
    _case(f"noise_of.{_kind}", partial(noise_of, _kind), _grid)
for _name in _words("xlogy xlog1py betaln rel_entr kl_div"):
    _case(f"special.{_name}", getattr(special, _name), _two)
_case("multigammaln", lambda x: special.multigammaln(x, 2), _grid)
for _name in _words("floor_divide mod fmod fmax fmin arctan2 hypot logaddexp logaddexp2 heaviside"):
    _case(f"jnp.{_name}", getattr(jnp, _name), _two)


@jax.custom_jvp
def _scaled(k, x):
    """Its rule is another than its derivative."""
    return k * jnp.sqrt(x * x)


@_scaled.defjvp
def _scaled_jvp(primals, tangents):
    k, x = primals
    return _scaled(k, x), 3.0 * k * tangents[1]


_case("rule for whole numbers", lambda x: _scaled(jnp.arange(len(x)), x), _grid)

# ------------------------------------------------------------------------------------ casts

_BEYOND = [s * 2.0**k + e for s in (1, -1) for k in (7, 8, 15, 31, 32, 62, 63, 64) for e in (0, -1)]
for _to in _words("int8 uint8 int16 uint32 int32 int64 uint64 bool float32 float64 float16"):
    _case(
        f"float to {_to}",
        lambda x, to=_to: lax.convert_element_type(x, to),
        lambda d: (np.array([*_grid(d)[0], *_BEYOND, 1e20, -1e20, 0.9, -0.9, -1.9], d),),
        held=_to not in ("float32", "float64"),
    )

# ---------------------------------------------------------------------------- whole numbers


def _ends(dtype: Any) -> np.ndarray:
    about = np.iinfo(dtype)
    negative = [-1, -2, -3, -7, about.min, about.min + 1] if about.min else []
    return np.array([0, 1, 2, 3, 7, about.max, about.max - 1, *negative], dtype)


def _all_of_integers(x: Any, y: Any) -> list[Any]:
    names = "add sub mul div rem max min eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor"
    names += " shift_left shift_right_logical"
    found = [getattr(lax, name)(x, y) for name in names.split()]
    return [*found, x // y, x % y, lax.clamp(x, y, x[::-1]), lax.div(x, jnp.full_like(x, 3))]


def _each_of_integers(x: Any) -> list[Any]:
    names = _words("neg sign bitwise_not square") + (["abs"] if x.dtype != np.uint8 else [])
    found = [getattr(lax, name)(x) for name in names]
    found += [lax.integer_pow(x, k) for k in (2, 3, 5)]
    found += [lax.cumsum(x), lax.cumprod(x), lax.cummax(x), lax.cummin(x)]
    found += [jnp.sum(x, dtype=x.dtype), jnp.prod(x, dtype=x.dtype), jnp.max(x), jnp.min(x)]
    found += [jnp.sum(x), jnp.mean(x), lax.argmax(x, 0, np.int32), jnp.argmin(x)]
    found += [lax.dot(x, x), lax.reduce_or(x, (0,)), lax.reduce_and(x, (0,))]
    found += [jnp.sum(jnp.broadcast_to(x[:1], (300,)), dtype=x.dtype)]  # wraps around
    found += [jnp.prod(jnp.broadcast_to(x[3], (300,)), dtype=x.dtype)]
    found += [jnp.max(x[:0], initial=x[1]), jnp.min(x[:0], initial=x[1])]
    found += [lax.reduce_max(x[:0], (0,)), lax.reduce_min(x[:0], (0,))]
    types = _words("int8 uint8 int32 uint32 int64 float32 float64 bool")
    found += [lax.convert_element_type(x, to) for to in types]
    found += [x.at[INDEX].get(mode="fill"), x.at[INDEX].add(x[5]), x * 2, x / 3, jnp.sqrt(x)]
    return found


INDEX = np.array([0, 4, 5, -1, -5, -6, 100, -100, 2, 2], np.int32)

for _type in (np.int8, np.uint8, np.int32, np.int64):
    _case(
        f"{_type.__name__} of two",
        _all_of_integers,
        lambda d, t=_type: _pairs(_ends(t), _ends(t)),
    )
    _case(f"{_type.__name__} of one", _each_of_integers, lambda d, t=_type: (_ends(t),))

_case(
    "bool",
    lambda x, y: [
        x & y, x | y, x ^ y, ~x, x == y, x < y, x <= y, lax.max(x, y), lax.min(x, y), x + y, x * y,
        lax.select_n(x, x, y), jnp.sum(x), jnp.any(x), jnp.all(x), jnp.argmax(x),
        jnp.max(x[:0], initial=False), lax.reduce_max(x, (0,)), lax.reduce_max(x[:0], (0,)),
        lax.reduce_min(x[:0], (0,)), jnp.any(x[:0]), jnp.all(x[:0]), jnp.cumsum(x),
        x.at[INDEX].get(mode="fill"), x.at[INDEX].set(y[0]),
    ],
    lambda d: _pairs(np.array([False, True]), np.array([False, True])),
)  # fmt: skip
_case("mixed", lambda i, x: (x * i, x + i), lambda d: (_ends(np.int8)[:4], np.arange(4).astype(d)))

# --------------------------------------------------------------------------------- many entries

ROWS = [
    [1, 1, 0], [2, 1, 2], [INF, INF, 1], [-INF, -INF, -INF], [NAN, 1, INF], [NAN, NAN, -INF],
    [0.0, -0.0, 0], [-0.0, 0.0, -0.0], [INF, -INF, 1], [1, INF, NAN], [1e10, -1e10, 1], [3, 2, 1],
]  # fmt: skip


def _rows(dtype: Any) -> tuple:
    return (np.array(ROWS, dtype),)


def _ordinary(dtype: Any) -> tuple:
    return (np.arange(15).reshape(5, 3).astype(dtype) / 7 - 1,)


def _none(dtype: Any) -> tuple:
    return (np.zeros((2, 0), dtype),)


for _name in _words("max min sum prod"):
    _reduced = getattr(jnp, _name)
    _case(
        f"reduce_{_name}",
        lambda x, f=_reduced: (f(x, 1), f(x, 0), f(x), f(x, ())),
        _rows,
    )
    _case(
        f"reduce_{_name}, ordinary",
        lambda x, f=_reduced: (f(x, 1), f(x, 0), f(x), f(x[None], (0, 2))),
        _ordinary,
    )
    _reduced = getattr(lax, f"reduce_{_name}")
    _case(
        f"reduce_{_name} of none",
        lambda x, f=_reduced: (f(x, (1,)), f(x, (0,)), f(x, (0, 1))),
        _none,
    )
for _name in _words("cumsum cumprod cummax cummin cumlogsumexp"):
    _cumulated = getattr(lax, _name)
    _case(_name, lambda x, f=_cumulated: (f(x, 1), f(x, 0, reverse=True)), _rows)
    _case(f"{_name} of none", lambda x, f=_cumulated: (f(x, 1), f(x, 0)), _none)
_case("argmax", lambda x: [f(x, a) for f in (jnp.argmax, jnp.argmin) for a in (0, 1)], _rows)
_case("any", lambda x: [f(x > 0, a) for f in (jnp.any, jnp.all) for a in (0, 1, ())], _rows)
_case("logsumexp", lambda x: jax.nn.logsumexp(x, axis=1), _rows)
_case("logsumexp, weighted", lambda x: jax.nn.logsumexp(x, axis=1, b=jnp.arange(3.0)), _rows)
_case("softmax", lambda x: (jax.nn.softmax(x, 1), jax.nn.log_softmax(x, 1)), _rows)
_case("norm", lambda x: [jnp.linalg.norm(x, order, 1) for order in (None, 1, INF)], _rows)
_case("var", lambda x: (jnp.var(x, 1), jnp.std(x, 1)), _rows)
_case(
    "dot",
    lambda x: (x @ x.T, jnp.einsum("ij,ij->i", x, x), jnp.einsum("ij,kl->ijkl", x, x)),
    _ordinary,
)
_case("dot of far", lambda x: x @ x.T, _rows)
_case("dot of none", lambda x: (x @ x.T, x.T @ x), _none)
_case("dot of bool", lambda x: lax.dot(x > 0, (x > 0).T), _rows)
_case("dot of types", lambda x: lax.dot(x > 0, (x > 0).T, preferred_element_type=int), _rows)

# --------------------------------------------------------------------------------------- places

_case(
    "pad",
    lambda x: [
        lax.pad(x, x[0, 0] * 0 + 2, config)
        for config in (
            ((1, 2, 1), (-1, 0, 0)), ((-1, -5, 2), (0, 1, 0)), ((-6, -6, 0), (0, 1, 0)),
            ((-12, 4, 0), (0, 1, 0)), ((-3, 9, 3), (2, -4, 1)),
        )
    ],
    _rows,
)  # fmt: skip
_case(
    "shapes",
    lambda x: [
        x[::-1], x[::2, 1:], x.T, x.reshape(-1), x[None], x[:, None], jnp.squeeze(x[:1], 0),
        jnp.concatenate([x, x], 1), jnp.stack([x, x]), *jnp.split(x, 3), jnp.roll(x, 1),
        jnp.broadcast_to(x, (2, *x.shape)), lax.reshape(x, (3, 12), (1, 0)), jnp.diff(x),
        *jnp.unstack(x, axis=1), x[5:2], x[20:], *jnp.unstack(x[:1]), *lax.split(x, [len(x)]),
    ],
    _rows,
)  # fmt: skip
_case(
    "shapes of none",
    lambda x: [
        jnp.concatenate([x, x]), jnp.concatenate([x, jnp.ones((2, 1), x.dtype)], 1), x[::-1], x.T,
        x.reshape(0, 7), x[:, 1:], jnp.broadcast_to(x[:, :, None], (2, 0, 3)),
        jnp.sum(jnp.broadcast_to(x[:0, None] + jnp.inf, (0, 4, 0)), 1),
        lax.pad(x, x.dtype.type(1), ((0, 0, 0), (1, 2, 1))),
        jnp.sum(jnp.broadcast_to(jnp.full((1, 1), INF, x.dtype), (0, 3)), 0), lax.iota(x.dtype, 0),
    ],
    _none,
)  # fmt: skip
_case("sums", lambda x: jax.grad(lambda y: jnp.sum(y * jnp.sin(y) * y))(x), _grid)
_case("iota", lambda x: (x + lax.iota(x.dtype, len(x)), lax.iota(np.int8, 200)), _grid)
for _lower in (True, False):
    for _left in (True, False):
        for _transposed in (True, False):
            for _unit in (True, False):
                _case(
                    f"triangular_solve {_lower} {_left} {_transposed} {_unit}",
                    lambda a, b, p=(_lower, _left, _transposed, _unit): lax.linalg.triangular_solve(
                        a, b, lower=p[0], left_side=p[1], transpose_a=p[2], unit_diagonal=p[3]
                    ),
                    lambda d: (TRIANGLES.astype(d), np.arange(72).reshape(8, 3, 3).astype(d) + 1),
                    held=not _lower,
                )
PROPER = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
ABOVE = np.where(np.triu(np.ones((3, 3)), 1) > 0, NAN, PROPER)
TRIANGLES = np.stack(
    [PROPER, np.tril(PROPER), PROPER * np.array([1, 0, 1]), np.diag([1, 0, 1.0]), PROPER * NAN,
     ABOVE, np.diag([1, INF, 1.0]), np.zeros((3, 3))]
)  # fmt: skip
IMPROPER = np.stack([PROPER, -PROPER, PROPER * NAN, ABOVE, ABOVE.T, np.diag([1, 0, 1.0])])
_case(
    "cholesky",
    lambda x: (lax.linalg.cholesky(x, symmetrize_input=False), lax.linalg.cholesky(x)),
    lambda d: (
        np.stack([PROPER, -PROPER, PROPER * NAN, ABOVE, ABOVE.T, np.diag([1, 0, 1.0])]).astype(d),
    ),
)
_case("cholesky of one", lax.linalg.cholesky, lambda d: ((-PROPER).astype(d),))

# -------------------------------------------------------------------------------------- indices


def _indexed(dtype: Any) -> tuple:
    return np.arange(5).astype(dtype) + 1, INDEX


for _mode in ("fill", "clip", "promise_in_bounds"):
    _case(
        f"read {_mode}",
        lambda x, y, i, m=_mode: [
            x.at[i].get(mode=m),
            y.at[i].get(mode=m),
            y.at[:, i].get(mode=m),
            y.at[i, i[::-1]].get(mode=m),
            jax.vmap(lambda k: lax.dynamic_slice(x, (k,), (3,)))(i),
            x.at[i.astype(np.uint8)].get(mode=m),
            x.at[i].get(mode=m, fill_value=7),
        ],
        lambda d: (np.arange(5).astype(d) + 1, np.arange(15).reshape(5, 3).astype(d), INDEX),
    )
    for _op in ("add", "set"):
        _case(
            f"{_op} {_mode}",
            lambda x, y, u, v, w, i, m=_mode, op=_op: [
                getattr(x.at[i], op)(u, mode=m),
                getattr(y.at[i, i[::-1]], op)(u, mode=m),
                getattr(y.at[i], op)(v, mode=m),
                getattr(y.at[:, i], op)(w, mode=m),
            ],
            lambda d: (
                np.arange(5).astype(d) + 1, np.arange(15).reshape(5, 3).astype(d),
                -np.arange(10).astype(d) - 1, np.arange(30).reshape(10, 3).astype(d),
                np.arange(50).reshape(5, 10).astype(d), INDEX,
            ),
        )  # fmt: skip
        _case(
            f"{_op} {_mode}, each once",
            lambda x, u, i, m=_mode, op=_op: getattr(x.at[i], op)(u, mode=m, unique_indices=True),
            lambda d: (
                np.arange(5).astype(d) + 1,
                np.arange(5).astype(d),
                np.array([3, 0, 9, -9, 1]),
            ),
        )
OUTSIDE = lax.GatherScatterMode
READ = lax.GatherDimensionNumbers((1,), (), (0,))
WRITTEN = lax.ScatterDimensionNumbers((1,), (), (0,))
for _each in (
    lax.GatherScatterMode.FILL_OR_DROP,
    lax.GatherScatterMode.CLIP,
    lax.GatherScatterMode.PROMISE_IN_BOUNDS,
):
    _case(
        f"windows {_each.name}",
        lambda x, u, i, mode=_each: (
            lax.gather(x, i[:, None], READ, (2,), mode=mode),
            lax.scatter_add(x, i[:, None], u, WRITTEN, mode=mode),
        ),
        lambda d: (np.arange(5).astype(d) + 1, np.arange(20).reshape(10, 2).astype(d), INDEX),
    )
    _case(
        f"windows {_each.name}, written",
        lambda x, u, i, mode=_each: lax.scatter(x, i[:, None], u, WRITTEN, mode=mode),
        lambda d: (np.arange(5).astype(d) + 1, np.arange(20).reshape(10, 2).astype(d), INDEX),
    )
_case(
    "narrow index",
    lambda x, i: lax.gather(x, i[:, None], READ, (2,), mode="clip"),
    lambda d: (np.arange(300).astype(d), np.array([0, 3, 127, -1], np.int8)),
)
_case(
    "narrow start",
    lambda x, i: lax.dynamic_slice(x, (i,), (2,)),
    lambda d: (np.arange(300).astype(d), np.int8(-3)),
)
_case(
    "unsigned start",
    lambda x, i: lax.dynamic_slice(x, (i,), (2,)),
    lambda d: (np.arange(5).astype(d), np.uint8(255)),
)
_case("x[i]", lambda x, i: (x[i], x[i[0]], x[i[6]], x[i[5]], x[INDEX], x[-1]), _indexed)
_case(
    "take", lambda x, i: [jnp.take(x, i, mode=m) for m in ("clip", "wrap", "fill", None)], _indexed
)
_case(
    "take_along_axis",
    lambda x, i: jnp.take_along_axis(x, i[:5, None], 1),
    lambda d: (np.arange(15).reshape(5, 3).astype(d), INDEX),
)
for _k in (3, -1, -9, 9):
    _case(
        f"slice at {_k}",
        lambda x, u, i: [
            lax.dynamic_slice(x, (i,), (2,)), lax.dynamic_slice(x, (i,), (0,)),
            lax.dynamic_index_in_dim(x, i), lax.dynamic_update_slice(x, u, (i,)),
        ],
        lambda d, k=_k: (np.arange(5).astype(d), -np.arange(2).astype(d) - 1, np.int32(k)),
    )  # fmt: skip
_case("segment_sum", lambda x, i: jax.ops.segment_sum(x[i], i, 4), _indexed)
_case("one_hot", lambda x, i: jax.nn.one_hot(i, 3) * x[0], _indexed)

# ----------------------------------------------------------------------------- loops and others


def _four(dtype: Any) -> tuple:
    return (np.arange(4).astype(dtype) / 3,)


_case("fori_loop", lambda x: lax.fori_loop(0, 3, lambda i, s: s + x[i] * i, 0 * x[0]), _four)
_case("scan", lambda x: lax.scan(lambda s, r: (s + r, (s * r, r)), 0 * x[0], x), _four)
_case("scan of none", lambda x: lax.scan(lambda s, r: (s + r, s * r), x[0], x[:0]), _four)
_case("associative_scan", lambda x: lax.associative_scan(jnp.multiply, x), _four)
_case("checkpoint", jax.checkpoint(lambda x: jnp.sin(x) * x), _four)
_case("half a number", lambda x: (x.astype(jnp.float16) * 2).astype(x.dtype), _grid)
_case("quarter of a number", lambda x: (x.astype(jnp.bfloat16) * 2).astype(x.dtype), _grid)
_case("complex", lambda x: jnp.abs(lax.complex(x, x)), _four)
_case("sort", jnp.sort, _four)
_case("cond", lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), _four)
_case("function of what is written over", lambda x: x.at[np.array([1, 2])].apply(jnp.sin), _four)
_case("scatter_mul", lambda x: x.at[np.array([1, 2])].multiply(x[0]), _four)
