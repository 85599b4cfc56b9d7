"""Takes nothing; gives what StructuredNormal finds of the everyday models and the paper's tasks.

``python -m benchmarks.first_look [--only NAME ...]``: whole first calls of
``asvi.fit(model, data, family=asvi.families.StructuredNormal())``, each in a process of its own,
one after the other. *Near* says whether the default call ends there, too (tolerance 0.01 nat).
Nothing is random in it but the draws that judge: one key.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import jax

import asvi
from benchmarks.everyday.fits import GAP, SHIFT, errors
from benchmarks.everyday.suite import SUITE, stored_truth
from benchmarks.harness import RESULTS, save, table


def one(name: str) -> dict[str, Any]:
    """One call, beside the truth."""
    task = asvi.tasks.get(name) if name in asvi.tasks.names() else None
    entry = SUITE.get(name)
    model, args, kwargs = (
        (task.model, task.args, {}) if task else (entry.model, entry.args, entry.kwargs)
    )
    begun = time.monotonic()
    try:
        result = asvi.fit(
            model, *args, family=asvi.families.StructuredNormal(), progress=False, **kwargs
        )
    except asvi.errors.FamilyError as error:
        return {"model": name, "verdict": str(error).split("\n")[0]}
    seconds = time.monotonic() - begun
    draws = result.posterior.sample(jax.random.key(99), (10_000,))
    row: dict[str, Any] = {
        "model": name,
        "seconds": round(seconds, 1),
        "near": "yes" if result.info["nearness"] <= 0.01 else "",
        "verdict": result.diagnose().verdict,
    }
    right = means = sds = ""  # of the tasks, the evidence alone is known
    if task:
        gap = task.log_evidence - result.elbo
    else:
        truth = stored_truth(name)
        gap = truth["log_evidence"] - result.elbo
        means, sds = (round(x, 3) for x in errors(entry.comparable(draws), truth))
        right = "yes" if gap <= GAP and means <= SHIFT else ""
    row |= {"means off (sd)": means, "sds off": sds}
    return row | {"gap": round(float(gap), 3), "error": round(result.elbo_se, 3), "right": right}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[*asvi.tasks.names(), *SUITE])
    parser.add_argument("--one", help="a single model, as JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(asked.one)))
        return
    path = RESULTS / "first_look.json"
    known = json.loads(path.read_text())["rows"]["models"] if path.exists() else []
    found = {row["model"]: row for row in known}  # of an earlier run, where --only leaves them out
    for name in asked.only:
        command = [sys.executable, "-m", "benchmarks.first_look", "--one", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[name] = json.loads(done.stdout.strip().splitlines()[-1])
        print(found[name], flush=True)
    rows = list(found.values())
    everyday = [row for row in rows if row["model"] in SUITE]
    counts = [
        {"count": "everyday models", "": len(everyday)},
        {"count": "right", "": sum(row.get("right") == "yes" for row in everyday)},
        {
            "count": "not right, called not trustworthy or usable with resampling",
            "": sum(not row.get("right") and row["verdict"] != "good" for row in everyday),
        },
        {
            "count": "not right, called good",
            "": sum(not row.get("right") and row["verdict"] == "good" for row in everyday),
        },
        {"count": "where the default call ends", "": sum(r.get("near") == "yes" for r in everyday)},
    ]
    print(table(rows), table(counts))
    save("first_look", {"models": rows, "counts": counts})


if __name__ == "__main__":
    main()
