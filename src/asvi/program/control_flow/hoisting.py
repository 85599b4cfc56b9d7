"""Takes the body of a scan; gives the same scan with all that need not wait computed at once.

A body's random numbers come from its own key and, as a rule, from nothing that the previous step
made: a normal draw is ``loc(carry) + scale(carry) * noise(key)``. Inside a loop the counter-based
generator is most of a step's cost. :func:`scan` traces the body once and sorts its equations
(:mod:`asvi.program.control_flow.partition`): what depends on no step runs once; what does not wait
for the step before runs for all steps together, as a batch; the rest is the loop. The numbers are
those of ``jax.lax.scan``.

Of a random walk the draws are made at once and the loop is a multiply-add. Of a path whose states
are all given nothing is left to wait for: its density takes one batched pass.

*Registers* are carries of another form: what the last W steps gave, newest first. Where they do
not wait for the loop they are built by shifting, and products with them are one for all steps
(:mod:`asvi.program.control_flow.lookback`).

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

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Var, jaxpr_as_fun

from asvi.program.control_flow.lookback import (
    is_dense_cheaper,
    is_look_back,
    look_back_everywhere,
    stack_lookback,
)
from asvi.program.control_flow.partition import outputs_of, partition_equations
from asvi.program.settings import HoistingSettings

__all__ = ["scan"]


def scan(
    body: Callable[[Any, tuple[Any, Any]], tuple[Any, Any]],
    init: Any,
    keys: Any,
    xs: Any,
    *,
    registers: Any = None,
    length: int | None = None,
    reverse: bool = False,
    settings: HoistingSettings = HoistingSettings(),
) -> tuple[Any, Any]:
    """``lax.scan(body, init, (keys, xs))``; what need not wait is computed beforehand.

    :param registers: arrays (W, ...). With them the body takes and gives pairs: it is given
        ``(carry, registers)`` and gives ``(carry, now)``, what this step adds to each register.
        The result has the carry alone.
    :param settings: what leaves the loop.
    """
    inputs = (keys, xs)
    if registers is None:
        return _scan(_without_registers(body), init, (), inputs, length, reverse, settings)
    return _scan(body, init, registers, inputs, length, reverse, settings)


def _without_registers(body: Callable) -> Callable:
    def run(state: Any, step: Any) -> tuple[Any, Any]:
        carry, ys = body(state[0], step)
        return (carry, ()), ys

    return run


def _dtype(x: Any) -> Any:
    """As JAX will have it: without more digits than a user asks it for."""
    return jax.dtypes.canonicalize_dtype(x.dtype, allow_extended_dtype=True)


def _scan(body, init, registers, inputs, length, reverse, settings) -> tuple[Any, Any]:
    step = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], _dtype(x)), inputs)
    init = _promoted(body, init, registers, step)
    closed, shapes = jax.make_jaxpr(body, return_shape=True)((init, registers), step)
    (after, _now), ys = shapes
    flat = jax.tree.leaves(inputs)
    if not flat or not _alike(init, after):
        # Nothing to gain; or `lax.scan` has the words for what is wrong.
        return _plain(body, init, registers, inputs, length, reverse)
    carried = [_array(x) for x in jax.tree.leaves(init)]
    states = [*carried, *jax.tree.leaves(registers)]
    keys = len(jax.tree.leaves(inputs[0]))
    run = _HoistedScan(closed, len(carried), states, flat, keys, reverse, settings)
    carry, found = run.results()
    return jax.tree.unflatten(jax.tree.structure(after), carry), jax.tree.unflatten(
        jax.tree.structure(ys), found
    )


class _HoistedScan:
    """One scan, its equations run in their order: once, in batches, in a loop."""

    def __init__(
        self,
        closed: Any,
        carried: int,
        states: list,
        inputs: list,
        keys: int,
        reverse: bool,
        settings: HoistingSettings,
    ):
        self.closed, self.jaxpr, self.reverse = closed, closed.jaxpr, reverse
        self.settings = settings
        self.carried, self.states = carried, states
        self.length = inputs[0].shape[0]
        self.order = partition_equations(self.jaxpr, len(states), keys, settings)
        self.once: dict[Any, Any] = {}  # values by variable
        self.stacked: dict[Any, Any] = dict(
            zip(self.jaxpr.invars[len(states) :], inputs, strict=True)
        )
        self.made: dict[Any, tuple[Any, Any]] = {}  # by settled register: its start, what steps add

    def results(self) -> tuple[list[Any], list[Any]]:
        """The last carry and the results of all steps."""
        order, jaxpr = self.order, self.jaxpr
        for i in order.fixed:
            self.once[jaxpr.invars[i]] = self.states[i]
        self._run_once()
        last: dict[int, Any] = {i: self.states[i] for i in order.fixed}
        for eqns, known in zip(order.batches, order.states, strict=True):
            self._run_batch(eqns)
            for i in known:
                made = self._sequence(jaxpr.outvars[i])
                last[i] = made[0 if self.reverse else -1]
                self.stacked[jaxpr.invars[i]] = self._before(i, made)
                if i >= self.carried:
                    self.made[jaxpr.invars[i]] = (self.states[i], made)
        last |= self._run_loop()
        found = [self._sequence(var) for var in jaxpr.outvars[len(self.states) :]]
        return [last[i] for i in range(self.carried)], found

    def _function(self, eqns: list[Any], takes: list[Any], gives: list[Any]) -> Callable:
        part = self.jaxpr.replace(invars=takes, outvars=gives, eqns=eqns)
        return jaxpr_as_fun(ClosedJaxpr(part, self.closed.consts))

    def _taken(self, eqns: list[Any], gives: list[Any]) -> tuple[list[Any], list[Any]]:
        """Variables that equations take from before: those known once, those of each step."""
        made = outputs_of(eqns)
        # In order of use, each once: the order of a set depends on the process.
        used = dict.fromkeys(
            v for v in [*(v for eqn in eqns for v in eqn.invars), *gives] if isinstance(v, Var)
        )
        once = [v for v in used if v not in made and v in self.once]
        return once, [v for v in used if v not in made and v in self.stacked]

    def _needed(self, eqns: list[Any]) -> list[Any]:
        """What these equations make and others, or the results, take."""
        made = outputs_of(eqns)
        inside = {id(eqn) for eqn in eqns}
        others = [eqn for eqn in self.jaxpr.eqns if id(eqn) not in inside]
        used = [*(v for eqn in others for v in eqn.invars), *self.jaxpr.outvars]
        return list(dict.fromkeys(v for v in used if isinstance(v, Var) and v in made))

    def _run_once(self) -> None:
        eqns = self.order.constant
        gives = self._needed(eqns)
        takes, _none = self._taken(eqns, [])
        if gives:
            values = self._function(eqns, takes, gives)(*(self.once[v] for v in takes))
            self.once |= dict(zip(gives, values, strict=True))

    def _run_batch(self, eqns: list[Any]) -> None:
        products: list[Any] = []
        later: set[Any] = set()  # variables that wait for them
        after: list[Any] = []
        for eqn in eqns:
            if any(isinstance(v, Var) and v in later for v in eqn.invars):
                after.append(eqn)
            elif self._is_product(eqn):
                products.append(eqn)
            else:
                continue
            later.update(eqn.outvars)
        done = {id(eqn) for eqn in (*products, *after)}
        self._run_together([eqn for eqn in eqns if id(eqn) not in done])
        for eqn in products:
            self.stacked[eqn.outvars[0]] = self._product(eqn)
        self._run_together(after)

    def _is_product(self, eqn: Any) -> bool:
        """Whether it looks back on a settled register, cheaper for all steps at once."""
        if not is_look_back(eqn):
            return False
        source = eqn.invars[1]
        if not isinstance(source, Var) or source not in self.made:  # a model's own, of that name
            return False
        weights, register = (v.aval.shape for v in eqn.invars)
        return is_dense_cheaper(weights[-1] // register[-1], self.length, self.settings)

    def _product(self, eqn: Any) -> jax.Array:
        weights, (first, made) = self._sequence(eqn.invars[0]), self.made[eqn.invars[1]]
        if not self.reverse:
            return look_back_everywhere(weights, first, made)
        found = look_back_everywhere(jnp.flip(weights, 0), first, jnp.flip(made, 0))
        return jnp.flip(found, 0)

    def _run_together(self, eqns: list[Any]) -> None:
        gives = self._needed(eqns)
        if not gives:
            return
        once, each = self._taken(eqns, [])
        run = jax.vmap(
            self._function(eqns, [*once, *each], gives), [None] * len(once) + [0] * len(each)
        )
        values = run(*(self.once[v] for v in once), *(self.stacked[v] for v in each))
        self.stacked |= dict(zip(gives, values, strict=True))

    def _run_loop(self) -> dict[int, Any]:
        order, jaxpr = self.order, self.jaxpr
        if not order.waiting and not order.loop:
            return {}
        carried = [jaxpr.invars[i] for i in order.waiting]
        after = [jaxpr.outvars[i] for i in order.waiting]
        made = outputs_of(order.loop) | set(carried)
        ys = jaxpr.outvars[len(self.states) :]
        gives = list(dict.fromkeys(v for v in ys if isinstance(v, Var) and v in made))
        once, each = self._taken(order.loop, [*after, *gives])
        run = self._function(order.loop, [*once, *carried, *each], [*after, *gives])
        fixed = [self.once[v] for v in once]

        def step(carry: list[Any], values: list[Any]) -> tuple[list[Any], list[Any]]:
            out = run(*fixed, *carry, *values)
            new = [
                _pushed(x, old) if i >= self.carried else x
                for i, x, old in zip(order.waiting, out, carry, strict=False)
            ]
            return new, out[len(carry) :]

        begin = [self.states[i] for i in order.waiting]
        last, found = lax.scan(
            step, begin, [self.stacked[v] for v in each], length=self.length, reverse=self.reverse
        )
        self.stacked |= dict(zip(gives, found, strict=True))
        return dict(zip(order.waiting, last, strict=True))

    def _sequence(self, var: Any) -> jax.Array:
        """A variable's values in all steps."""
        if isinstance(var, Var) and var in self.stacked:
            return self.stacked[var]
        if not isinstance(var, Var):
            value = jnp.asarray(var.val, var.aval.dtype)
        elif var in self.once:
            value = self.once[var]
        else:
            value = dict(zip(self.jaxpr.constvars, self.closed.consts, strict=True))[var]
        return jnp.broadcast_to(value, (self.length, *jnp.shape(value)))

    def _before(self, i: int, made: jax.Array) -> jax.Array:
        """A settled state as each step finds it, from what each step makes of it."""
        first = self.states[i]
        if i < self.carried:
            first = first[None]
            return jnp.concatenate([made[1:], first] if self.reverse else [first, made[:-1]])
        if self.reverse:
            return jnp.flip(stack_lookback(first, jnp.flip(made, 0)), 0)
        return stack_lookback(first, made)


def _pushed(now: jax.Array, register: jax.Array) -> jax.Array:
    return jnp.concatenate([now[None].astype(register.dtype), register[:-1]])


def _plain(body, init, registers, inputs, length, reverse) -> tuple[Any, Any]:
    def step(state: Any, inputs: Any) -> tuple[Any, Any]:
        (carry, now), ys = body(state, inputs)
        return (carry, jax.tree.map(_pushed, now, state[1])), ys

    (carry, _), ys = lax.scan(step, (init, registers), inputs, length=length, reverse=reverse)
    return carry, ys


def _promoted(body: Callable, init: Any, registers: Any, step: Any) -> Any:
    """Python numbers in ``init`` take the type that the body gives them, as in ``lax.scan``."""
    if not any(jax.typeof(x).weak_type for x in jax.tree.leaves(init)):
        return init
    (after, _), _ = jax.eval_shape(body, (init, registers), step)
    if jax.tree.structure(after) != jax.tree.structure(init):
        return init  # `lax.scan` has the words for it

    def promote(x: Any, y: Any) -> Any:
        weak = jax.typeof(x).weak_type and not y.weak_type
        return lax.convert_element_type(x, y.dtype) if weak else x

    return jax.tree.map(promote, init, after)


def _alike(init: Any, after: Any) -> bool:
    """Whether a carry keeps its form."""
    if jax.tree.structure(init) != jax.tree.structure(after):
        return False
    pairs = zip(jax.tree.leaves(init), jax.tree.leaves(after), strict=True)
    return all((jnp.shape(a), _array(a).dtype) == (b.shape, b.dtype) for a, b in pairs)


def _array(x: Any) -> Any:
    return x if hasattr(x, "dtype") else jnp.asarray(x)
