"""Takes nothing; gives compile time and speed of a step under several compiler options.

``python -m benchmarks.compile_options``: our guide on three tasks, Adam, one draw.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import optax
from numpyro.infer import SVI

import asvi
from benchmarks.harness import save, seconds, table

STEPS = 1000
WAYS: dict[str, tuple[bool, dict[str, Any]]] = {
    "plain": (False, {}),
    "optax.flatten": (True, {}),
    "flatten, no fusion": (True, {"xla_disable_hlo_passes": "fusion"}),
    "flatten, optimisation level 0": (True, {"xla_backend_optimization_level": 0}),
    "flatten, parallel codegen 4": (True, {"xla_cpu_parallel_codegen_split_count": 4}),
}


def measure(task: asvi.tasks.Task, flat: bool, options: dict[str, Any]) -> tuple[float, float]:
    """Seconds to trace and compile, steps per second."""
    adam = optax.adam(1e-2)
    optimizer = optax.flatten(adam) if flat else adam
    svi = SVI(task.model, asvi.AutoASVI(task.model), optimizer, asvi.ELBO())
    state = svi.init(jax.random.key(0), *task.args)

    def chunk(state):
        step = lambda s, _: (svi.update(s, *task.args)[0], None)  # noqa: E731
        return jax.lax.scan(step, state, length=STEPS)[0]

    begin = time.perf_counter()
    compiled = jax.jit(chunk, compiler_options=options).lower(state).compile()
    compile_seconds = time.perf_counter() - begin
    return compile_seconds, STEPS / seconds(lambda: compiled(state), 7)


def main() -> None:
    rows = []
    for name in ("eight-schools", "radon", "lorenz"):
        task, first = asvi.tasks.get(name), None
        for way, (flat, options) in WAYS.items():
            compile_seconds, speed = measure(task, flat, options)
            first = first or (compile_seconds, speed)
            rows.append(
                {
                    "task": name,
                    "options": way,
                    "compile time / plain": round(compile_seconds / first[0], 2),
                    "steps per second / plain": round(speed / first[1], 2),
                }
            )
            print(rows[-1], flush=True)
    save("compile_options", rows)
    print(table(rows))


if __name__ == "__main__":
    main()
