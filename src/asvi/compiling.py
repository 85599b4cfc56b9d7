"""Takes a function; gives it compiled, ahead of its first call, with options for the machine."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import jax

__all__ = ["Ahead", "compiler_options"]


class Ahead:
    """A function that is being compiled; called, it waits for that.

    The model is traced at once: NumPyro's handlers are one stack for all threads. What comes after
    goes on beside; where that is ``urgent``, only the compiler itself, which needs no Python.
    """

    _pool = ThreadPoolExecutor(1, "compile")

    def __init__(self, jitted: Any, inputs: tuple, urgent: bool = False):
        self.jitted = jitted
        traced = jitted.trace(*inputs)
        lowered = traced.lower() if urgent else None
        double = bool(jax.config.read("jax_enable_x64"))

        def work() -> Any:
            with jax.enable_x64(double):
                return (lowered or traced.lower()).compile()

        self.compiled = self._pool.submit(work)

    def __call__(self, *inputs: Any) -> Any:
        try:
            return self.compiled.result()(*inputs)
        except TypeError:  # other types than those foreseen
            return self.jitted(*inputs)

    def _cache_size(self) -> int:
        """Programs that were compiled besides the one foreseen."""
        return self.jitted._cache_size()


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
