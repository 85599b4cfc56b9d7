"""Takes a number of generated models; gives how many have another density than NumPyro's.

``python -m benchmarks.model_laws --count 5000``: the laws of ``tests/test_model_laws.py``, over
more models than a test has time for.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from test_model_laws import density_differs, run_by_numpy

from benchmarks.harness import save

__all__ = ["main"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=10_000, help="seed of the first model")
    given = parser.parse_args()
    begun, differing, failed = time.monotonic(), {}, {}
    with run_by_numpy():
        for k in range(given.first, given.first + given.count):
            try:
                if said := density_differs(k):
                    differing[k] = said
            except Exception as error:  # a model that is not fitted is no wrong answer, but told
                failed[k] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            if (k - given.first) % 100 == 99:
                took = time.monotonic() - begun
                print(f"{k - given.first + 1} of {given.count}, {took:.0f} s, "
                      f"{len(differing)} differ, {len(failed)} failed", flush=True)  # fmt: skip
    found = {"models": given.count, "first seed": given.first, "differ": differing}
    save("model_laws", {**found, "failed": failed, "seconds": time.monotonic() - begun})


if __name__ == "__main__":
    main()
