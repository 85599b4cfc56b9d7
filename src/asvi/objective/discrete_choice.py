r"""Takes the sites without reparameterised draws; gives how their gradients are had.

Three ways, chosen site by site:

- *joint*: every configuration of the sites is tried, weighted by its probability under the guide:
  :math:`\sum_k q(k)\,f(k)`. Exact, at the cost of one run for each configuration.
- *parallel*: elements of a plate are independent, so all of them take the same value at once and
  each is weighted by itself: K runs for a plate of any size. It asks that all that depends on the
  site stands in the same plates.
- *score*: :math:`f(x)\,\nabla\log q(x)`, where f is the sum of those terms alone that depend on the
  site: those of the same member of its plates, and in a scan those of later steps. A baseline, the
  mean over the other draws, takes most of the variance away without bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpyro.distributions import Distribution

from asvi.density.enumeration.supports import support_of
from asvi.errors import AsviError, SiteError
from asvi.objective.settings import EstimatorSettings
from asvi.program.dependence.terms import Dependence
from asvi.program.site import Site
from asvi.program.statements.stacked import Evaluated

__all__ = ["EstimatorChoice", "EstimatorRequest", "choose_estimators"]

WAYS = ("auto", "enumerate", "score")

EstimatorRequest = str | Mapping[str, str]


@dataclass(frozen=True)
class EstimatorChoice:
    """Names of the sites by the way in which their gradients are had, and their values."""

    joint: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    score: tuple[str, ...] = ()
    values: Mapping[str, np.ndarray] | None = None

    @property
    def enumerated(self) -> tuple[str, ...]:
        return self.joint + self.parallel


def _known_values(dependence: Dependence | None, name: str, fn: Distribution) -> np.ndarray | None:
    """As :func:`support_of`, of a site that may stand in both branches of a ``cond``."""
    if not isinstance(fn, Evaluated):
        return support_of(fn)
    if dependence is None:
        return None
    sites = [site for site in dependence.program.sites if site.name == name]
    found = [support_of(site.distribution) for site in sites]
    first = found[0]
    same = first is not None and all(v is not None and np.array_equal(v, first) for v in found)
    return first if same else None


def choose_estimators(
    dependence: Dependence | None,
    drawn: Mapping[str, dict[str, Any]],
    names: list[str],
    request: EstimatorRequest,
    settings: EstimatorSettings = EstimatorSettings(),
) -> EstimatorChoice:
    """The way of each of the sites ``names`` of ``drawn``, which have no gradients of their own.

    ``dependence`` is None for a guide that is no reading of the model: nothing is known of who
    depends on whom in it.
    """
    _check_request(request, names)
    values = {n: _known_values(dependence, n, drawn[n]["fn"]) for n in names}
    sizes = {
        n: np.inf if v is None else float(len(v)) ** np.size(drawn[n]["value"])
        for n, v in values.items()
    }
    requests = {n: request if isinstance(request, str) else request.get(n, "auto") for n in names}
    asked = [n for n in names if requests[n] == "enumerate"]
    auto = [n for n in names if requests[n] == "auto"]
    if (
        auto
        and not asked
        and len(auto) == len(names)
        and prod(sizes[n] for n in auto) <= settings.max_joint
    ):
        return EstimatorChoice(joint=tuple(names), values=values)  # type: ignore[arg-type]
    parallel: list[str] = []
    if dependence is not None:
        parallel = _choose_parallel(
            dependence, [*asked, *auto], values, drawn, set(names), settings.max_parallel
        )
    left = [n for n in [*asked, *auto] if n not in parallel]
    joint: list[str] = []
    total = 1.0
    for name in sorted(left, key=lambda n: (n not in asked, sizes[n])):
        limit = settings.max_joint_requested if name in asked else settings.max_joint
        if total * sizes[name] <= limit:
            joint.append(name)
            total *= sizes[name]
        elif name in asked:
            raise _too_large(name, values[name], total * sizes[name], dependence, limit)
    score = tuple(n for n in names if n not in joint and n not in parallel)
    joint_in_order = tuple(n for n in names if n in joint)
    return EstimatorChoice(joint_in_order, tuple(parallel), score, values)  # type: ignore[arg-type]


def _check_request(request: EstimatorRequest, names: list[str]) -> None:
    given = {"": request} if isinstance(request, str) else dict(request)
    for name, way in given.items():
        if way not in WAYS:
            raise AsviError(
                f"discrete={way!r} is not known; choose one of {', '.join(WAYS)}, for all sites or "
                'for each: discrete={"z": "score"}.'
            )
        if name and name not in names:
            known = ", ".join(names) or "none"
            raise AsviError(
                f"discrete={{{name!r}: ...}} names no site without reparameterised draws; these "
                f"are: {known}."
            )


def _too_large(
    name: str,
    values: np.ndarray | None,
    total: float,
    dependence: Dependence | None,
    limit: int,
) -> SiteError:
    how_many = "infinitely many values, or a number that depends on a latent"
    if values is not None:
        count = f"{int(total):,}" if total < 1e15 else f"{total:.1e}"
        how_many = f"{count} joint configurations (at most {limit:,} are tried)"
        where = None if dependence is None else _where_members_meet(dependence, name)
        if where is not None:
            how_many += f", and its members cannot be tried one by one, for they meet in {where!r}"
    return SiteError(
        name,
        f"it cannot be enumerated: it has {how_many}",
        f'asvi.ELBO(num_particles=8, discrete={{"{name}": "score"}})',
        advice="The score function takes any number of values.",
    )


def _where_members_meet(dependence: Dependence, name: str) -> str | None:
    """The first site that depends on several members of the plates of this one."""
    mine = {plate.name for plate in dependence.program[name].plates}
    for address, local in dependence.reached(name).items():
        if mine - local:
            return dependence.program.site_at(address).name
    return None


def _choose_parallel(
    dependence: Dependence,
    names: list[str],
    values: Mapping[str, np.ndarray | None],
    drawn: Mapping[str, dict[str, Any]],
    hard: set[str],
    most: int,
) -> list[str]:
    """Sites that can be enumerated member by member of their plates: the largest group.

    No other site of ``hard`` may depend on one of the group.
    """
    groups: dict[frozenset[Any], list[str]] = {}
    for name in names:
        site = dependence.program[name]
        if values[name] is None or site.bodies or site.event_shape or not site.plates:
            continue
        if len(site.plates) != sum(n > 1 for n in site.batch_shape):
            continue  # batch axes without a plate: nothing says that they are independent
        if _is_local(dependence, site):
            key = frozenset((p.name, p.dim) for p in site.plates)
            groups.setdefault(key, []).append(name)
    usable = []
    for group in groups.values():
        reached = {n: dependence.names_reached(n) & hard for n in group}
        while bad := [n for n in group if not reached[n] <= set(group)]:
            group = [n for n in group if n not in bad]
        while prod(len(values[n]) for n in group) > most:  # type: ignore[arg-type]
            largest = max(group, key=lambda n: len(values[n]))  # type: ignore[arg-type]
            group = [n for n in group if largest not in reached[n]]
        usable.append(group)
    best = max(usable, key=lambda g: sum(np.size(drawn[n]["value"]) for n in g), default=[])
    return [name for name in drawn if name in best]


def _is_local(dependence: Dependence, site: Site) -> bool:
    """Whether all that depends on the site stands in its plates, member by member."""
    mine = frozenset(p.name for p in site.plates)
    dims = {(p.name, p.dim) for p in site.plates}
    for address, local in dependence.reached(site.name).items():
        other = dependence.program.site_at(address)
        if other.bodies or local != mine or not dims <= {(p.name, p.dim) for p in other.plates}:
            return False
    return True
