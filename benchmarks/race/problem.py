"""Takes draws and reference moments; gives the worst errors among a posterior's numbers."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Draws = dict[str, np.ndarray]
Moments = Mapping[str, tuple[float, float]]


class Errors(NamedTuple):
    """The worst error of a mean, in reference sds; the worst relative error of an sd; whose."""

    mean: float
    sd: float
    mean_of: str
    sd_of: str


@dataclass(frozen=True, eq=False)
class RaceProblem:
    """A model with its data, and a comparison of draws with the known answer.

    Two problems are equal only if they are one object: methods keep compiled programs by it.

    :param compare: takes draws by site, the draws' axis first.
    :param log_evidence: the exact one, where it is known.
    """

    name: str
    group: str
    model: Callable
    args: tuple
    kwargs: dict[str, Any] = field(default_factory=dict)
    compare: Callable[[Draws], Errors] = field(kw_only=True)
    log_evidence: float | None = field(default=None, kw_only=True)

    @property
    def half(self) -> str:
        return half(self.name)


def half(name: str) -> str:
    """``tuning`` or ``held-out``. Settings are chosen on the first half, and both are reported."""
    return "tuning" if zlib.crc32(name.encode()) % 2 else "held-out"


def worst_errors(numbers: Draws, reference: Moments) -> Errors:
    """``numbers`` has the draws of each number of ``reference``, by the same names.

    Constants (a reference sd of 0) are skipped. What is not finite is infinitely wrong.
    """
    worst = {"mean": (-1.0, ""), "sd": (-1.0, "")}
    for name, (mean, sd) in reference.items():
        if sd == 0:
            continue
        x = np.asarray(numbers[name], float)
        with np.errstate(invalid="ignore", over="ignore"):
            found = {"mean": abs(x.mean() - mean) / sd, "sd": abs(x.std(ddof=1) / sd - 1.0)}
        for moment, error in found.items():
            error = float(error) if np.isfinite(error) else np.inf
            if error > worst[moment][0]:
                worst[moment] = (error, name)
    (mean_error, mean_of), (sd_error, sd_of) = worst["mean"], worst["sd"]
    return Errors(mean_error, sd_error, mean_of, sd_of)


def by_number(site: str, x: np.ndarray, lead: int = 1) -> Draws:
    """The numbers of a site: ``theta[0]``, ``theta[1]``, or ``mu`` for a single one.

    :param lead: how many axes at the front are the draws'; 0 for moments.
    """
    shape = x.shape[lead:]
    if not shape:
        return {site: x}
    front = (slice(None),) * lead
    return {f"{site}[{','.join(map(str, at))}]": x[(*front, *at)] for at in np.ndindex(shape)}


def moments_by_number(mean: Mapping[str, Any], sd: Mapping[str, Any]) -> Moments:
    """Moments of each number, from moments of sites."""
    found = {}
    for site in mean:
        means = by_number(site, np.asarray(mean[site], float), 0)
        sds = by_number(site, np.asarray(sd[site], float), 0)
        found |= {name: (float(means[name]), float(sds[name])) for name in means}
    return found


def compare_with(reference: Moments, sites: Mapping[str, Any], draws: Draws) -> Errors:
    """Errors of the numbers of ``sites``."""
    numbers: Draws = {}
    for site in sites:
        numbers |= by_number(site, np.asarray(draws[site], float))
    return worst_errors(numbers, reference)


def with_sites(problem: RaceProblem, draws: Draws, sites: Mapping[str, Any]) -> Draws:
    """The draws, and those of deterministic sites that a method left out."""
    missing = [site for site in sites if site not in draws]
    if not missing:
        return draws
    import jax
    from numpyro.infer import Predictive

    rest = Predictive(problem.model, draws, return_sites=missing)
    found = rest(jax.random.key(0), *problem.args, **problem.kwargs)
    return {**draws, **{site: np.asarray(x) for site, x in found.items()}}
