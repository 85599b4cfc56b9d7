r"""Takes which discrete elements each factor of a density depends on; gives sums over all of them.

A density of discrete elements z is a product of factors, each of few of them. Summing out one
element joins the factors that it stands in,

.. math:: \sum_{z_i} \prod_{f \ni i} f(z_i, z_{\partial i}) = g(z_{\partial i}),

a new factor of its neighbours (variable elimination: Zhang and Poole 1996). Elements that share no
factor are summed out together: all points of a mixture at once, and a Markov chain in rounds that
halve it. Back through the rounds, each element has a distribution given its neighbours, from which
it is drawn: draws of all elements are exact.

Who is summed out when is known before any number is; what is then done with numbers is JAX's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asvi.density.settings import EnumerationSettings

__all__ = ["Elimination", "Factors", "TooLarge"]

#: constant of the formula: in place of the logarithm of 0, whose slope would be no number.
IMPOSSIBLE = -1e30


class TooLarge(Exception):
    """The sums have more terms than are worth while."""


class Factors(NamedTuple):
    """Factors of as many elements each, with as many values: a table for each."""

    scopes: np.ndarray  # (factors, elements of each), in rising order
    counts: tuple[int, ...]  # values of each


@dataclass
class _Joined:
    """Factors that elements summed out stand in: whose, and along which axes of their tables."""

    factors: int  # which of the factors that are there by then
    rows: np.ndarray  # of these
    targets: np.ndarray  # to which of the elements that are summed out
    axes: tuple[int, ...]  # of the elements' tables


@dataclass
class _Step:
    """Elements that are summed out at once; tables have one axis for it, then its neighbours."""

    elements: np.ndarray  # (elements,)
    neighbours: np.ndarray  # (elements, neighbours)
    counts: tuple[int, ...]
    joined: list[_Joined] = field(default_factory=list)


class Elimination:
    """The order in which elements are summed out; ``counts`` says how many values each has."""

    def __init__(
        self,
        counts: np.ndarray,
        factors: Sequence[Factors],
        settings: EnumerationSettings = EnumerationSettings(),
    ):
        self.size, self.steps = len(counts), list[_Step]()
        known = list(factors)
        used = [np.zeros(len(f.scopes), bool) for f in known]
        left = set(range(len(counts)))
        total = 0
        while left:
            stands_in = _members(known, used)
            chosen = _choose(sorted(left), stands_in, known, counts, settings.small_table)
            for step in _steps(chosen, stands_in, known, counts):
                total += len(step.elements) * prod(step.counts)
                if prod(step.counts) > settings.max_table or total > settings.max_entries:
                    raise TooLarge
                for joined in step.joined:
                    used[joined.factors][joined.rows] = True
                self.steps.append(step)
                known.append(Factors(step.neighbours, step.counts[1:]))
                used.append(np.full(len(step.neighbours), not step.counts[1:]))
            left -= {int(i) for i in chosen}

    # ------------------------------------------------------------------------------ with numbers

    def summed(self, tables: Sequence[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
        """The log sum over all elements, and each step's tables, from those of the factors.

        Tables hold logarithms, (factors, values of each element ...).
        """
        known, kept = list(tables), []
        total = jnp.zeros((), tables[0].dtype if known else float)
        for step in self.steps:
            whole = jnp.zeros((len(step.elements), *step.counts), total.dtype)
            for j in step.joined:
                whole = _added(whole, known[j.factors], j)
            whole = jnp.maximum(whole, IMPOSSIBLE)
            kept.append(whole)
            found = jax.nn.logsumexp(whole, 1)
            known.append(found)
            if not step.counts[1:]:
                total = total + jnp.sum(found)
        return total, kept

    def drawn(self, kept: Sequence[jax.Array], uniform: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Which value each element has, by uniform numbers (elements,), and its log probability."""

        def choose(step: _Step, log_shares: jax.Array) -> jax.Array:
            ends = jnp.cumsum(jnp.exp(log_shares), -1)
            level = uniform[step.elements][:, None] * ends[:, -1:]
            return jnp.sum(level > ends[:, :-1], -1)

        return self._back(kept, choose)

    def log_prob(self, kept: Sequence[jax.Array], which: jax.Array) -> jax.Array:
        """Log probability of these values (elements,), given all that is no element."""
        return self._back(kept, lambda step, _: which[step.elements])[1]

    def _back(self, kept: Sequence[jax.Array], choose: Any) -> tuple[jax.Array, jax.Array]:
        which, total = jnp.zeros(self.size, int), jnp.zeros(())
        for step, table in zip(reversed(self.steps), reversed(kept), strict=True):
            flat = jnp.moveaxis(table, 1, -1).reshape(len(table), -1, step.counts[0])
            at = jnp.zeros(len(table), int)
            for k, count in enumerate(step.counts[1:]):
                at = at * count + which[step.neighbours[:, k]]
            own = jnp.take_along_axis(flat, at[:, None, None], 1)[:, 0]
            shares = jax.nn.log_softmax(own, -1)
            chosen = choose(step, shares)
            total = total + jnp.sum(jnp.take_along_axis(shares, chosen[:, None], 1))
            which = which.at[step.elements].set(chosen)
        return which, total


def _added(whole: jax.Array, table: jax.Array, joined: _Joined) -> jax.Array:
    order = np.argsort(joined.axes)
    shape = [1] * (whole.ndim - 1)
    for axis in joined.axes:
        shape[axis] = whole.shape[1 + axis]
    if not _is_all(joined.rows, len(table)):
        table = table[joined.rows]
    table = jnp.transpose(table, (0, *(1 + order))).reshape(len(table), *shape)
    if _is_all(joined.targets, len(whole)):
        return whole + table
    return whole.at[joined.targets].add(jnp.broadcast_to(table, (len(table), *whole.shape[1:])))


def _is_all(index: np.ndarray, count: int) -> bool:
    return len(index) == count and bool(np.array_equal(index, np.arange(count)))


# ------------------------------------------------------------------------------------- the order

Members = dict[int, list[tuple[int, int]]]  # of each element: factors, and rows among them


def _members(known: list[Factors], used: list[np.ndarray]) -> Members:
    found: Members = {}
    for f, (factors, done) in enumerate(zip(known, used, strict=True)):
        for row in np.flatnonzero(~done):
            for element in factors.scopes[row]:
                found.setdefault(int(element), []).append((f, int(row)))
    return found


def _neighbours(element: int, members: Members, known: list[Factors]) -> list[int]:
    others = {int(e) for f, row in members.get(element, []) for e in known[f].scopes[row]}
    return sorted(others - {element})


def _choose(
    left: list[int], members: Members, known: list[Factors], counts: np.ndarray, small_table: int
) -> list[int]:
    """Elements that share no factor, and whose tables are small."""
    near = {e: _neighbours(e, members, known) for e in left}
    cost = {e: prod(int(counts[n]) for n in (e, *near[e])) for e in left}
    least = min(cost.values())
    taken: list[int] = []
    barred: set[int] = set()
    for e in sorted(left, key=lambda e: (len(near[e]), cost[e], e)):
        small = max(least, small_table) if len(near[e]) <= 2 else least
        if cost[e] <= small and e not in barred:
            taken.append(e)
            barred.update(near[e])
    return taken


def _steps(
    chosen: list[int], members: Members, known: list[Factors], counts: np.ndarray
) -> list[_Step]:
    """The chosen elements in groups of like tables, with what is joined in these."""
    groups: dict[tuple[int, ...], list[tuple[int, list[int]]]] = {}
    for element in chosen:
        near = _neighbours(element, members, known)
        shape = tuple(int(counts[e]) for e in (element, *near))
        groups.setdefault(shape, []).append((element, near))
    found = []
    for shape, group in groups.items():
        step = _Step(
            np.array([e for e, _ in group]),
            np.array([near for _, near in group], int).reshape(len(group), len(shape) - 1),
            shape,
        )
        parts: dict[tuple[int, tuple[int, ...]], tuple[list[int], list[int]]] = {}
        for target, (element, near) in enumerate(group):
            place = {e: k for k, e in enumerate((element, *near))}
            for f, row in members.get(element, []):
                axes = tuple(place[int(e)] for e in known[f].scopes[row])
                rows, targets = parts.setdefault((f, axes), ([], []))
                rows.append(row)
                targets.append(target)
        step.joined = [
            _Joined(f, np.array(rows), np.array(targets), axes)
            for (f, axes), (rows, targets) in parts.items()
        ]
        found.append(step)
    return found
