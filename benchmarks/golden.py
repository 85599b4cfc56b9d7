"""Takes the code as it is; gives numbers that a change of its shape must leave as they are.

``python -m benchmarks.golden --write`` stores them; without it they are compared with what is
stored, to a relative 1e-6. Six tasks and ten everyday models by the default call, and short
trainings of each family, all with one key. Numbers are those of one machine and its libraries.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import asvi
from benchmarks.everyday.suite import SUITE
from benchmarks.harness import RESULTS

EVERYDAY = (
    "linear-known-noise", "logistic-raw", "robust", "schools-centred", "item-response", "bioassay",
    "garch11", "mixture", "zero-inflated", "varying-slopes",
)  # fmt: skip
STORED = RESULTS / "golden.json"
CLOSE = 1e-6  # relative to 1 and the number

Numbers = dict[str, float]


def moments(draws: dict[str, Any]) -> Numbers:
    found = {}
    for name, x in draws.items():
        x = np.asarray(x, float).reshape(len(x), -1)
        found[f"mean of {name}"] = float(x.mean())
        found[f"square of {name}"] = float((x**2).mean())
    return found


def corrected(model: Callable, args: tuple, kwargs: dict[str, Any]) -> Numbers:
    """Of the default call."""
    result = asvi.fit(model, *args, rng_key=jax.random.key(7), progress_bar=False, **kwargs)
    draws = result.posterior.sample(jax.random.key(8), (500,))
    return {
        "elbo": result.elbo,
        "elbo_se": result.elbo_se,
        "log_evidence": float(result.log_evidence or 0.0),
        "k_hat": float(result.diagnose().k_hat),
        **moments(draws),
    }


def trained(task: str, family: Any) -> Numbers:
    """Of a short training."""
    found = asvi.tasks.get(task)
    result = asvi.fit(
        found.model, *found.args, family=family, rng_key=jax.random.key(7), progress_bar=False,
        training=asvi.Training(num_steps=500, num_restarts=4),  **found.kwargs,
    )  # fmt: skip
    params = {
        f"parameter {n}": float(np.sum(np.asarray(x, float))) for n, x in result.params.items()
    }
    draws = result.guide.sample(jax.random.key(8), (100,))
    losses = {f"loss {k}": float(x) for k, x in enumerate(result.losses)}
    return {"elbo": result.elbo, **params, **losses, **moments(draws)}


def runs() -> dict[str, Callable[[], Numbers]]:
    found: dict[str, Callable[[], Numbers]] = {}
    for name in asvi.tasks.names():
        task = asvi.tasks.get(name)
        found[name] = lambda t=task: corrected(t.model, t.args, t.kwargs)
    for name in EVERYDAY:
        entry = SUITE[name]
        found[name] = lambda e=entry: corrected(e.model, e.args, e.kwargs)
    kinds = asvi.families
    for family in (
        kinds.Coupled(), kinds.ConvexUpdate(), kinds.MeanField(), kinds.StructuredNormal(),
        kinds.MultivariateNormal(), kinds.InverseAutoregressiveFlow(8),
    ):  # fmt: skip
        name = type(family).__name__
        found[f"eight-schools, {name}"] = lambda f=family: trained("eight-schools", f)
    for family in (kinds.Coupled(), kinds.ConvexUpdate(), kinds.AR1(), kinds.LinearCoupling()):
        name = type(family).__name__
        found[f"brownian-global, {name}"] = lambda f=family: trained("brownian-global", f)
    return found


def differences(known: Numbers, found: Numbers) -> list[str]:
    """What is not the same, in words."""
    lines = [f"{n} is there once only" for n in sorted(known.keys() ^ found.keys())]
    for name in known.keys() & found.keys():
        one, other = known[name], found[name]
        if not abs(one - other) <= CLOSE * (1 + abs(one)) and not (one != one and other != other):
            lines.append(f"{name}: {one!r} was, {other!r} is")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--out", type=Path, default=STORED)
    parser.add_argument("names", nargs="*", help="some of them")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    known = {} if asked.write else json.loads(asked.out.read_text())
    found, off = {}, 0
    for name, run in runs().items():
        if asked.names and name not in asked.names:
            continue
        found[name] = run()
        lines = [] if asked.write else differences(known[name], found[name])
        off += bool(lines)
        print(f"{name}: {len(found[name])} numbers", *lines[:5], sep="\n    ", flush=True)
    if asked.write:
        asked.out.write_text(json.dumps(found, indent=1) + "\n")
    return min(off, 1)


if __name__ == "__main__":
    raise SystemExit(main())
