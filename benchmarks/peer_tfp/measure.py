"""Takes a step function; gives its compile time, speed, ELBO and peak memory as one JSON line.

Stands alone: every library's environment runs this same file.
"""

from __future__ import annotations

import json
import resource
import time

CHUNK = 1000


def report(name, library, start, step, judge, steps, begun=None):
    """``step(state) -> state`` is jitted here in chunks of 1000; ``judge(state) -> -ELBO``.

    Compile time is the first chunk's, less what a later chunk takes. ``begun`` is when the whole
    call began, with what it takes to build a guide and its first parameters.
    """
    import jax

    chunk = jax.jit(
        lambda state: jax.lax.scan(lambda s, _: (step(s), None), state, length=CHUNK)[0]
    )
    begin = time.perf_counter()
    state = jax.block_until_ready(chunk(start))
    first = time.perf_counter() - begin
    times = []
    for _ in range(max(1, steps // CHUNK - 1)):
        begin = time.perf_counter()
        state = jax.block_until_ready(chunk(state))
        times.append(time.perf_counter() - begin)
    typical = sorted(times)[len(times) // 2]
    found = time.perf_counter()
    neg_elbo = float(judge(state))
    more = {}
    if begun is not None:
        more = {"seconds": found - begun, "seconds_judged": time.perf_counter() - begun}
    write(name, library, first - typical, CHUNK / typical, neg_elbo, more)


def write(name, library, compile_seconds, steps_per_second, neg_elbo, more=None):
    """The one line of output."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {
                "task": name,
                "library": library,
                "compile_seconds": round(compile_seconds, 2),
                "steps_per_second": round(steps_per_second, 1),
                "neg_elbo": round(neg_elbo, 3),
                "peak_memory_mib": round(peak),
                **(more or {}),
            }
        ),
        flush=True,
    )
