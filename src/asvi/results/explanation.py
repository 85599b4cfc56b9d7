"""Takes a posterior; gives an Explanation: what the guide does at each site, and what it misses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from asvi.families.coupled.coupling_graph import moral_edges
from asvi.families.guide_protocol import SiteRow
from asvi.program import markup
from asvi.program.improper import describe_improper
from asvi.results.posterior import Posterior

__all__ = ["Explanation", "SiteRow", "explain"]


@dataclass(frozen=True, repr=False)
class Explanation:
    """What the family represents.

    ``represented`` and ``missed`` are pairs of latent sites that depend on each other in the
    posterior (edges of the moralised graph): those that the guide can follow, and those that it
    cannot.

    >>> import asvi
    >>> task = asvi.tasks.get("eight-schools")
    >>> explanation = asvi.fit(task.model, *task.args).explain()
    >>> explanation.rows[0].name, explanation.missed
    ('mu', ())
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
        lines += [" · ".join(text or "none" for text in cells) for cells in self._cells()]
        return "\n".join([*lines, *self._words()])

    def __repr__(self) -> str:
        sites = "1 site" if len(self.rows) == 1 else f"{len(self.rows)} sites"
        missed = len(self.missed) or "none"
        return f"<asvi.Explanation of {sites}: dependencies missed: {missed}>"

    def _repr_html_(self) -> str:
        head = ["site", "family", "parents", "prior weight per leaf"]
        return markup.box(
            markup.table(head, self._cells(), of_words=True),
            *(markup.paragraph(text) for text in self._words()),
        )

    def _cells(self) -> list[tuple[str, ...]]:
        """A row for each site."""
        found = []
        for row in self.rows:
            weights = ", ".join(f"{leaf} {w:.2f}" for leaf, w in row.prior_weights.items())
            found.append((row.name, row.family, ", ".join(row.parents), weights))
        return found

    def _words(self) -> list[str]:
        """What is missed, what was left out, what is to be known."""
        if self.missed:
            pairs = "; ".join(f"{a} – {b}" for a, b in self.missed)
            lines = [f"dependencies that this family cannot represent: {pairs}"]
        else:
            lines = ["the family can represent every pairwise dependency of the posterior"]
        if self.left_out:
            pairs = "; ".join(a if a == b else f"{a} – {b}" for a, b in self.left_out)
            lines.append(f"couplings left out for their size: {pairs}")
        return lines + [f"note: {note}" for note in self.notes]


def explain(posterior: Posterior) -> Explanation:
    """Families, parents, prior weights, and the edges of the moralised graph that are missed."""
    problem = posterior.problem
    guide, program = problem.guide, problem.program
    sites = {site.name: program.with_parents(site) for site in program.latent}
    rows = []
    for site in sites.values():
        row = guide.explain_site(posterior.params, site)
        rows.append(replace(row, parents=tuple(p for p in site.parents if p in sites)))
    edges = moral_edges(program)
    follows = [guide.couples(sites[a], sites[b]) for a, b in edges]
    return Explanation(
        tuple(rows),
        tuple(edge for edge, held in zip(edges, follows, strict=True) if held),
        tuple(edge for edge, held in zip(edges, follows, strict=True) if not held),
        guide.dropped,
        describe_improper(problem.improper),
    )
