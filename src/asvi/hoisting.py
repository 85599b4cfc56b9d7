"""Takes the body of a scan; gives the same scan with its randomness drawn beforehand, at once.

A body's random numbers come from its own key and, as a rule, from nothing that the previous step
made: a normal draw is ``loc(carry) + scale(carry) * noise(key)``. Inside a loop the counter-based
generator is most of a step's cost. :func:`scan` traces the body once, finds the equations that
depend on the key and not on the carry, and computes them for all steps together. The numbers are
the same as in ``jax.lax.scan``.

Where no step's result depends on the carry, as in a chain whose states are all given, there is
nothing to wait for: the carries are known beforehand, and all steps run together. The density of a
path then takes one batched pass in place of a loop.

>>> import jax, jax.numpy as jnp
>>> def step(x, inputs):
...     key, drift = inputs
...     x = x + drift + jax.random.normal(key)
...     return x, x
>>> keys, drifts = jax.random.split(jax.random.key(0), 5), jnp.arange(5.0)
>>> ours = scan(step, 0.0, keys, drifts)
>>> stock = jax.lax.scan(step, 0.0, (keys, drifts))
>>> bool(jnp.allclose(ours[1], stock[1]))
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Var, jaxpr_as_fun

__all__ = ["scan"]


def scan(
    body: Callable[[Any, tuple[Any, Any]], tuple[Any, Any]],
    init: Any,
    keys: Any,
    xs: Any,
    *,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """``lax.scan(body, init, (keys, xs))``; what ``keys`` alone decide is computed beforehand."""
    inputs = (keys, xs)
    plain: Any = {"length": length, "reverse": reverse}
    if not jax.tree.leaves(keys):
        return lax.scan(body, init, inputs, **plain)
    step = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), inputs)
    init = _promoted(body, init, step)
    closed, shapes = jax.make_jaxpr(body, return_shape=True)(init, step)
    carried, of_keys = len(jax.tree.leaves(init)), len(jax.tree.leaves(keys))
    jaxpr = closed.jaxpr
    if _alike(init, shapes[0]) and _forgets(jaxpr, carried) and not _branches(jaxpr):
        flat = _together(jaxpr_as_fun(closed), jax.tree.leaves(init), inputs, reverse)
        return jax.tree.unflatten(jax.tree.structure(shapes), flat)
    early = _keyed(jaxpr, carried, of_keys)
    if not early:
        return lax.scan(body, init, inputs, **plain)

    late = [eqn for eqn in jaxpr.eqns if eqn not in early]
    made = {var for eqn in early for var in eqn.outvars}
    used = [var for eqn in late for var in eqn.invars] + jaxpr.outvars
    # In order of use, each once: the order of a set depends on the process.
    drawn = list(dict.fromkeys(v for v in used if isinstance(v, Var) and v in made))
    parts = {"invars": jaxpr.invars[carried:], "outvars": drawn, "eqns": _makers(jaxpr, drawn)}
    before = jaxpr_as_fun(ClosedJaxpr(jaxpr.replace(**parts), closed.consts))
    parts = {"invars": [*jaxpr.invars, *drawn], "eqns": late}
    after = jaxpr_as_fun(ClosedJaxpr(jaxpr.replace(**parts), closed.consts))

    def remaining_body(carry: Any, step: tuple[list[Any], list[Any]]) -> tuple[Any, Any]:
        values, noise = step
        out = after(*jax.tree.leaves(carry), *values, *noise)
        return jax.tree.unflatten(jax.tree.structure(shapes), out)

    flat = jax.tree.leaves(inputs)
    return lax.scan(remaining_body, init, (flat, jax.vmap(before)(*flat)), **plain)


def _promoted(body: Callable, init: Any, step: Any) -> Any:
    """Python numbers in ``init`` take the type that the body gives them, as in ``lax.scan``."""
    if not any(jax.typeof(x).weak_type for x in jax.tree.leaves(init)):
        return init
    after, _ = jax.eval_shape(body, init, step)
    if jax.tree.structure(after) != jax.tree.structure(init):
        return init  # `lax.scan` has the words for it

    def promote(x: Any, y: Any) -> Any:
        weak = jax.typeof(x).weak_type and not y.weak_type
        return lax.convert_element_type(x, y.dtype) if weak else x

    return jax.tree.map(promote, init, after)


def _keyed(jaxpr: Any, carried: int, of_keys: int) -> list[Any]:
    """The equations that depend on the keys and not on the carry."""
    late = set(jaxpr.invars[:carried])
    keyed = set(jaxpr.invars[carried : carried + of_keys])
    found = []
    for eqn in jaxpr.eqns:
        takes = [var for var in eqn.invars if isinstance(var, Var)]
        if eqn.effects or any(var in late for var in takes):
            late.update(eqn.outvars)
        elif any(var in keyed for var in takes):
            keyed.update(eqn.outvars)
            found.append(eqn)
    return found


def _alike(init: Any, after: Any) -> bool:
    """Whether there is a carry that keeps its form; `lax.scan` has the words if it does not."""
    if not jax.tree.leaves(init) or jax.tree.structure(init) != jax.tree.structure(after):
        return False
    pairs = zip(jax.tree.leaves(init), jax.tree.leaves(after), strict=True)
    return all((jnp.shape(a), _array(a).dtype) == (b.shape, b.dtype) for a, b in pairs)


def _array(x: Any) -> Any:
    return x if hasattr(x, "dtype") else jnp.asarray(x)


def _forgets(jaxpr: Any, carried: int) -> bool:
    """Whether no carry depends on the one before."""
    late = set(jaxpr.invars[:carried])
    for eqn in jaxpr.eqns:
        if eqn.effects or any(var in late for var in eqn.invars if isinstance(var, Var)):
            late.update(eqn.outvars)
    return not any(isinstance(var, Var) and var in late for var in jaxpr.outvars[:carried])


def _branches(jaxpr: Any) -> bool:
    """Whether there are branches or open-ended loops inside, of which all would run at once."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("cond", "while"):
            return True
        inner = [getattr(value, "jaxpr", value) for value in eqn.params.values()]
        if any(hasattr(value, "eqns") and _branches(value) for value in inner):
            return True
    return False


def _together(body: Callable, init: list[Any], inputs: Any, reverse: bool) -> list[Any]:
    """All steps of a scan whose carries do not depend on each other."""
    flat, carried = jax.tree.leaves(inputs), len(init)
    carries = jax.vmap(lambda *step: body(*init, *step)[:carried])(*flat)

    def before(first: Any, carry: jax.Array) -> jax.Array:
        first = _array(first)[None]
        return jnp.concatenate([carry[1:], first] if reverse else [first, carry[:-1]])

    results = jax.vmap(body)(*map(before, init, carries), *flat)
    last = 0 if reverse else -1
    return [*(carry[last] for carry in carries), *results[carried:]]


def _makers(jaxpr: Any, wanted: Sequence[Any]) -> list[Any]:
    """The equations that make ``wanted``, in order."""
    needed = set(wanted)
    found = []
    for eqn in reversed(jaxpr.eqns):
        if any(var in needed for var in eqn.outvars):
            found.append(eqn)
            needed.update(var for var in eqn.invars if isinstance(var, Var))
    return found[::-1]
