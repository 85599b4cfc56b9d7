"""Programs that NumPy runs: of all operations, the numbers that JAX has, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from asvi.density.numpy_backend import Tape, tape
from asvi.density.numpy_backend import jvp_rules as tangents
from tests.support.drawn_cases import random_program
from tests.support.numpy_cases import CASES

pytestmark = pytest.mark.usefixtures("float64")

EXACT = {"float64": 1e-8, "float32": 2e-4}
TOGETHER = 70  # programs in one: more of them compile slower
RANDOM = range(200)

#: Operations that are no more than the program inside them.
INNER = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr", "checkpoint": "jaxpr"}


def one_by_one(function: Any, *inputs: Any) -> Any:
    """By JAX, each operation alone: the compiler makes other numbers of some that are together.

    (A truth times x is to it a choice of x or 0, and so 0 where x is NaN.)
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*inputs)

    def run(jaxpr: Any, consts: Any, xs: Any) -> list[Any]:
        at = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *xs)))

        def known(v: Any) -> Any:
            return jnp.asarray(v.val, v.aval.dtype) if hasattr(v, "val") else at[v]

        for eqn in jaxpr.eqns:
            given, inner = [known(v) for v in eqn.invars], INNER.get(eqn.primitive.name)
            if inner is not None:
                body = eqn.params[inner]
                found = run(getattr(body, "jaxpr", body), getattr(body, "consts", ()), given)
            else:
                found = eqn.primitive.bind(*given, **eqn.params)
                found = jax.lax.optimization_barrier(found)
            at |= zip(eqn.outvars, found if isinstance(found, list | tuple) else [found])
        return [known(v) for v in jaxpr.outvars]

    found = run(closed.jaxpr, closed.consts, jax.tree.leaves(inputs))
    return jax.tree.unflatten(jax.tree.structure(shape), found)


@dataclass
class Looked:
    """Programs of one case: its values, or its slopes where ``weights`` are those of the values."""

    function: Callable
    inputs: list[np.ndarray]
    moves: list[int]  # which of these do

    @cached_property
    def run(self) -> Tape | None:
        return self._tape([])

    @cached_property
    def along(self) -> Tape | None:
        return self._tape(self.moves) if self.moves else None

    def _tape(self, moves: list[int]) -> Tape | None:
        try:
            return Tape(jax.make_jaxpr(self.function)(*self.inputs), moves)
        except NotImplementedError:
            return None

    def directions(self, rng: np.random.Generator) -> list[np.ndarray]:
        shapes = [(x.shape, x.dtype) for x in (self.inputs[k] for k in self.moves)]
        return [rng.normal(size=shape).astype(dtype) for shape, dtype in shapes]

    def wanted(self, inputs: Any, way: Any) -> Any:
        """By JAX: what is found, and how it moves."""

        def moved(*some: Any) -> Any:
            return self.function(*(dict(enumerate(inputs)) | dict(zip(self.moves, some))).values())

        if self.along is None:
            return one_by_one(self.function, *inputs), None
        some = [inputs[k] for k in self.moves]
        return one_by_one(lambda xs, way: jax.jvp(moved, xs, way), some, way)


def _floats(xs: Any) -> list[int]:
    return [k for k, x in enumerate(xs) if jnp.issubdtype(x.dtype, jnp.floating)]


def _looked(function: Callable, inputs: list[np.ndarray], held: bool) -> list[Looked]:
    """Programs of values and slopes."""
    shapes = jax.eval_shape(function, *inputs)
    shown, moves, rng = _floats(shapes), _floats(inputs), np.random.default_rng(0)
    if held or not shown or not moves:
        return [Looked(function, inputs, [])]
    weights = [rng.normal(size=s.shape).astype(s.dtype) for s in (shapes[k] for k in shown)]

    def slopes(*given: Any) -> Any:
        args, weights = dict(enumerate(given[: len(inputs)])), given[len(inputs) :]

        def of(*some: Any) -> list[Any]:
            found = function(*(args | dict(zip(moves, some))).values())
            return [found[k] for k in shown]

        return jax.vjp(of, *[args[k] for k in moves])[1](list(weights))

    # (A second derivative in single precision has too few digits left to tell much.)
    curved = moves if weights[0].dtype == np.float64 else []
    return [Looked(function, inputs, moves), Looked(slopes, inputs + weights, curved)]


def _given(name: str | int, dtype: str = "float64") -> tuple[Callable, list[np.ndarray], bool]:
    case = CASES[name] if isinstance(name, str) else random_program(name)
    inputs = [np.asarray(x) for x in case.inputs(np.dtype(dtype).type)]
    return lambda *given: jax.tree.leaves(case.function(*given)), inputs, case.held


@cache
def _by_jax(dtype: str, names: tuple[str | int, ...]) -> dict[str | int, list[Any]]:
    """Programs, ways along which they move, and JAX's values and tangents, by name.

    All in one call, which takes a fraction of the time. One of the ways is to stay.
    """
    looks = []
    for name in names:
        looks += [(name, look) for look in _looked(*_given(name, dtype)) if look.run]

    @jax.jit
    def run(inputs: Any, ways: Any) -> Any:
        return [look.wanted(*given) for (_, look), *given in zip(looks, inputs, ways, strict=True)]

    moved = [look.directions(np.random.default_rng(1)) for _, look in looks]
    found: dict[str | int, list[Any]] = {name: [] for name in names}
    for ways in (moved, jax.tree.map(np.zeros_like, moved)):
        wanted = run([look.inputs for _, look in looks], ways)
        for (name, look), way, pair in zip(looks, ways, wanted, strict=True):
            found[name].append((look, way, *pair))
    return found


def _check(name: str | int, dtype: str, names: Any) -> None:
    begin = names.index(name) // TOGETHER * TOGETHER
    for look, way, values, moved in _by_jax(dtype, tuple(names[begin : begin + TOGETHER]))[name]:
        _same(look.run(look.inputs), values)
        if look.along is not None:
            _same(look.along.jvp(look.inputs, way), (values, moved))


def _same(found: Any, wanted: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        if b.dtype == jax.dtypes.float0:
            continue
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if a.dtype.kind == "f":
            exact = EXACT[str(a.dtype)]
            assert_allclose(a, b, rtol=exact, atol=exact / 20)
        else:
            assert_array_equal(a, b)


def _together(names: Any, keep: int) -> list[Any]:
    """Names, those of one program on one worker; beyond so many programs they are slow."""
    batches = [(k // TOGETHER, name) for k, name in enumerate(names)]
    marks = [pytest.mark.xdist_group(f"programs {batch}") for batch, _ in batches]
    return [
        pytest.param(name, marks=[mark] if batch < keep else [mark, pytest.mark.slow])
        for mark, (batch, name) in zip(marks, batches, strict=True)
    ]


@pytest.mark.parametrize("name", _together(CASES, keep=len(CASES)))
@pytest.mark.parametrize("dtype", EXACT)
def test_each_operation_has_the_numbers_of_jax(name, dtype):
    _check(name, dtype, list(CASES))


@pytest.mark.parametrize("seed", _together(RANDOM, keep=1))
def test_random_programs_have_the_numbers_of_jax(seed):
    _check(seed, "float64", RANDOM)


@pytest.mark.parametrize("name", CASES)
def test_batches_of_the_same_rows_are_computed_once_and_rightly(name):
    """An axis of length 1 stands for one of three, in all inputs or in every other."""
    for look in _looked(*_given(name)):
        if look.run is None:
            continue
        whole = [np.broadcast_to(x, (3, *x.shape)) for x in look.inputs]
        tape = Tape(jax.make_jaxpr(jax.vmap(look.function))(*whole))
        wanted = look.run(look.inputs)
        for step in (1, 2):
            mixed = [x[:1] if k % step == 0 else x for k, x in enumerate(whole)]
            _same(tape(mixed), [np.broadcast_to(x, (3, *x.shape)) for x in wanted])


#: Operations of other versions of JAX than this.
ELSEWHERE = {"copy_p", "polynomial"}

_ALONG = ["cumprod", "cummax", "cummin", "cumlogsumexp"]
_ALGEBRA = {name for name in CASES if name.startswith(("cholesky", "triangular"))} - {
    name for name, case in CASES.items() if case.held
}

#: What is left to the compiler: programs, how their values move, and how their slopes do.
REFUSED = {
    "values": {
        "float to float16", "dot of types", "special.i0e", "special.gamma", "complex",
        "narrow index", "narrow start", "unsigned start", "half a number", "quarter of a number",
        "sort", "cond", "function of what is written over", "scatter_mul",
    },
    "tangents of values": {
        "rem", "atan2", "polygamma", "betainc along", "jnp.floor_divide",
        "jnp.mod", "jnp.fmod", "jnp.arctan2", "reduce_prod", "reduce_prod, ordinary",
        "reduce_prod of none", *_ALONG, *(f"{name} of none" for name in _ALONG), *_ALGEBRA,
        "set clip", "windows CLIP, written", "fori_loop", "scan", "scan of none",
    },
    "tangents of slopes": {
        "digamma", "polygamma", "special.ndtri", "special.spence", "jnp.mod", *_ALGEBRA, "scan",
        "scan of none",
    },
}  # fmt: skip


def test_every_operation_has_a_case_and_only_what_is_named_is_refused(monkeypatch):
    met, moved = set(), set()
    refused: dict[str, set[str]] = {kind: set() for kind in REFUSED}

    def rule(eqn: Any, do: Any) -> Any:
        moved.add(eqn.primitive.name)
        return tangents.tangent_rule(eqn, do)

    monkeypatch.setattr(tape, "tangent_rule", rule)
    for name, maker in tape.MAKERS.items():
        monkeypatch.setitem(tape.MAKERS, name, partial(_noted, met, name, maker))
    for name in CASES:
        for kind, look in zip(("values", "slopes"), _looked(*_given(name))):
            if look.run is None:
                refused["values"].add(name)
            elif look.moves and look.along is None:
                refused[f"tangents of {kind}"].add(name)
    tables = (tangents._SLOPES, tangents._LINEAR, tangents._RULES, tangents._STILL)
    assert tape.MAKERS.keys() - met == ELSEWHERE
    assert {name for table in tables for name in table} - moved == ELSEWHERE
    assert refused == REFUSED


def _noted(met: set[str], name: str, maker: Any, eqn: Any) -> Any:
    met.add(name)
    return maker(eqn)
