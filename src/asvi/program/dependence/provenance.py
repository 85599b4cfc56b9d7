"""Takes a function of named inputs; gives, for each output, the names that it depends on.

The function is traced to a jaxpr and names are carried through it. Loops are followed to a fixed
point, so that what enters a ``scan`` only through its carry is found as well. (NumPyro's own
``eval_provenance`` lets every output of a loop depend on every input.)

>>> import jax.numpy as jnp
>>> depends = provenance(lambda v: {"u": v["a"] + 1.0, "w": jnp.sin(v["a"]) * v["b"]},
...                      {"a": 1.0, "b": 2.0})
>>> sorted(depends["u"]), sorted(depends["w"])
(['a'], ['a', 'b'])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from asvi.program.traced import record

__all__ = ["inner_jaxpr", "provenance", "scan_parts"]

Names = frozenset[str]
_NONE: Names = frozenset()


def provenance(function: Callable[[dict[str, Any]], Any], inputs: dict[str, Any]) -> Any:
    """The names of ``inputs`` on which each output leaf of ``function(inputs)`` depends."""
    closed, out_shape = record(function, inputs)
    names = {name: jax.tree.map(lambda _, n=name: n, value) for name, value in inputs.items()}
    incoming = [frozenset({name}) for name in jax.tree.leaves(names)]
    outgoing = _through(closed.jaxpr, incoming)
    return jax.tree.unflatten(jax.tree.structure(out_shape), outgoing)


def _union(sets: Sequence[Names]) -> Names:
    return frozenset().union(*sets)


def _through(jaxpr: Jaxpr, incoming: Sequence[Names]) -> list[Names]:
    known: dict[Any, Names] = dict(zip(jaxpr.invars, incoming, strict=True))

    def read(var) -> Names:
        return _NONE if isinstance(var, Literal) else known.get(var, _NONE)

    for eqn in jaxpr.eqns:
        rule = _RULES.get(eqn.primitive.name, _call_or_union)
        results = rule(eqn, [read(var) for var in eqn.invars])
        known.update(zip(eqn.outvars, results, strict=True))
    return [read(var) for var in jaxpr.outvars]


def _open(jaxpr: Any) -> Jaxpr:
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


def _call_or_union(eqn, names: list[Names]) -> list[Names]:
    """Look into a call (jit, custom derivatives, remat); otherwise every input counts."""
    inner = inner_jaxpr(eqn)
    return [_union(names)] * len(eqn.outvars) if inner is None else _through(inner, names)


def inner_jaxpr(eqn) -> Jaxpr | None:
    """The program that a call runs on its inputs as they are."""
    for value in eqn.params.values():
        if isinstance(value, ClosedJaxpr | Jaxpr):
            inner = _open(value)
            if len(inner.invars) == len(eqn.invars) and len(inner.outvars) == len(eqn.outvars):
                return inner
    return None


def scan_parts(eqn) -> tuple[int, int]:
    """How many inputs of a ``scan`` are constants, and how many its carry."""
    # How a scan stores its counts differs between versions of JAX; the shapes tell them as well:
    # a body sees scanned inputs and gives scanned outputs with one axis less.
    body = _open(eqn.params["jaxpr"])
    carry = sum(a.aval.ndim == b.aval.ndim for a, b in zip(eqn.outvars, body.outvars, strict=True))
    whole = sum(a.aval.ndim == b.aval.ndim for a, b in zip(eqn.invars, body.invars, strict=True))
    return whole - carry, carry


def _scan(eqn, names: list[Names]) -> list[Names]:
    body, (consts, carry) = _open(eqn.params["jaxpr"]), scan_parts(eqn)
    whole = consts + carry
    state, scanned = names[consts:whole], names[whole:]
    while True:
        out = _through(body, [*names[:consts], *state, *scanned])
        grown = [old | new for old, new in zip(state, out[:carry], strict=True)]
        if grown == state:
            return out
        state = grown


def _while(eqn, names: list[Names]) -> list[Names]:
    test, body = _open(eqn.params["cond_jaxpr"]), _open(eqn.params["body_jaxpr"])
    n_test, n_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    test_consts, body_consts = names[:n_test], names[n_test : n_test + n_body]
    state = names[n_test + n_body :]
    while True:
        stop = _union(_through(test, [*test_consts, *state]))
        out = _through(body, [*body_consts, *state])
        grown = [old | new | stop for old, new in zip(state, out, strict=True)]
        if grown == state:
            return grown
        state = grown


def _cond(eqn, names: list[Names]) -> list[Names]:
    index, operands = names[0], names[1:]
    branches = [_through(_open(branch), operands) for branch in eqn.params["branches"]]
    return [index | _union(outs) for outs in zip(*branches, strict=True)]


_RULES = {"scan": _scan, "while": _while, "cond": _cond}
