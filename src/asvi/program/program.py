"""Takes a model and its arguments; gives a Program: its sites, parents, plates and control flow.

>>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
>>> def schools(sigma, y):
...     mu = numpyro.sample("mu", dist.Normal(0, 10))
...     tau = numpyro.sample("tau", dist.HalfNormal(5))
...     with numpyro.plate("school", 8):
...         theta = numpyro.sample("theta", dist.Normal(mu, tau))
...         numpyro.sample("y", dist.Normal(theta, sigma), obs=y)
>>> program = Program.of(schools, jnp.ones(8), jnp.zeros(8))
>>> print(program)
site   kind      distribution  shape  parents  plates     block
mu     latent    Normal        ()
tau    latent    HalfNormal    ()
theta  latent    Normal        (8,)   mu, tau  school[8]
y      observed  Normal        (8,)   theta    school[8]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax

from asvi.errors import ModelError, SiteError, with_mended
from asvi.program import markup
from asvi.program.addresses import BodyPath, body_address, is_inside
from asvi.program.checks.failures import explain_failure
from asvi.program.checks.parameters import check_distribution
from asvi.program.dependence.provenance import provenance
from asvi.program.site import Site
from asvi.program.statements.flat_prior import FlatPrior
from asvi.program.statements.masks import is_masked
from asvi.program.survey import SurveyRun, survey
from asvi.program.traced import Traced
from asvi.program.unwrapping import bare_distribution

__all__ = ["Program"]


@dataclass(frozen=True, repr=False)
class Program:
    """The structure of a model at given arguments.

    >>> from numpyro import sample, distributions as dist
    >>> program = Program.of(lambda: sample("y", dist.Normal(sample("x", dist.Normal()), 1.0)))
    >>> [site.name for site in program.latent], program["y"].parents
    (['x', 'y'], ('x',))
    """

    sites: tuple[Site, ...]
    reversed_scans: frozenset[BodyPath] = frozenset()
    trained: tuple[str, ...] = ()
    """Names of the model's own parameters and other state."""
    decisions: tuple[BodyPath, ...] = ()
    """The paths of the ``cond`` blocks."""
    values: Mapping[str, jax.ShapeDtypeStruct] = field(default_factory=dict, repr=False)
    """Shape and dtype of each latent site's value, by name."""
    recorded: Traced | None = field(default=None, repr=False, compare=False)
    """What the model computes of a key: distributions, values and scales of its sites."""
    _find_parents: Callable[[], dict[str, tuple[str, ...]]] = field(
        default=dict, repr=False, compare=False
    )

    @classmethod
    def of(cls, model: Callable, *args: Any, **kwargs: Any) -> Program:
        """Survey ``model(*args, **kwargs)`` without running it on numbers."""
        return cls._of(model, args, kwargs, check_distribution)

    @classmethod
    def unchecked(cls, model: Callable, *args: Any, **kwargs: Any) -> Program:
        """As :meth:`of`, for arguments whose numbers mean nothing, only their shapes."""
        return cls._of(model, args, kwargs, None)

    @classmethod
    def _of(
        cls, model: Callable, args: tuple, kwargs: dict[str, Any], check: Callable | None
    ) -> Program:
        if isinstance(model, jax.stages.Wrapped):
            raise ModelError(
                with_mended(
                    "the model is compiled by jax.jit, which runs it once, and what it says to "
                    "NumPyro is lost later",
                    "asvi.fit(model.__wrapped__, ...)   # the function itself; asvi compiles it",
                )
            )
        run = survey(model, args, kwargs, check=check)
        recorded = _record(run)
        abstract, values, _ = recorded.shape
        found = run.survey
        sites = tuple(site(abstract[address]) for address, site in found.sites.items())
        if not any(site.kind == "latent" for site in sites):
            raise ModelError(
                "the model has no latent site: there is nothing to infer.\n"
                'Write at least one `numpyro.sample("x", prior)` without `obs=`.'
            )
        latent = {site.name for site in sites if site.kind == "latent"}
        values = {name: value for name, value in values.items() if name in latent}
        trained = [n for n, m in run.trace.items() if m["type"] in ("param", "mutable")]
        reversed_scans, decisions = frozenset(found.reversed_scans), tuple(found.decisions)
        find_parents = _parents_finder(run, values)
        return cls(sites, reversed_scans, tuple(trained), decisions, values, recorded, find_parents)

    def differs(self, other: Program) -> tuple[str, ...] | None:
        """Names of sites that are something else in ``other``; None where nothing is.

        Where the difference is in none of them, or in the model as a whole, there are no names.
        """
        ours, theirs = self.recorded, other.recorded
        if ours is None or theirs is None or ours.computes_as(theirs):
            return None
        if ours.gives_as(theirs, jax.random.key(0)):
            return None
        names = [site.name for site in self.sites]
        if not ours.has_tree_of(theirs):
            return tuple(sorted(set(names) ^ {site.name for site in other.sites}))

        def has(name: str) -> list[bool]:
            """Which numbers that the recordings give are a site's."""
            keys = {site.address for site in self.sites if site.name == name} | {name}
            paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(ours.shape)[0]]
            return [path[1].key in keys for path in paths]

        parts = [(name, has(name)) for name in names]
        return tuple(n for n, some in parts if not ours.only(some).computes_as(theirs.only(some)))

    @cached_property
    def parents(self) -> dict[str, tuple[str, ...]]:
        """Latent sites on which each site's distribution depends, by the site's address.

        A site of a ``scan`` that depends on its own past is its own parent. A ``cond`` block (by
        its own address) has the parents of its predicate.
        """
        return self._find_parents()

    def deciding(self, path: BodyPath) -> tuple[str, ...]:
        """Latent sites on which the predicate of the ``cond`` block at this path depends."""
        return self.parents.get(body_address(path), ())

    def __getitem__(self, name: str) -> Site:
        for key in ("name", "address"):
            for site in self.sites:
                if getattr(site, key) == name:
                    return self.with_parents(site)
        known = ", ".join(site.name for site in self.sites)
        raise KeyError(f"no site {name!r}; the sites are {known}")

    def with_parents(self, site: Site) -> Site:
        """``site`` with its parents filled in (finding them takes a second survey of the model)."""
        return replace(site, parents=self.parents[site.address])

    def site_at(self, address: str) -> Site:
        """The site of this address, without its parents."""
        return self._by_address[address]

    @cached_property
    def _by_address(self) -> dict[str, Site]:
        return {site.address: site for site in self.sites}

    @property
    def latent(self) -> tuple[Site, ...]:
        return tuple(site for site in self.sites if site.kind == "latent")

    @property
    def observed(self) -> tuple[Site, ...]:
        return tuple(site for site in self.sites if site.kind == "observed")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of all sites, in order."""
        return tuple(site.address for site in self.sites)

    def in_block(self, path: BodyPath) -> tuple[Site, ...]:
        """Latent sites inside the control-flow body at this path, however deep."""
        return tuple(site for site in self.latent if is_inside(site.address, path))

    def _rows(self) -> list[tuple[str, ...]]:
        """The head of a table, and a row for each site."""
        rows = [("site", "kind", "distribution", "shape", "parents", "plates", "block")]
        for site in self.sites:
            rows.append(
                (
                    site.name,
                    site.kind,
                    type(bare_distribution(site.distribution, FlatPrior)).__name__,
                    str(site.shape),
                    ", ".join(self.parents[site.address]),
                    ", ".join(map(str, site.plates)),
                    "/".join(map(str, site.bodies)),
                )
            )
        return rows

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        latent, observed = len(self.latent), len(self.observed)
        return f"<asvi.Program: {latent} latent and {observed} observed sites>"

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        return markup.box(markup.table(head, rows, of_words=True))


def _record(run: SurveyRun) -> Traced:
    """The survey of a model, recorded as a function of a key."""

    def surveyed(key: jax.Array) -> Any:
        found = run(key)
        counts = {  # how much of a site's density counts
            n: (m["scale"], is_masked(m["fn"]))
            for n, m in run.trace.items()
            if m["type"] == "sample"
        }
        return *found, counts

    try:
        # A key of no numbers: to make one takes a compiler.
        return Traced(surveyed, jax.eval_shape(jax.random.key, 0))
    except (SiteError, ModelError):
        raise
    except Exception as failure:
        raise explain_failure(failure) from failure


def _parents_finder(
    run: SurveyRun, values: dict[str, Any]
) -> Callable[[], dict[str, tuple[str, ...]]]:
    """A function that finds on which of the latent ``values`` each distribution depends."""
    double = bool(jax.config.read("jax_enable_x64"))

    def find_parents() -> dict[str, tuple[str, ...]]:
        # The key is closed over: given every latent value, nothing else is random.
        key = jax.random.key(0)
        with jax.enable_x64(double):  # as it was when the values were surveyed
            names = provenance(lambda given: run(key, given)[0], values)
        order = {name: i for i, name in enumerate(values)}
        return {
            address: tuple(sorted(frozenset().union(*jax.tree.leaves(fn)), key=lambda n: order[n]))
            for address, fn in names.items()
        }

    return find_parents
