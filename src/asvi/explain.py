"""Takes a posterior; gives an Explanation: what the guide does at each site, and what it misses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from asvi.families import Amortized, MeanField
from asvi.families.chains import AR1, LinearCoupling
from asvi.families.context import moral_edges
from asvi.families.structured import AutoStructuredNormal
from asvi.guide import AutoASVI
from asvi.improper import told_of
from asvi.posterior import Posterior
from asvi.program import Program

__all__ = ["Explanation", "SiteRow", "explain", "name_of"]


@dataclass(frozen=True)
class SiteRow:
    """One latent site.

    ``prior_weights`` has, per leaf, the mean of λ: 1 where the prior conditional rules, 0 where the
    data overrode it. A :class:`~asvi.families.StructuredNormal` has one for the ``noise``: the
    share of its prior variance that the data left.
    """

    name: str
    family: str
    parents: tuple[str, ...]
    prior_weights: dict[str, float]


@dataclass(frozen=True)
class Explanation:
    """What the family represents.

    ``represented`` and ``missed`` are pairs of latent sites that depend on each other in the
    posterior (edges of the moralised graph): those that the guide can follow, and those that it
    cannot.
    """

    rows: tuple[SiteRow, ...]
    represented: tuple[tuple[str, str], ...]
    missed: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, str], ...] = ()
    """Pairs whose coupling the family left out for its size (a site with itself: among its own
    numbers)."""
    notes: tuple[str, ...] = ()
    """Sites whose posterior is not that of the model alone, and what stands for it."""

    def __str__(self) -> str:
        lines = ["site · family · parents · prior weight per leaf"]
        for row in self.rows:
            weights = ", ".join(f"{leaf} {w:.2f}" for leaf, w in row.prior_weights.items())
            parents = ", ".join(row.parents) or "none"
            lines.append(f"{row.name} · {row.family} · {parents} · {weights or 'none'}")
        if self.missed:
            pairs = "; ".join(f"{a} – {b}" for a, b in self.missed)
            lines.append(f"dependencies that this family cannot represent: {pairs}")
        else:
            lines.append("the family can represent every pairwise dependency of the posterior")
        if self.left_out:
            pairs = "; ".join(a if a == b else f"{a} – {b}" for a, b in self.left_out)
            lines.append(f"couplings left out for their size: {pairs}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def explain(posterior: Posterior) -> Explanation:
    """Families, parents, prior weights, and the edges of the moralised graph that are missed."""
    problem = posterior.problem
    guide, program = problem.guide, problem.program
    parents = {site.name: program.with_parents(site).parents for site in program.sites}
    latent = [site.name for site in program.latent]
    edges = moral_edges(program)
    rows = []
    for site in program.latent:
        known = tuple(p for p in parents[site.name] if p in latent)
        if isinstance(guide, AutoASVI):
            family: Any = guide._family_of[site.address]
            weights = {
                name.removesuffix("/prior_weight"): float(
                    np.mean(posterior.params[guide.parameter_name(site, name)])
                )
                for name in sorted(guide._declared[site.address])
                if name.endswith("/prior_weight")
            }
        elif isinstance(guide, AutoStructuredNormal):
            family = problem.family
            left = guide.variances(posterior.params)[site.address]
            weights = {"noise": float(np.mean(np.minimum(left, 1.0)))}
        else:
            family, weights = problem.family, {}
        rows.append(SiteRow(site.name, name_of(family), known, weights))
    follows = {frozenset(edge) for edge in edges if _follows(problem, parents, rows, *edge)}
    return Explanation(
        tuple(rows),
        tuple(edge for edge in edges if frozenset(edge) in follows),
        tuple(edge for edge in edges if frozenset(edge) not in follows),
        tuple(_left_out(guide, program)),
        told_of(problem.improper),
    )


def _follows(problem: Any, parents: Any, rows: list[SiteRow], a: str, b: str) -> bool:
    if isinstance(problem.family, AR1 | LinearCoupling):
        chained = {frozenset((row.name, p)) for row in rows for p in row.parents}
        return frozenset((a, b)) in chained and _same_size(problem.program, a, b)
    if not isinstance(problem.guide, AutoASVI):
        return True  # a joint family over all sites
    # A site of a structured family follows its parents, and what it listens to, and no others.
    families = {row.name: row.family for row in rows}
    for parent, child in ((a, b), (b, a)):
        if parent in _heard_by(problem, child):
            return True
        if parent in parents[child] and MeanField.__name__ not in families[child]:
            return True
    return False


def name_of(family: Any) -> str:
    """A family in one word; of several, one for each."""
    if isinstance(family, Mapping):
        return ", ".join(dict.fromkeys(map(name_of, family.values())))
    if isinstance(family, Amortized):
        return f"Amortized {type(family.base).__name__}"
    return type(family).__name__


def _left_out(guide: Any, program: Program) -> list[tuple[str, str]]:
    contexts = getattr(guide, "contexts", {})
    names = {site.address: site.name for site in program.sites}
    return [
        (names[other], names[address])
        for address, context in contexts.items()
        for other in context.dropped
    ]


def _heard_by(problem: Any, name: str) -> set[str]:
    """Names of the sites whose noise shifts this one."""
    site = problem.program[name]
    context = problem.guide.contexts.get(site.address)
    if context is None or not context.moves:
        return set()
    addresses = (*context.dense, *context.aligned, *context.window_sources)
    return {other.name for other in problem.program.latent if other.address in addresses}


def _same_size(program: Program, a: str, b: str) -> bool:
    sizes = []
    for name in (a, b):
        site = program[name]
        sizes.append(int(np.prod(site.shape[len(site.steps) :])))
    return sizes[0] == sizes[1]
