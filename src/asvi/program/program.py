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
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions import Distribution, Unit, constraints
from numpyro.distributions.distribution import validation_enabled

from asvi.errors import ModelError, SiteError, name_used_twice, with_mended
from asvi.program.addresses import address_of, block_address
from asvi.program.checks.checks import check_data, check_distribution
from asvi.program.checks.failures import explain_failure
from asvi.program.control_flow.handlers import without_handlers
from asvi.program.control_flow.interpretation import Interpretation
from asvi.program.dependence.provenance import provenance
from asvi.program.prior_center import prior_center
from asvi.program.statements.masks import is_masked
from asvi.program.statements.ordinary import hidden_site_asking, is_fixed
from asvi.program.traced import Traced

__all__ = ["Plate", "Program", "Site", "Start", "survey"]

Start = Literal["prior_mean", "prior_draw", "random"]


@dataclass(frozen=True)
class Plate:
    """An independence context: its axis counts from the right of the batch shape."""

    name: str
    dim: int
    size: int
    subsample_size: int

    def __str__(self) -> str:
        part = "" if self.size == self.subsample_size else f"{self.subsample_size} of "
        return f"{self.name}[{part}{self.size}]"


@dataclass(frozen=True)
class Site:
    """One ``sample`` statement of the model, as it stands in the program.

    ``distribution`` is abstract: its arrays are shapes and dtypes. ``block`` names the control-flow
    bodies around the site, outermost first; ``steps`` are the lengths of the scans among them, and
    the leading axes of the site's value. A ``fixed`` site would be latent, and the model itself
    gives its value.
    """

    name: str
    kind: Literal["latent", "observed", "factor", "fixed"]
    distribution: Distribution = field(repr=False)
    support: constraints.Constraint = field(repr=False)
    plates: tuple[Plate, ...] = ()
    block: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    parents: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return address_of(self.block, self.name)

    @property
    def in_branch(self) -> bool:
        """Whether it stands in a ``cond``."""
        return any(part.startswith("cond") for part in self.block)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Batch shape of one run of the body, plates at their subsample sizes."""
        return self.distribution.batch_shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.distribution.event_shape

    @property
    def full_batch_shape(self) -> tuple[int, ...]:
        """Batch shape of one run of the body, plates at their full sizes."""
        shape = list(self.batch_shape)
        for plate in self.plates:
            shape[plate.dim] = plate.size
        return tuple(shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the site's value, scans included."""
        return self.steps + self.batch_shape + self.event_shape

    @property
    def is_discrete(self) -> bool:
        return self.support is not None and bool(self.support.is_discrete)


@dataclass(frozen=True)
class Program:
    """The structure of a model at given arguments."""

    sites: tuple[Site, ...]
    reversed_scans: frozenset[tuple[str, ...]] = frozenset()
    trained: tuple[str, ...] = ()
    """Names of the model's own parameters and other state."""
    decisions: tuple[tuple[str, ...], ...] = ()
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
        """Look at ``model(*args, **kwargs)`` without running it on numbers."""
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

        def look(key: jax.Array) -> Any:
            found = run(key)
            counts = {  # how much of a site's density counts
                n: (m["scale"], is_masked(m["fn"]))
                for n, m in run.trace.items()
                if m["type"] == "sample"
            }
            return *found, counts

        try:
            # A key of no numbers: to make one takes a compiler.
            recorded = Traced(look, jax.eval_shape(jax.random.key, 0))
        except (SiteError, ModelError):
            raise
        except Exception as failure:
            raise explain_failure(failure) from failure
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

        double = bool(jax.config.read("jax_enable_x64"))

        def find_parents() -> dict[str, tuple[str, ...]]:
            # The key is closed over: given every latent value, nothing else is random.
            key = jax.random.key(0)
            with jax.enable_x64(double):  # as it was when the values were looked at
                names = provenance(lambda given: run(key, given)[0], values)
            order = {name: i for i, name in enumerate(values)}
            return {
                address: tuple(
                    sorted(frozenset().union(*jax.tree.leaves(fn)), key=lambda n: order[n])
                )
                for address, fn in names.items()
            }

        trained = [n for n, m in run.trace.items() if m["type"] in ("param", "mutable")]
        reversed_scans, decisions = frozenset(found.reversed_scans), tuple(found.decisions)
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

    def deciding(self, block: tuple[str, ...]) -> tuple[str, ...]:
        """Latent sites on which the predicate of the ``cond`` block at this path depends."""
        return self.parents.get(block_address(block), ())

    def __getitem__(self, name: str) -> Site:
        for key in ("name", "address"):
            for site in self.sites:
                if getattr(site, key) == name:
                    return self.with_parents(site)
        known = ", ".join(site.name for site in self.sites)
        raise KeyError(f"no site {name!r}; the sites are {known}")

    def with_parents(self, site: Site) -> Site:
        """``site`` with its parents filled in (finding them takes a second look at the model)."""
        values = {key: getattr(site, key) for key in site.__dataclass_fields__}
        return Site(**{**values, "parents": self.parents[site.address]})

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

    def in_block(self, block: tuple[str, ...]) -> tuple[Site, ...]:
        """Latent sites inside the control-flow block at this path, however deep."""
        return tuple(site for site in self.latent if site.block[: len(block)] == block)

    def __str__(self) -> str:
        rows = [("site", "kind", "distribution", "shape", "parents", "plates", "block")]
        for site in self.sites:
            rows.append(
                (
                    site.name,
                    site.kind,
                    _name_of(site.distribution),
                    str(site.shape),
                    ", ".join(self.parents[site.address]),
                    ", ".join(map(str, site.plates)),
                    "/".join(site.block),
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join(lines)


def _name_of(distribution: Distribution) -> str:
    while hasattr(distribution, "base_dist") and type(distribution).__name__ in (
        "ExpandedDistribution",
        "Independent",
        "MaskedDistribution",
    ):
        distribution = distribution.base_dist
    return type(distribution).__name__


class Survey(Interpretation):
    """Notes every site as it is met, and takes both branches of each ``cond``."""

    both_branches = True

    def __init__(self, model: Callable, start: Start, check: Callable | None):
        super().__init__(model)
        self.start, self.check = start, check
        self.sites: dict[str, Callable[[Distribution], Site]] = {}
        self.reversed_scans: set[tuple[str, ...]] = set()
        self.decisions: list[tuple[str, ...]] = []
        self._lengths: dict[tuple[str, ...], int] = {}
        self._plate_sizes: dict[str, Any] = {}

    def thread(self, path: tuple[str, ...], length: int, reverse: bool) -> None:
        self._lengths[path] = length
        if reverse:
            self.reversed_scans.add(path)

    def decide(self, path: tuple[str, ...], pred: Any) -> None:
        self.decisions.append(path)
        self.frame.extras[block_address(path)] = pred  # its parents are found with the sites'

    def visit_other(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate":
            if address_of(self.frame.path, msg["name"]) in self.sites:
                raise name_used_twice(msg["name"])
            self._plate_sizes[msg["name"]] = msg["args"][0]
        elif msg["type"] == "prng_key" and msg["kwargs"]["rng_key"] is None:
            hidden = hidden_site_asking()
            if hidden is not None:
                raise _hidden(hidden)

    def visit(self, msg: dict[str, Any]) -> None:
        name, fn, path = msg["name"], msg["fn"], self.frame.path
        if name in self._plate_sizes:
            raise name_used_twice(name)
        if isinstance(fn, Unit):
            kind = "factor"
        else:
            kind = "observed" if msg["is_observed"] else "latent"
            kind = "fixed" if is_fixed(msg) else kind
            if self.check is not None:
                if kind == "observed":
                    check_data(name, msg["value"])
                self.check(name, fn)
        lengths = tuple(
            self._lengths[path[:end]]
            for end in range(1, len(path) + 1)
            if path[:end] in self._lengths
        )
        plates = tuple(
            Plate(f.name, f.dim, self._plate_sizes.get(f.name, f.size), f.size)
            for f in sorted(msg["cond_indep_stack"], key=lambda f: -f.dim)
        )
        address = address_of(path, name)

        def site(abstract: Distribution) -> Site:
            abstract = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape[len(lengths) :], x.dtype), abstract
            )
            try:
                support: Any = abstract.support
            except TypeError:  # some transforms look at numbers: any that are allowed will do
                support = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), abstract).support
            return Site(name, kind, abstract, support, plates, path, lengths)

        self.sites[address] = site
        self.frame.extras[address] = fn
        if kind == "latent" and msg["value"] is None and self.start == "prior_mean":
            msg["value"] = prior_center(fn)


def _hidden(name: str) -> SiteError:
    return SiteError(
        name,
        "a `handlers.block` of the model hides it, so that it is random and in no density: "
        "`log_density` of this model is not defined",
        f'z = numpyro.sample("{name}", ...)   # in sight\n'
        "with numpyro.handlers.seed(rng_seed=0):     # or drawn once and for all\n"
        f'    z = numpyro.sample("{name}", ...)',
    )


def survey(
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    start: Start = "prior_draw",
    check: Callable[[str, Distribution], None] | None = None,
) -> Callable[..., tuple[dict[str, Distribution], dict[str, Any]]]:
    """A function ``run(key, values=None)`` giving each site's distribution and value.

    Distributions are keyed by address, values by name; sites in scans have the steps as leading
    axes of their arrays. ``run.survey`` is what the last run noted; ``run.trace`` its messages.
    The function has no other side effects and can be traced or compiled. ``check(name, fn)`` is
    called at each site as it is met.
    """

    def run(key: jax.Array, values: dict[str, Any] | None = None):
        look = Survey(model, start, check)
        given = {} if values is None else values
        # Validation is ours here: NumPyro's own cannot name the site.
        with (
            without_handlers(),
            validation_enabled(False),
            handlers.trace() as trace,
            handlers.seed(rng_seed=key),
            handlers.substitute(data=given),
        ):
            look(*args, **kwargs)
        run.survey, run.trace = look, trace
        drawn = {name: m["value"] for name, m in trace.items() if m["type"] == "sample"}
        return look.frame.extras, drawn

    return run
