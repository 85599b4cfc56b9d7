"""Takes a function of one draw; gives it at many: by NumPy where that is sooner than to compile it.

What is asked of a posterior after a fit (predictions, pointwise likelihoods, draws of the prior) is
asked once or twice. For small models the compiler takes far longer over it than NumPy over the
answer. Handlers see the model once: one recorded program serves both. Random numbers have the same
bits, and results are the same but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from asvi.density.cost import work_of
from asvi.density.numpy_backend import NoNumpyRule, NumpyFunction, numpy_function
from asvi.density.settings import EvaluatorSettings
from asvi.density.split_keys import kind_of, restored, split_data
from asvi.program.compiling import Compiled, precision
from asvi.program.traced import Traced, evaluate, remake

__all__ = ["ManyDraws"]


class ManyDraws:
    """``one(key, draw, *rest)`` at each of many draws, trees of arrays with the draws' axis first.

    :param before: called before the function is recorded.
    :param double: whether in double precision; without it, as the user's settings are.

    >>> run = ManyDraws(lambda key, x, scale: scale * x)
    >>> run(np.arange(3.0), 2.0).tolist()
    [0.0, 2.0, 4.0]
    """

    def __init__(
        self,
        one: Callable,
        before: Callable[[], None] | None = None,
        double: bool | None = None,
        settings: EvaluatorSettings = EvaluatorSettings(),
    ):
        self.one, self.before, self.double, self.settings = one, before, double, settings
        self._made: dict[Any, _Together] = {}

    def __call__(self, draws: Any, *rest: Any, key: Any = None, count: int | None = None) -> Any:
        """The outputs at all draws; with ``key``, each gets a key of its own, split from it.

        ``count`` tells how many there are where ``draws`` holds no array.
        """
        kind = None if key is None else kind_of(key)
        count = len(jax.tree.leaves(draws)[0]) if count is None else count
        rows = None if key is None else split_data(key, count, self.settings), draws

        def one(row: Any, rest: tuple) -> Any:
            data, draw = row
            return self.one(None if data is None else restored(data, kind), draw, *rest)

        leaves, tree = jax.tree.flatten((rows, rest))
        with precision(self.double):
            if count == 0 or any(isinstance(x, jax.core.Tracer) for x in leaves):
                return jax.lax.map(
                    lambda row: one(row, rest), rows, batch_size=self.settings.draws_per_call
                )
            about = kind, tree, bool(jax.config.read("jax_enable_x64")), *map(jax.typeof, leaves)
            program = self._made.get(about)
            if program is None:
                if self.before is not None:
                    self.before()
                program = _Together(one, count, rows, rest, self.settings)
                if not program.is_inside:
                    self._made[about] = program
            return program(rows, rest)


class _Together:
    """A program of several draws, recorded once, and run until all of them are done."""

    def __init__(
        self, one: Callable, count: int, rows: Any, rest: tuple, settings: EvaluatorSettings
    ):
        self.count, self.calls = count, -(-count // settings.draws_per_call)
        self.size = -(-count // self.calls)

        def together(rows: Any, rest: tuple) -> Any:
            return jax.vmap(lambda row: one(row, rest))(rows)

        def several(x: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((self.size, *np.shape(x)[1:]), jax.typeof(x).dtype)

        traced = Traced(together, jax.tree.map(several, rows), rest)
        self.jaxpr, self.consts, self.tree = traced.jaxpr, traced.consts, traced.tree
        self.is_inside = any(isinstance(c, jax.core.Tracer) for c in self.consts)  # of a recording
        self.inputs = traced.jaxpr.invars[len(traced.consts) :]
        self.by_numpy = self._for_numpy(settings)
        self.compiled = Compiled(self._whole)

    def _for_numpy(self, settings: EvaluatorSettings) -> NumpyFunction | None:
        """The program for NumPy; None where the compiler is to be had sooner, or needed."""
        if self.is_inside:
            return None
        constants = self.jaxpr.invars[: len(self.consts)]
        program = remake(self.jaxpr, constvars=constants, invars=self.inputs)
        work = self.calls * work_of(self.jaxpr, settings.operation_work)
        closed, most = ClosedJaxpr(program, self.consts), settings.max_draws_work
        return numpy_function(closed, draws=True, work=work, max_work=most, settings=settings)

    def __call__(self, rows: Any, rest: tuple) -> Any:
        if self.by_numpy is not None:
            try:
                found = self._run(self.by_numpy, jax.tree.leaves(rows), jax.tree.leaves(rest))
                return jax.tree.unflatten(self.tree, found)
            except NoNumpyRule:  # a loop that is too long, which shows when it runs
                self.by_numpy = None
        return jax.tree.unflatten(self.tree, self.compiled(self.consts, rows, rest))

    def _run(self, function: NumpyFunction, rows: list[Any], rest: list[Any]) -> list[jax.Array]:
        types = [v.aval.dtype for v in self.inputs]
        rows, found = [np.asarray(x) for x in rows], []
        for k in range(self.calls):
            # The last part, too, has as many as all: what is missing is taken from the first.
            at = np.arange(k * self.size, (k + 1) * self.size) % self.count
            inputs = [*(x[at] for x in rows), *rest]
            found.append(function(*map(np.asarray, inputs, types)))
        whole = [np.concatenate(parts)[: self.count] for parts in zip(*found, strict=True)]
        return jax.device_put(whole)

    def _whole(self, consts: list[Any], rows: Any, rest: tuple) -> list[Any]:
        """The same for the compiler: a loop over parts."""
        rest_leaves = jax.tree.leaves(rest)
        at = np.arange(self.calls * self.size).reshape(self.calls, self.size) % self.count

        def part(some: list[Any]) -> list[Any]:
            return evaluate(self.jaxpr, consts, [*some, *rest_leaves])

        found = jax.lax.map(part, [x[at] for x in jax.tree.leaves(rows)])
        return [x.reshape(-1, *x.shape[2:])[: self.count] for x in found]
