"""Takes a function; gives it compiled, found again by what it does, with options for the machine.

The function is recorded anew by each :class:`Compiled`, which takes a fraction of a second; what
was recorded says whether a program that is compiled already serves it. So new data of the same
shapes compile nothing, and whatever changes what a model does (a global, a default, an attribute, a
redefined class) is another program.
"""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asvi.program.settings import CompilingSettings
from asvi.program.traced import Traced, evaluate

__all__ = [
    "Compiled",
    "Store",
    "compiler_options",
    "forget_programs",
    "keep_programs",
    "precision",
]


LOG = logging.getLogger("asvi")


class Store:
    """What was made last, by key; the oldest goes first.

    >>> store = Store(2)
    >>> [store.get(k, lambda k=k: k.upper()) for k in "aba"], len(store)
    (['A', 'B', 'A'], 2)
    """

    def __init__(self, most: int):
        self.most, self._kept = most, OrderedDict()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        self._kept.move_to_end(key)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)
        return self._kept[key]

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        self._kept.clear()


#: Compiled programs of all problems.
_PROGRAMS = Store(CompilingSettings().max_programs)


def forget_programs() -> None:
    """Compile everything anew from here on."""
    _PROGRAMS.clear()


def keep_programs(folder: str | Path | None = None) -> Path:
    """Keep what is compiled in a folder, so that later processes need not compile it again.

    It is JAX's persistent compilation cache, for programs of any size. Without ``folder`` it is
    the one that JAX was told of, else ``asvi`` in the user's cache folder. The command line does
    this by itself.

    >>> import asvi, tempfile
    >>> before = jax.config.jax_compilation_cache_dir
    >>> folder = asvi.keep_programs(tempfile.mkdtemp())
    >>> folder.is_dir()
    True
    >>> jax.config.update("jax_compilation_cache_dir", before)
    """
    known = folder or jax.config.jax_compilation_cache_dir
    if known is None:
        home = os.environ.get("XDG_CACHE_HOME")
        known = (Path(home) if home else Path.home() / ".cache") / "asvi"
    path = Path(known)
    path.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return path


class Compiled:
    """``function``, compiled for the shapes and types of what it is called with.

    :param once: leave out what the compiler does for speed.
    :param before: called before the function is recorded.
    :param double: whether in double precision; without it, as the user's settings are.

    >>> double = Compiled(lambda x: 2 * x)
    >>> double(np.ones(2)).tolist()
    [2.0, 2.0]
    """

    _pool = ThreadPoolExecutor(1, "compile")

    def __init__(
        self,
        function: Callable,
        *,
        once: bool = False,
        before: Callable[[], None] | None = None,
        double: bool | None = None,
    ):
        self.function, self.once, self.before, self.double = function, once, before, double
        self._made: dict[Any, _Program] = {}

    def __call__(self, *inputs: Any) -> Any:
        leaves, tree = jax.tree.flatten(inputs)
        if any(map(_is_traced, leaves)):
            return self.function(*inputs)
        with precision(self.double):
            return self._program(leaves, tree)(leaves)

    def given(self, *rest: Any) -> Callable:
        """The function of its first inputs, an array or a number each; the rest stay.

        >>> scaled = Compiled(lambda x, s: x * s["by"]).given({"by": np.float32(3)})
        >>> scaled(np.ones(2, np.float32)).tolist()
        [3.0, 3.0]
        """
        ready: dict[Any, tuple[_Program, list[Any]]] = {}

        def run(*first: Any) -> Any:
            about = bool(jax.config.read("jax_enable_x64")), *map(_kind, first)
            if about not in ready:
                leaves, tree = jax.tree.flatten((*first, *rest))
                if any(map(_is_traced, leaves)):
                    return self.function(*first, *rest)
                with precision(self.double):
                    program = self._program(leaves, tree)
                ready[about] = program, jax.device_put(program.typed(leaves)[len(first) :])
            program, others = ready[about]
            return program([*first, *others])

        return run

    def begin(self, *inputs: Any, urgent: bool = False) -> Compiled:
        """Compile, beside what else goes on, for inputs of these shapes.

        The function is recorded at once: NumPyro's handlers are one stack for all threads. Where it
        is ``urgent``, nothing but the compiler itself, which needs no Python, is left for later.
        """
        leaves, tree = jax.tree.flatten(inputs)
        with precision(self.double):
            self._program(leaves, tree, self._pool, urgent)
        return self

    def _program(self, leaves: list, tree: Any, pool: Any = None, urgent: bool = False) -> _Program:
        about = tree, bool(jax.config.read("jax_enable_x64")), *map(_kind, leaves)
        if about not in self._made:
            if self.before is not None:
                self.before()
            traced = Traced(self.function, *jax.tree.unflatten(tree, leaves))
            self._made[about] = _Program(traced, self.once, pool, urgent)
        return self._made[about]


def precision(double: bool | None) -> AbstractContextManager:
    """In double precision, or single; as the user's settings are without either."""
    if double is None or double == jax.config.read("jax_enable_x64"):
        return nullcontext()
    return jax.enable_x64(double)


def _is_traced(x: Any) -> bool:
    return isinstance(x, jax.core.Tracer)


def _kind(x: Any) -> Any:
    if isinstance(x, bool | int | float | complex):
        return type(x)
    return np.shape(x), x.dtype, bool(getattr(x, "weak_type", False))


class _Program:
    """A recorded function with its constants, and the compiled program that serves it."""

    def __init__(self, traced: Traced, once: bool, pool: Any, urgent: bool):
        self.traced, self.tree = traced, traced.tree
        self.types = [v.aval.dtype for v in traced.jaxpr.invars[len(traced.consts) :]]
        self.is_inside = any(map(_is_traced, traced.consts))  # of what is being recorded
        if self.is_inside:
            return
        self.consts = jax.device_put(traced.consts)
        key = (traced.key, once, jax.default_backend())
        self.compiled: Future = _PROGRAMS.get(key, lambda: _compiling(traced, once, pool, urgent))

    def __call__(self, leaves: list[Any]) -> Any:
        if self.is_inside:
            return jax.tree.unflatten(
                self.tree, evaluate(self.traced.jaxpr, self.traced.consts, leaves)
            )
        given = self.typed(leaves)
        with jax.disable_jit(False):  # what is compiled ahead is compiled, whatever a user debugs
            return jax.tree.unflatten(self.tree, self.compiled.result()(self.consts, given))

    def typed(self, leaves: list[Any]) -> list[Any]:
        """Inputs in the types that the program was recorded with."""
        return [
            x if isinstance(x, jax.Array) and x.dtype == dtype else np.asarray(x, dtype)
            for x, dtype in zip(leaves, self.types, strict=True)
        ]


def _compiling(traced: Traced, once: bool, pool: Any, urgent: bool) -> Future:
    jaxpr, options = traced.jaxpr, compiler_options(once=once)
    double = bool(jax.config.read("jax_enable_x64"))
    count = len(traced.consts)
    shapes = [
        [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in some]
        for some in (jaxpr.invars[:count], jaxpr.invars[count:])
    ]

    def program(consts: list[Any], inputs: list[Any]) -> list[Any]:
        return evaluate(jaxpr, consts, inputs)

    def lower() -> Any:
        with jax.enable_x64(double):
            return jax.jit(program, compiler_options=options).lower(*shapes)

    if pool is None:
        found: Future = Future()
        found.set_result(_timed(lower()))
        return found
    lowered = lower() if urgent else None

    def work() -> Any:
        ready = lowered or lower()
        with jax.enable_x64(double):
            return _timed(ready)

    return pool.submit(work)


def _timed(lowered: Any) -> Any:
    """The program, compiled."""
    begun = time.monotonic()
    found = lowered.compile()
    LOG.debug("compiled a program: %.2f s", time.monotonic() - begun)
    return found


def compiler_options(*, once: bool = False) -> dict[str, Any] | None:
    """On CPUs the compiler's last level of optimising costs a third more time and gains nothing.

    Nor do its newer ways to fuse operations. What is run ``once`` is not optimised at all.
    """
    if jax.default_backend() != "cpu":
        return None
    level = 0 if once else 1
    known = {"xla_backend_optimization_level": level, "xla_cpu_use_fusion_emitters": False}
    asked = os.environ.get("XLA_FLAGS", "")  # what a user sets is not overruled
    free = {n: value for n, value in known.items() if n not in asked}
    return {n: value for n, value in free.items() if _has_option(n, type(value)())}


@cache
def _has_option(name: str, value: Any) -> bool:
    """Whether this version of the compiler knows an option; they come and go."""
    try:
        jax.jit(lambda: 0, compiler_options={name: value})()
    except jax.errors.JaxRuntimeError:
        return False
    return True
