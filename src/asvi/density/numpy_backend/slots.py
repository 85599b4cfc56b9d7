"""Takes the steps of a tape; gives them over few slots, in a form that is quick to run.

Numbers in small models cost less than what leads to them: looking up what a step takes, calling,
keeping what it gives. So steps of one or two inputs, nearly all, are told apart beforehand, and
what nobody looks at any more gives its slot to what comes next. Steps that depend on no input that
varies are done once for all that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["Slots", "Step"]

#: format: in place of a second input, there is none, or there are others.
ONE, MANY = -1, -2


class Step(NamedTuple):
    """What is done, the places of what it takes and gives, and the rule of its tangents."""

    do: Callable
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    rule: Callable | None


class Slots:
    """Steps over slots.

    >>> import operator
    >>> steps = [Step(operator.neg, (0,), (2,), None), Step(operator.mul, (2, 2), (3,), None),
    ...          Step(operator.add, (3, 1), (4,), None), Step(operator.add, (4, 4), (5,), None)]
    >>> slots = Slots(steps, [None] * 6, (), (0, 1), (5,))
    >>> slots.run([5, 1]), len(slots)
    ([52], 2)

    ``known`` are places whose values are there before a run. The first ``varying`` inputs vary from
    run to run, the others may stay:

    >>> slots = Slots(steps, [None] * 6, (), (1, 0), (5,), varying=1)
    >>> ready = slots.prepared([5])
    >>> slots.run([1], ready), slots.run([2], ready)
    ([52], [54])
    """

    def __init__(
        self,
        steps: Sequence[Step],
        values: Sequence[Any],
        known: Iterable[int],
        inputs: Sequence[int],
        outputs: Sequence[int],
        varying: int | None = None,
    ):
        used = {k for step in steps for k in step.sources} | {*outputs}
        self._varying = len(inputs) if varying is None else varying
        #: Slots of places: what is known and used, then the inputs, then what they make for good.
        places = [*(k for k in known if k in used), *inputs]
        at = {k: slot for slot, k in enumerate(dict.fromkeys(places))}
        self._blank = [values[k] for k in at]
        first, rest = _apart(steps, inputs[: self._varying])
        self._first = []
        for do, sources, targets, _ in first:
            for k in targets:
                at[k] = len(self._blank)
                self._blank.append(None)
            takes, gives = (tuple(at[k] for k in some) for some in (sources, targets))
            self._first.append(_quick(do, takes, gives))
        self._whole = self._placed(rest, at, {*at} - {*inputs[: self._varying]} | {*outputs})
        self._quick = [_quick(do, takes, gives) for do, takes, gives, _ in self._whole]
        self._inputs, self._outputs = [at[k] for k in inputs], [at[k] for k in outputs]

    def _placed(self, steps: Sequence[Step], at: dict[int, int], kept: set[int]) -> list[Step]:
        """Steps over slots; those of places that are not ``kept`` are used again."""
        last = {k: n for n, step in enumerate(steps) for k in (*step.targets, *step.sources)}
        free: list[int] = []
        found = []
        for n, (do, sources, targets, rule) in enumerate(steps):
            takes = tuple(at[k] for k in sources)
            free += [at[k] for k in dict.fromkeys(sources) if last[k] == n and k not in kept]
            for k in targets:
                if not free:
                    free.append(len(self._blank))
                    self._blank.append(None)
                at[k] = free.pop()
            free += [at[k] for k in targets if last[k] == n and k not in kept]
            found.append(Step(do, takes, tuple(at[k] for k in targets), rule))
        return found

    def __len__(self) -> int:
        return len(self._blank)

    def prepared(self, fixed: Sequence[Any]) -> list[Any]:
        """What runs with these inputs, all but those that vary, have in common."""
        slots = self._blank.copy()
        for slot, x in zip(self._inputs[self._varying :], fixed, strict=True):
            slots[slot] = x
        _do(self._first, slots)
        return slots

    def _begin(self, inputs: Sequence[Any], ready: list[Any] | None) -> list[Any]:
        slots = self.prepared(inputs[self._varying :]) if ready is None else ready.copy()
        for slot, x in zip(self._inputs[: self._varying], inputs, strict=False):
            slots[slot] = x
        return slots

    def run(self, inputs: Sequence[Any], ready: list[Any] | None = None) -> list[Any]:
        """The outputs. Where they are ``ready``, inputs that do not vary are not looked at."""
        slots = self._begin(inputs, ready)
        _do(self._quick, slots)
        return [slots[k] for k in self._outputs]

    def jvp(
        self,
        inputs: Sequence[Any],
        moving: Sequence[int],
        tangents: Sequence[Any],
        ready: list[Any] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        """The outputs and their tangents, None where they stand still.

        The inputs at the places ``moving`` among them, which vary, have these tangents.
        """
        slots, moved = self._begin(inputs, ready), [None] * len(self._blank)
        for k, tangent in zip(moving, tangents, strict=True):
            moved[self._inputs[k]] = tangent
        for do, sources, targets, rule in self._whole:
            values = [slots[k] for k in sources]
            found = do(*values)
            moves = None if rule is None else rule(values, [moved[k] for k in sources], found)
            if len(targets) == 1:
                slots[targets[0]], moved[targets[0]] = found, moves
                continue
            for k, slot in enumerate(targets):
                slots[slot], moved[slot] = found[k], None if moves is None else moves[k]
        return [slots[k] for k in self._outputs], [moved[k] for k in self._outputs]


def _apart(steps: Sequence[Step], varying: Iterable[int]) -> tuple[list[Step], list[Step]]:
    """Steps that hang on nothing that varies, and the others."""
    vary, first, rest = {*varying}, [], []
    for step in steps:
        if vary.isdisjoint(step.sources):
            first.append(step)
        else:
            vary.update(step.targets)
            rest.append(step)
    return first, rest


def _do(steps: Sequence[tuple[Callable, int, int, int]], slots: list[Any]) -> None:
    for do, one, other, target in steps:
        if other >= 0:
            slots[target] = do(slots[one], slots[other])
        elif other == ONE:
            slots[target] = do(slots[one])
        else:
            do(slots)


def _quick(do: Callable, takes: tuple[int, ...], gives: tuple[int, ...]) -> Any:
    """A step as :meth:`Slots.run` does it."""
    if len(gives) == 1 and len(takes) in (1, 2):
        return do, takes[0], takes[1] if len(takes) == 2 else ONE, gives[0]

    def step(slots: list[Any]) -> None:
        found = do(*[slots[k] for k in takes])
        if len(gives) == 1:
            slots[gives[0]] = found
        else:
            for k, x in zip(gives, found, strict=True):
                slots[k] = x

    return step, 0, MANY, 0
