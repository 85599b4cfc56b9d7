"""Takes a traced program; gives, entry by entry, on which of its inputs' entries outputs depend.

Each value in the program has a sparse matrix, a row for each of its entries and a column for each
entry of the inputs that are followed. What an operation moves is known by letting it move the
rows' numbers; what it adds up is joined. An operation that is not known, or an index that depends
on an input, lets all meet. Nothing of the inputs is looked at, so this holds for all their values.

>>> import jax, jax.numpy as jnp
>>> closed = jax.make_jaxpr(lambda z: jnp.stack([z[0] + z[1], z[2] * 2.0]))(jnp.zeros(3))
>>> find_entry_dependence(closed.jaxpr, [], [0])[0].toarray().astype(int)
array([[1, 1, 0],
       [0, 0, 1]])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sparse

from asvi.density.numpy_backend.data_movement import OF_PLACES
from asvi.density.numpy_backend.elementwise import OF_ENTRIES
from asvi.density.numpy_backend.no_rule import NoNumpyRule
from asvi.density.settings import EnumerationSettings
from asvi.program.dependence.provenance import inner_jaxpr, scan_parts

__all__ = ["TooLong", "find_entry_dependence"]

Rows = Any  # a sparse matrix of bits (entries, columns); None where nothing depends


class TooLong(Exception):
    """The program has more operations than are worth while."""


def find_entry_dependence(
    jaxpr: Any,
    consts: Sequence[Any],
    followed: Sequence[int],
    settings: EnumerationSettings = EnumerationSettings(),
) -> list[Any]:
    """For each output, bits (entries, columns): on which entries of the inputs it depends.

    ``consts`` are the program's first inputs, as of :class:`~asvi.program.traced.Traced`. Columns
    are the entries of the other inputs numbered ``followed``, one after the other.
    """
    given = [len(consts) + k for k in followed]
    sizes = [prod(jaxpr.invars[k].aval.shape) for k in given]
    total, begin = sum(sizes), 0
    incoming: list[Rows] = [None] * len(jaxpr.invars)
    for k, size in zip(given, sizes, strict=True):
        incoming[k] = sparse.eye(size, total, begin, dtype=bool, format="csr")
        begin += size
    known = [*map(_known, consts), *[None] * (len(jaxpr.invars) - len(consts))]
    found, _ = _Walk(total, settings).run(jaxpr, incoming, known)
    outs = [prod(v.aval.shape) for v in jaxpr.outvars]
    return [
        sparse.csr_matrix((n, total), dtype=bool) if x is None else x
        for x, n in zip(found, outs, strict=True)
    ]


class _Walk:
    """One way through a program; ``total`` columns."""

    def __init__(self, total: int, settings: EnumerationSettings):
        self.total, self.settings, self.operations = total, settings, 0

    def run(
        self, jaxpr: Any, incoming: Sequence[Rows], known: Sequence[Any], consts: Sequence[Any] = ()
    ) -> tuple[list[Rows], list[Any]]:
        """Rows of the outputs, and the values of those that no input decides."""
        rows: dict[Any, Rows] = dict(zip(jaxpr.invars, incoming, strict=True))
        values: dict[Any, Any] = dict(zip(jaxpr.invars, known, strict=True))
        values |= dict(zip(jaxpr.constvars, map(_known, consts)))

        def row(v: Any) -> Rows:
            return None if hasattr(v, "val") else rows.get(v)

        def value(v: Any) -> Any:
            return np.asarray(v.val, v.aval.dtype) if hasattr(v, "val") else values.get(v)

        for eqn in jaxpr.eqns:
            self.operations += 1
            if self.operations > self.settings.max_operations:
                raise TooLong
            ins, numbers = [row(v) for v in eqn.invars], [value(v) for v in eqn.invars]
            outs, found = self._step(eqn, ins, numbers)
            rows.update(zip(eqn.outvars, outs, strict=True))
            values.update(zip(eqn.outvars, found, strict=True))
        return [row(v) for v in jaxpr.outvars], [value(v) for v in jaxpr.outvars]

    def _step(self, eqn: Any, ins: list[Rows], numbers: list[Any]) -> tuple[list[Rows], list[Any]]:
        name, unknown = eqn.primitive.name, [None] * len(eqn.outvars)
        depends = any(x is not None for x in ins)
        inner = None if name in _LOOPS else inner_jaxpr(eqn)
        if inner is not None:
            closed = next(p for p in eqn.params.values() if getattr(p, "jaxpr", p) is inner)
            return self.run(inner, ins, numbers, getattr(closed, "consts", ()))
        if not depends:
            return unknown, self._index_values(eqn, numbers) or unknown
        if name == "scan":
            return self._scan(eqn, ins, numbers), unknown
        if name == "cond":
            return self._cond(eqn, ins, numbers), unknown
        return self._rule(eqn, ins, numbers), unknown

    def _index_values(self, eqn: Any, numbers: list[Any]) -> list[Any] | None:
        """Values of an operation on known whole numbers: indices that Python or the data made."""
        out = eqn.outvars[0].aval
        maker = {**OF_ENTRIES, **OF_PLACES}.get(eqn.primitive.name)
        if maker is None or any(x is None for x in numbers):
            return None
        if (
            prod(out.shape) > self.settings.max_index_entries
            or np.dtype(out.dtype).kind not in "iub"
        ):
            return None
        try:
            found = maker(eqn)(*numbers)
        except NoNumpyRule:
            return None
        found = [found] if len(eqn.outvars) == 1 else found
        pairs = zip(found, eqn.outvars, strict=True)
        return [np.broadcast_to(np.asarray(x, v.aval.dtype), v.aval.shape) for x, v in pairs]

    def _rule(self, eqn: Any, ins: list[Rows], numbers: list[Any]) -> list[Rows]:
        name = eqn.primitive.name
        if name == "optimization_barrier":
            return ins
        if name in OF_ENTRIES:
            return [self._joined(ins, eqn)]
        if name in OF_PLACES:
            found = self._placed(eqn, ins, numbers)
            if found is not None:
                return found
        if name == "gather":
            return [self._taken(eqn, ins)]
        if name.startswith(("reduce_", "arg")) and "axes" in eqn.params:
            return [self._reduced(ins[0], eqn.invars[0].aval.shape, eqn.params["axes"])]
        if name.startswith("cum"):
            shape, axis = eqn.invars[0].aval.shape, eqn.params["axis"]
            less = self._reduced(ins[0], shape, (axis,))
            index = np.arange(less.shape[0]).reshape([n for a, n in enumerate(shape) if a != axis])
            return [less[np.broadcast_to(np.expand_dims(index, axis), shape).ravel()]]
        if name == "dot_general":
            return [self._product(eqn, ins)]
        return self._all_meet(eqn, ins)

    # ------------------------------------------------------------------------------ the rules

    def _joined(self, ins: list[Rows], eqn: Any) -> Rows:
        """Entry by entry; axes of length 1 are those of all entries."""
        out, found = eqn.outvars[0].aval.shape, None
        for x, v in zip(ins, eqn.invars, strict=True):
            if x is None:
                continue
            if v.aval.shape != out:
                index = np.arange(x.shape[0]).reshape(v.aval.shape)
                x = x[np.broadcast_to(index, out).ravel()]
            found = x if found is None else found + x
        return found

    def _placed(self, eqn: Any, ins: list[Rows], numbers: list[Any]) -> list[Rows] | None:
        """What is moved and nothing else, by numbers of rows in place of entries."""
        moved = [k for k, x in enumerate(eqn.invars) if not _is_index(eqn, k)]
        if any(numbers[k] is None for k in range(len(ins)) if k not in moved):
            return None  # where to is not known
        parts, given, begin = [sparse.csr_matrix((1, self.total), dtype=bool)], list(numbers), 1
        for k in moved:
            shape = eqn.invars[k].aval.shape
            rows = ins[k]
            if rows is None:
                given[k] = np.zeros(shape, np.int64)
                continue
            parts.append(rows)
            given[k] = np.arange(begin, begin + rows.shape[0]).reshape(shape)
            begin += rows.shape[0]
        if eqn.primitive.name == "scatter-add":
            return None
        found = OF_PLACES[eqn.primitive.name](eqn)(*given)
        found = [found] if len(eqn.outvars) == 1 else found
        whole: Rows = sparse.vstack(parts, format="csr")
        outs = []
        for x, v in zip(found, eqn.outvars, strict=True):
            index = np.broadcast_to(np.asarray(x), v.aval.shape).ravel().astype(np.int64)
            index = np.where((index < 0) | (index >= begin), 0, index)  # filled from outside
            outs.append(whole[index] if index.any() else None)
        return outs

    def _taken(self, eqn: Any, ins: list[Rows]) -> Rows:
        """What an index picks that depends on inputs: from all entries, but for batches."""
        numbers, out = eqn.params["dimension_numbers"], eqn.outvars[0].aval
        places = [a for a in range(out.ndim) if a not in numbers.offset_dims]
        shape, found = eqn.invars[1].aval.shape, []
        if ins[1] is not None:
            each = self._reduced(ins[1], shape, (len(shape) - 1,))
            found.append(_spread(each, shape[:-1], places, out.shape))
        if ins[0] is not None:
            whole, batch = eqn.invars[0].aval.shape, numbers.operand_batching_dims
            others = [a for a in range(len(whole)) if a not in batch]
            order = np.argsort(batch)
            where = [places[numbers.start_indices_batching_dims[k]] for k in order]
            each = self._reduced(ins[0], whole, others)
            found.append(_spread(each, [whole[batch[k]] for k in order], where, out.shape))
        return sum(found[1:], found[0])

    def _reduced(self, x: Rows, shape: Sequence[int], axes: Sequence[int]) -> Rows:
        kept = [a for a in range(len(shape)) if a not in axes]
        less = [shape[a] for a in kept]
        index = np.arange(prod(less)).reshape([n if a in kept else 1 for a, n in enumerate(shape)])
        group = np.broadcast_to(index, shape).ravel()
        ones = np.ones(len(group), bool)
        return (
            sparse.csr_matrix(
                (ones, (group, np.arange(len(group)))), shape=(prod(less), len(group))
            )
            @ x
        )

    def _product(self, eqn: Any, ins: list[Rows]) -> Rows:
        """Each entry depends on a whole row and a whole column."""
        contract, batch = eqn.params["dimension_numbers"]
        out, found = eqn.outvars[0].aval.shape, None
        shapes = [v.aval.shape for v in eqn.invars]
        free = [
            [a for a in range(len(s)) if a not in contract[k] and a not in batch[k]]
            for k, s in enumerate(shapes)
        ]
        for k, x in enumerate(ins):
            if x is None:
                continue
            less = self._reduced(x, shapes[k], contract[k])
            kept = [a for a in range(len(shapes[k])) if a not in contract[k]]
            index = np.arange(less.shape[0]).reshape([shapes[k][a] for a in kept])
            order = [kept.index(a) for a in (*batch[k], *free[k])]
            index = np.transpose(index, order)
            before = len(free[0]) if k else 0
            after = 0 if k else len(free[1])
            lead = index.shape[: len(batch[k])]
            rest = index.shape[len(batch[k]) :]
            index = index.reshape((*lead, *(1,) * before, *rest, *(1,) * after))
            moved = less[np.broadcast_to(index, out).ravel()]
            found = moved if found is None else found + moved
        return found

    def _all_meet(self, eqn: Any, ins: list[Rows]) -> list[Rows]:
        union = self._union(ins)
        return [union[np.zeros(prod(v.aval.shape), int)] for v in eqn.outvars]

    def _union(self, ins: list[Rows]) -> Rows:
        found = [self._reduced(x, (x.shape[0],), (0,)) for x in ins if x is not None]
        return sum(found[1:], found[0])

    # -------------------------------------------------------------------------- control flow

    def _scan(self, eqn: Any, ins: list[Rows], numbers: list[Any]) -> list[Rows]:
        p, (consts, carry) = eqn.params, scan_parts(eqn)
        body, whole, length = p["jaxpr"], consts + carry, p["length"]
        state, stacked = ins[consts:whole], [[] for _ in eqn.outvars[carry:]]
        order = range(length)[:: -1 if p["reverse"] else 1]
        for k in order:
            rows = [None if x is None else _part(x, k, length) for x in ins[whole:]]
            values = [None if x is None else x[k] for x in numbers[whole:]]
            given = [*numbers[:consts], *[None] * carry, *values]
            found, _ = self.run(body.jaxpr, [*ins[:consts], *state, *rows], given, body.consts)
            state = found[:carry]
            for xs, x in zip(stacked, found[carry:], strict=True):
                xs.append(x)
        ends = []
        for xs, v in zip(stacked, eqn.outvars[carry:], strict=True):
            xs = xs if order.step > 0 else xs[::-1]
            size = prod(v.aval.shape[1:])
            blank = sparse.csr_matrix((size, self.total), dtype=bool)
            some = any(x is not None for x in xs)
            rows = [blank if x is None else x for x in xs]
            ends.append(sparse.vstack(rows, format="csr") if some else None)
        return [*state, *ends]

    def _cond(self, eqn: Any, ins: list[Rows], numbers: list[Any]) -> list[Rows]:
        ways = [
            self.run(b.jaxpr, ins[1:], numbers[1:], b.consts)[0] for b in eqn.params["branches"]
        ]
        outs = []
        for v, *found in zip(eqn.outvars, *ways, strict=True):
            size = prod(v.aval.shape)
            decided = None if ins[0] is None else ins[0][np.zeros(size, int)]
            some = [x for x in (*found, decided) if x is not None]
            outs.append(sum(some[1:], some[0]) if some else None)
        return outs


_LOOPS = ("scan", "while", "cond")

#: Which inputs of an operation say where, and are not moved themselves: from this one on.
_WHERE: dict[str, Callable[[int], bool]] = {
    "gather": lambda k: k == 1,
    "dynamic_slice": lambda k: k >= 1,
    "dynamic_update_slice": lambda k: k >= 2,
    "scatter": lambda k: k == 1,
    "broadcast_in_dim": lambda k: k >= 1,
    "reshape": lambda k: k >= 1,
}


def _known(x: Any) -> Any:
    """A constant, if it is made of numbers: a key of random ones is not."""
    dtype = jax.typeof(x).dtype
    return None if jnp.issubdtype(dtype, jax.dtypes.extended) else np.asarray(x)


def _is_index(eqn: Any, k: int) -> bool:
    return eqn.primitive.name in _WHERE and _WHERE[eqn.primitive.name](k)


def _spread(x: Rows, shape: Sequence[int], axes: Sequence[int], out: Sequence[int]) -> Rows:
    """Rows (shape), as those of an array ``out`` that has these axes among others."""
    lengths = [1] * len(out)
    for a, n in zip(axes, shape, strict=True):
        lengths[a] = n
    index = np.transpose(np.arange(x.shape[0]).reshape(shape), np.argsort(axes))
    return x[np.broadcast_to(index.reshape(lengths), out).ravel()]


def _part(x: Rows, k: int, length: int) -> Rows:
    size = x.shape[0] // length
    found = x[k * size : (k + 1) * size]
    return found if found.nnz else None
