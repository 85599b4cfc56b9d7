"""Takes a model and its arguments; gives runs of it in which every site is noted as it is met.

Both branches of each ``cond`` are taken, and observed data and parameters may be checked on the
way. A run can be traced, compiled, or run on shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions import Distribution, Unit
from numpyro.distributions.distribution import validation_enabled

from asvi.errors import SiteError, name_used_twice
from asvi.program.addresses import BodyPath, address_of, body_address
from asvi.program.checks.data import check_data
from asvi.program.control_flow.handlers import without_handlers
from asvi.program.control_flow.interpretation import Interpretation
from asvi.program.prior_center import prior_center
from asvi.program.site import Plate, Site, SiteKind
from asvi.program.statements.ordinary import hidden_site_asking, is_fixed

__all__ = ["Start", "Survey", "SurveyRun", "survey"]

Start = Literal["prior_mean", "prior_draw", "random"]
Check = Callable[[str, Distribution], None]


@dataclass
class SurveyRun:
    """A function of a key, and of values to be given; afterwards, what the last call noted.

    The notes are its only side effect: it can be traced or compiled.
    """

    model: Callable
    args: tuple
    kwargs: dict[str, Any]
    start: Start
    check: Check | None
    survey: Survey = field(init=False)
    """What the last call noted of the sites."""
    trace: dict[str, dict[str, Any]] = field(init=False)
    """The messages of the last call, by name."""

    def __call__(
        self, key: jax.Array, values: dict[str, Any] | None = None
    ) -> tuple[dict[str, Distribution], dict[str, Any]]:
        """Each site's distribution, by address, and value, by name."""
        run = Survey(self.model, self.start, self.check)
        given = {} if values is None else values
        # Validation is ours here: NumPyro's own cannot name the site.
        with (
            without_handlers(),
            validation_enabled(False),
            handlers.trace() as trace,
            handlers.seed(rng_seed=key),
            handlers.substitute(data=given),
        ):
            run(*self.args, **self.kwargs)
        self.survey, self.trace = run, trace
        drawn = {name: m["value"] for name, m in trace.items() if m["type"] == "sample"}
        return run.body.outputs, drawn


def survey(
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    start: Start = "prior_draw",
    check: Check | None = None,
) -> SurveyRun:
    """A function ``run(key, values=None)`` giving each site's distribution and value.

    Distributions are keyed by address, values by name; sites in scans have the steps as leading
    axes of their arrays. ``check(name, fn)`` is called at each site as it is met.
    """
    return SurveyRun(model, args, kwargs, start, check)


class Survey(Interpretation):
    """Notes every site as it is met, and takes both branches of each ``cond``."""

    both_branches = True

    def __init__(self, model: Callable, start: Start, check: Check | None):
        super().__init__(model)
        self.start, self.check = start, check
        self.sites: dict[str, Callable[[Distribution], Site]] = {}
        self.reversed_scans: set[BodyPath] = set()
        self.decisions: list[BodyPath] = []
        self._lengths: dict[BodyPath, int] = {}
        self._plate_sizes: dict[str, Any] = {}

    def thread(self, path: BodyPath, length: int, reverse: bool) -> None:
        self._lengths[path] = length
        if reverse:
            self.reversed_scans.add(path)

    def decide(self, path: BodyPath, pred: Any) -> None:
        self.decisions.append(path)
        self.body.outputs[body_address(path)] = pred  # its parents are found with the sites'

    def visit_other(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate":
            if address_of(self.body.path, msg["name"]) in self.sites:
                raise name_used_twice(msg["name"])
            self._plate_sizes[msg["name"]] = msg["args"][0]
        elif msg["type"] == "prng_key" and msg["kwargs"]["rng_key"] is None:
            hidden = hidden_site_asking()
            if hidden is not None:
                raise _error_for_hidden(hidden)

    def visit(self, msg: dict[str, Any]) -> None:
        name, fn = msg["name"], msg["fn"]
        if name in self._plate_sizes:
            raise name_used_twice(name)
        kind = self._kind_of(msg)
        address = address_of(self.body.path, name)
        self.sites[address] = self._site_of(msg, kind)
        self.body.outputs[address] = fn
        if kind == "latent" and msg["value"] is None and self.start == "prior_mean":
            msg["value"] = prior_center(fn)

    def _kind_of(self, msg: dict[str, Any]) -> SiteKind:
        """What a site is to the inference; its data and parameters are checked."""
        if isinstance(msg["fn"], Unit):
            return "factor"
        kind: SiteKind = "observed" if msg["is_observed"] else "latent"
        kind = "fixed" if is_fixed(msg) else kind
        if self.check is not None:
            if kind == "observed":
                check_data(msg["name"], msg["value"])
            self.check(msg["name"], msg["fn"])
        return kind

    def _site_of(self, msg: dict[str, Any], kind: SiteKind) -> Callable[[Distribution], Site]:
        """The site, once its distribution is known without numbers."""
        name, path = msg["name"], self.body.path
        ends = (path[:end] for end in range(1, len(path) + 1))
        lengths = tuple(self._lengths[end] for end in ends if end in self._lengths)
        plates = tuple(
            Plate(f.name, f.dim, self._plate_sizes.get(f.name, f.size), f.size)
            for f in sorted(msg["cond_indep_stack"], key=lambda f: -f.dim)
        )

        def site(abstract: Distribution) -> Site:
            abstract = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape[len(lengths) :], x.dtype), abstract
            )
            try:
                support: Any = abstract.support
            except TypeError:  # some transforms look at numbers: any that are allowed will do
                support = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), abstract).support
            return Site(name, kind, abstract, support, plates, path, lengths)

        return site


def _error_for_hidden(name: str) -> SiteError:
    return SiteError(
        name,
        "a `handlers.block` of the model hides it, so that it is random and in no density: "
        "`log_density` of this model is not defined",
        f'z = numpyro.sample("{name}", ...)   # in sight\n'
        "with numpyro.handlers.seed(rng_seed=0):     # or drawn once and for all\n"
        f'    z = numpyro.sample("{name}", ...)',
    )
