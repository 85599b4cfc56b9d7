"""Takes a number of generated models; gives how many have another density than NumPyro's.

``python -m benchmarks.model_laws --count 5000 --minutes 20``: the laws of
``tests/density/test_model_laws.py``, over more models than a test has time for. What is told is
how many there was time for.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.harness import save
from tests.density.test_model_laws import density_differs, run_by_numpy

__all__ = ["main"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=10_000, help="seed of the first model")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no more than this")
    given = parser.parse_args()
    begun, differing, failed, done = time.monotonic(), {}, {}, 0
    with run_by_numpy():
        for k in range(given.first, given.first + given.count):
            try:
                if said := density_differs(k):
                    differing[k] = said
            except Exception as error:  # a model that is not fitted is no wrong answer, but told
                failed[k] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            done, took = done + 1, time.monotonic() - begun
            if done % 100 == 0:
                print(f"{done} of {given.count}, {took:.0f} s, "
                      f"{len(differing)} differ, {len(failed)} failed", flush=True)  # fmt: skip
            if took > 60 * given.minutes:
                break
    found = {"models": done, "first seed": given.first, "differ": differing}
    save("model_laws", {**found, "failed": failed, "seconds": time.monotonic() - begun})


if __name__ == "__main__":
    main()
