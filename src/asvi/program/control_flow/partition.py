"""Takes the equations of a scan's body; gives which of them wait for the step before.

A *state* is what one step hands to the next. Every equation is marked by the states that it
depends on, one bit each; one bit more marks what must stay in the loop whatever it depends on:
effects, branches (in a batch both sides of them would run), and results so large that a batch of
them wants memory. A state is *settled* if what it becomes depends on settled states alone. The
others, and the equations that take them, are the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from jax.extend.core import Var

from asvi.program.settings import HoistingSettings

__all__ = ["Partition", "outputs_of", "partition_equations"]


@dataclass(frozen=True)
class Partition:
    """A body's equations, in order, by when they can run; those without use are left out."""

    constant: list[Any]
    """That depend on no step."""
    batches: list[list[Any]]
    """That can run for all steps together; each list after the states of the one before."""
    states: list[list[int]]
    """Indices of the states that are known after the batch at the same place."""
    loop: list[Any]
    waiting: list[int]
    """Indices of the states that the loop carries."""
    fixed: list[int]
    """Indices of states that no step changes."""


def partition_equations(
    jaxpr: Any, states: int, keys: int, settings: HoistingSettings = HoistingSettings()
) -> Partition:
    """Sort the equations of a body whose inputs are ``states``, then ``keys``, then others."""
    invars, outvars = jaxpr.invars, jaxpr.outvars
    fixed = [i for i in range(states) if outvars[i] is invars[i]]
    live = _live(jaxpr)
    depends = {v: 1 << i for i, v in enumerate(invars[:states]) if i not in fixed}
    varying = {v for i, v in enumerate(invars) if i not in fixed}
    keyed = set(invars[states : states + keys])
    never = 1 << states
    most = max(settings.min_numbers, settings.max_growth * sum(map(_size, invars)))
    constant, rest = [], []
    for eqn in live:
        takes = [v for v in eqn.invars if isinstance(v, Var)]
        mask = 0
        for v in takes:
            mask |= depends.get(v, 0)
        if not any(v in varying for v in takes) and not eqn.effects:
            constant.append(eqn)
            continue
        varying.update(eqn.outvars)
        random = any(v in keyed for v in takes)
        if random:
            keyed.update(eqn.outvars)
        stays = bool(eqn.effects) or (_branches(eqn) and (mask or not random))
        if stays or (not random and sum(map(_size, eqn.outvars)) > most):
            mask |= never
        depends.update(dict.fromkeys(eqn.outvars, mask))
        rest.append((eqn, mask))

    known, batches, found, done = 0, [], [], set(fixed)
    while True:
        batches.append([eqn for eqn, mask in rest if not mask & ~known])
        rest = [(eqn, mask) for eqn, mask in rest if mask & ~known]
        new = [i for i in range(states) if i not in done and not _of(depends, outvars[i]) & ~known]
        found.append(new)
        if not new:
            break
        done.update(new)
        for i in new:
            known |= 1 << i
    waiting = [i for i in range(states) if i not in done]
    return Partition(constant, batches, found, [eqn for eqn, _ in rest], waiting, fixed)


def outputs_of(eqns: list[Any]) -> set[Any]:
    """The variables that equations make."""
    return {v for eqn in eqns for v in eqn.outvars}


def _of(depends: dict[Any, int], var: Any) -> int:
    return depends.get(var, 0) if isinstance(var, Var) else 0


def _size(var: Any) -> int:
    return prod(getattr(var.aval, "shape", ()))


def _live(jaxpr: Any) -> list[Any]:
    """The equations that the results or effects need, in order."""
    needed = {v for v in jaxpr.outvars if isinstance(v, Var)}
    found = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or any(v in needed for v in eqn.outvars):
            found.append(eqn)
            needed.update(v for v in eqn.invars if isinstance(v, Var))
    return found[::-1]


def _branches(eqn: Any) -> bool:
    """Whether there are branches or open-ended loops in an equation."""
    if eqn.primitive.name in ("cond", "while"):
        return True
    inner = [getattr(value, "jaxpr", value) for value in eqn.params.values()]
    return any(hasattr(value, "eqns") and any(map(_branches, value.eqns)) for value in inner)
