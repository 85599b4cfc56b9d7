"""Takes a name; gives a problem of the race: everyday models, embedded tasks, posteriordb's.

A new group is a function that gives names and one that gives a problem, in `GROUPS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from benchmarks.race.problem import (
    Draws,
    Errors,
    RaceProblem,
    compare_with,
    moments_by_number,
    with_sites,
    worst_errors,
)

SMALL = (
    "linear-known-noise",
    "logistic-raw",
    "zero-inflated",
    "bioassay",
    "ar2",
    "michaelis-menten",
    "schools-centred",
    "item-response",
    "brownian",
    "eight-schools",
    "sblri-blr",
    "kidiq-kidscore_momiq",
)
"""Twelve small problems of various kinds; ``make race-small`` runs these."""


def everyday_names() -> list[str]:
    from benchmarks.everyday.suite import SUITE

    return list(SUITE)


def everyday(name: str) -> RaceProblem:
    from benchmarks.everyday.suite import SUITE, stored_truth

    entry, truth = SUITE[name], stored_truth(name)
    reference = moments_by_number(truth["mean"], truth["sd"])

    def compare(draws: Draws) -> Errors:
        whole = with_sites(problem, draws, truth["mean"])
        # Heavy-tailed sites are compared by their logarithms.
        return compare_with(reference, truth["mean"], entry.comparable(whole))

    problem = RaceProblem(
        name,
        "everyday",
        entry.model,
        entry.args,
        entry.kwargs,
        compare=compare,
        log_evidence=truth["log_evidence"],
    )
    return problem


def task_names() -> list[str]:
    import asvi

    return list(asvi.tasks.names())


def task(name: str) -> RaceProblem:
    import asvi

    found = asvi.tasks.get(name)
    moments = found.moments
    reference = moments_by_number(moments.mean, moments.sd)
    return RaceProblem(
        name,
        "tasks",
        found.model,
        found.args,
        dict(found.kwargs),
        compare=partial(compare_with, reference, moments.mean),
        log_evidence=found.log_evidence,
    )


def posteriordb_names() -> list[str]:
    """None where no variable leads to the database."""
    from benchmarks.posteriordb.database import VARIABLES
    from benchmarks.posteriordb.suite import POSTERIORS

    return list(POSTERIORS) if any(os.environ.get(name) for name in VARIABLES) else []


def posteriordb(name: str) -> RaceProblem:
    from benchmarks.posteriordb.suite import get

    found = get(name)

    def compare(draws: Draws) -> Errors:
        return worst_errors(found.quantities(draws), found.reference)

    return RaceProblem(name, "posteriordb", found.model, found.args, found.kwargs, compare=compare)


GROUPS: dict[str, tuple[Callable[[], list[str]], Callable[[str], RaceProblem]]] = {
    "everyday": (everyday_names, everyday),
    "tasks": (task_names, task),
    "posteriordb": (posteriordb_names, posteriordb),
}


def groups_by_name() -> dict[str, str]:
    """The group of each problem, in the race's order."""
    found: dict[str, str] = {}
    for group, (names, _) in GROUPS.items():
        for name in names():
            if name in found:
                raise ValueError(f"two problems are called {name!r}: {found[name]} and {group}")
            found[name] = group
    return found


def load(name: str) -> RaceProblem:
    """The problem of this name."""
    known = groups_by_name()
    if name not in known:
        raise KeyError(f"no problem {name!r}; there are: {', '.join(known)}")
    return GROUPS[known[name]][1](name)
