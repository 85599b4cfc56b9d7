"""Takes the database; gives a stored check of each translation, and their table.

``python -m benchmarks.posteriordb`` runs NUTS for each posterior that has no stored result yet;
``--only NAME ...`` leaves the others out, ``--again`` does not look at what is stored, ``--path``
leads to the database. Each result is stored as soon as it is there, so that a broken run goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jax

from benchmarks.posteriordb.nuts import check
from benchmarks.posteriordb.suite import POSTERIORS, get

STORED = Path(__file__).parent.parent / "results" / "posteriordb"

HEAD = """# posteriordb: our models against the reference draws

The largest difference of a posterior's means, in reference standard deviations, and the largest
relative difference of its standard deviations. Both must be at most 0.1. Numbers without variance
are compared by their logarithms.

"""

COLUMNS = ("posterior", "numbers", "worst mean", "of", "worst sd", "of", "seconds", "agrees")


def stored() -> dict[str, dict[str, Any]]:
    """Results by name, in the order of the suite."""
    paths = {name: STORED / f"{name}.json" for name in POSTERIORS}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def line(result: dict[str, Any]) -> list[str]:
    """The cells of a result, under `COLUMNS`."""
    mean, sd = result["worst mean"], result["worst sd"]
    return [
        result["name"],
        str(result["numbers"]),
        f"{mean['difference']:+.3f}",
        mean["number"],
        f"{sd['difference']:+.3f}",
        sd["number"],
        f"{result['seconds']:.0f}",
        "yes" if result["agrees"] else "NO",
    ]


def table(results: dict[str, dict[str, Any]]) -> str:
    """All results in Markdown, and how many agree."""
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *(line(r) for r in results.values())]
    agree = sum(result["agrees"] for result in results.values())
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{text}\n\n{agree} of {len(POSTERIORS)} agree.\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(POSTERIORS))
    parser.add_argument("--path", help="of posteriordb's folder posterior_database")
    parser.add_argument("--again", action="store_true", help="also what is stored already")
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    STORED.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(asked.only, 1):
        path = STORED / f"{name}.json"
        if path.exists() and not asked.again:
            continue
        result = check(get(name, asked.path))
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{i} of {len(asked.only)}:", *line(result), flush=True)
        jax.clear_caches()
    shown = table(stored())
    (STORED / "table.md").write_text(HEAD + shown)
    print(shown)
    return 0 if all(result["agrees"] for result in stored().values()) else 1


if __name__ == "__main__":
    sys.exit(main())
