"""Takes problems and a number of keys; gives how often the default call is wrong, by verdict.

``python -m benchmarks.race.keys [--keys 10] [NAME ...]`` fits each problem with each key, in one
process: what is asked is not seconds.
"""

from __future__ import annotations

import argparse
import warnings

import jax

from benchmarks.harness import save, table
from benchmarks.race import ours
from benchmarks.race.problem import half
from benchmarks.race.problems import groups_by_name, load

LIMIT = 0.1
COUNTED = ("keys", "right", "wrong, called good", "called good")


def row_of(name: str, keys: int) -> dict[str, object]:
    problem, found = load(name), []
    for key in range(keys):
        answer = ours.default(problem, jax.random.key(100 + key))
        errors = problem.compare(answer.draws)
        found.append((errors.mean, errors.sd, answer.verdict))
    wrong = [x for x in found if max(x[:2]) > LIMIT]
    return {
        "problem": name,
        "half": half(name),
        "keys": keys,
        "right": keys - len(wrong),
        "wrong, called good": sum(verdict == "good" for *_, verdict in wrong),
        "called good": sum(verdict == "good" for *_, verdict in found),
        "worst mean (sd)": round(max(x[0] for x in found), 3),
        "worst sd": round(max(x[1] for x in found), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="all problems of the race without")
    parser.add_argument("--keys", type=int, default=10)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in asked.names or groups_by_name():
        rows.append(row_of(name, asked.keys))
        print(rows[-1], flush=True)
    print(table(rows))
    counts = [
        {"half": part, **{n: sum(r[n] for r in rows if r["half"] in part) for n in COUNTED}}
        for part in ("tuning", "held-out", "tuning and held-out")
    ]
    print(table(counts))
    save("race_keys", {"problems": rows, "all": counts})


if __name__ == "__main__":
    main()
