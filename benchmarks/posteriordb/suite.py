"""Takes the name of a posterior; gives its model, its data and its reference moments.

>>> from benchmarks.posteriordb.suite import POSTERIORS, get
>>> len(POSTERIORS)
46

``get`` reads the database, which `database` finds::

    problem = get("kidiq-kidscore_momiq")
    result = asvi.fit(problem.model, *problem.args, **problem.kwargs)
    draws = result.posterior.sample(key, (1000,))
    for name, x in problem.quantities(draws).items():
        mean, sd = problem.reference[name]
        print(name, (x.mean() - mean) / sd)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpyro.infer import Predictive

from benchmarks.posteriordb import designs, hierarchies, mixtures, odes, regressions, series
from benchmarks.posteriordb import gaussian_processes as processes
from benchmarks.posteriordb import hidden_markov as hidden
from benchmarks.posteriordb.database import Record, source

Draws = dict[str, np.ndarray]


def as_they_are(draws: Draws) -> Draws:
    """Our sites have the names and the shapes of Stan's parameters."""
    return draws


@dataclass(frozen=True)
class Posterior:
    """A posterior of posteriordb without its data.

    :param args: gives the model's arguments, from the data block.
    :param to_reference: gives draws of Stan's parameters, from draws of our sites.
    :param without_variance: numbers with such heavy tails that they have no variance. Their
        logarithms take their places, as ``log K_m``, in reference moments and quantities.
    """

    name: str
    model: Callable
    args: Callable[[dict[str, Any]], tuple]
    to_reference: Callable[[Draws], Draws] = as_they_are
    without_variance: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """A posterior with its data and its reference draws."""

    posterior: Posterior
    record: Record

    @property
    def name(self) -> str:
        return self.posterior.name

    @property
    def model(self) -> Callable:
        return self.posterior.model

    @cached_property
    def args(self) -> tuple:
        return self.posterior.args(self.record.data)

    @property
    def kwargs(self) -> dict[str, Any]:
        return {}

    @cached_property
    def reference_draws(self) -> Draws:
        """Numbers by name, each shaped (chains, draws)."""
        return self._comparable(self.record.draws)

    @cached_property
    def reference(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation of each number, from the reference draws."""
        draws = self.reference_draws
        return {k: (float(x.mean()), float(x.std(ddof=1))) for k, x in draws.items()}

    def quantities(self, draws: dict[str, Any]) -> Draws:
        """Numbers by the names in ``reference``, from draws of our sites (draws in axis 0).

        Deterministic sites may be left out: they are computed from the others.
        """
        sites = {site: np.asarray(x) for site, x in draws.items()}
        parameters = self.posterior.to_reference(sites)
        missing = [p for p in self.record.info["dimensions"] if p not in parameters]
        if missing:
            rest = Predictive(self.model, sites, return_sites=missing)
            found = rest(jax.random.key(0), *self.args, **self.kwargs)
            sites.update({site: np.asarray(x) for site, x in found.items()})
            parameters = self.posterior.to_reference(sites)
        numbers = {}
        for parameter in self.record.info["dimensions"]:
            numbers |= by_number(parameter, parameters[parameter])
        return self._comparable(numbers)

    def _comparable(self, numbers: Draws) -> Draws:
        heavy = self.posterior.without_variance
        return {
            f"log {k}" if k in heavy else k: np.log(x) if k in heavy else x
            for k, x in numbers.items()
        }


def by_number(parameter: str, draws: np.ndarray) -> Draws:
    """Stan's names of the numbers of an array: ``beta[1]``, or ``beta`` for a single number."""
    if draws.ndim == 1:
        return {parameter: draws}
    return {
        f"{parameter}[{','.join(str(i + 1) for i in index)}]": draws[(..., *index)]
        for index in np.ndindex(draws.shape[1:])
    }


NES = [f"nes{year}-nes" for year in (1972, 1976, 1980, 1984, 1988, 1992, 1996, 2000)]

_flat, _cauchy = regressions.flat, regressions.cauchy_noise

_ORDERED = [
    Posterior("arK-arK", series.ark, series.lagged),
    Posterior("arma-arma11", series.arma11, series.values),
    Posterior(
        "bball_drive_event_0-hmm_drive_0", hidden.hmm_drive_0, hidden.two_series, hidden.rows_apart
    ),
    Posterior(
        "bball_drive_event_1-hmm_drive_1",
        hidden.hmm_drive_1,
        hidden.two_series_and_scales,
        hidden.rows_apart,
    ),
    Posterior("diamonds-diamonds", regressions.centred, designs.diamonds),
    Posterior("earnings-earn_height", _flat, designs.earn_height),
    Posterior("earnings-log10earn_height", _flat, designs.log10earn_height),
    Posterior("earnings-logearn_height", _flat, designs.logearn_height),
    Posterior("earnings-logearn_height_male", _flat, designs.logearn_height_male),
    Posterior("earnings-logearn_interaction", _flat, designs.logearn_interaction),
    Posterior("earnings-logearn_interaction_z", _flat, designs.logearn_interaction_z),
    Posterior("earnings-logearn_logheight_male", _flat, designs.logearn_logheight_male),
    Posterior(
        "eight_schools-eight_schools_centered",
        hierarchies.eight_schools_centered,
        hierarchies.schools,
    ),
    Posterior(
        "eight_schools-eight_schools_noncentered",
        hierarchies.eight_schools_noncentered,
        hierarchies.schools,
    ),
    Posterior("garch-garch11", series.garch11, series.values_and_first_scale),
    Posterior("gp_pois_regr-gp_pois_regr", processes.gp_pois_regr, processes.places_and_counts),
    Posterior("gp_pois_regr-gp_regr", processes.gp_regr, processes.places_and_values),
    Posterior("hmm_example-hmm_example", hidden.hmm_example, hidden.one_series, hidden.rows_apart),
    Posterior("hudson_lynx_hare-lotka_volterra", odes.lotka_volterra, odes.populations),
    Posterior("kidiq-kidscore_interaction", _cauchy, designs.kidscore_interaction),
    Posterior("kidiq-kidscore_momhs", _cauchy, designs.kidscore_momhs),
    Posterior("kidiq-kidscore_momhsiq", _cauchy, designs.kidscore_momhsiq),
    Posterior("kidiq-kidscore_momiq", _cauchy, designs.kidscore_momiq),
    Posterior("kidiq_with_mom_work-kidscore_interaction_c", _flat, designs.kidscore_interaction_c),
    Posterior(
        "kidiq_with_mom_work-kidscore_interaction_c2", _flat, designs.kidscore_interaction_c2
    ),
    Posterior("kidiq_with_mom_work-kidscore_interaction_z", _flat, designs.kidscore_interaction_z),
    Posterior("kidiq_with_mom_work-kidscore_mom_work", _flat, designs.kidscore_mom_work),
    Posterior("kilpisjarvi_mod-kilpisjarvi", regressions.line, designs.kilpisjarvi),
    Posterior("low_dim_gauss_mix-low_dim_gauss_mix", mixtures.low_dim_gauss_mix, mixtures.values),
    Posterior("mesquite-logmesquite", _flat, designs.logmesquite),
    Posterior("mesquite-logmesquite_logva", _flat, designs.logmesquite_logva),
    Posterior("mesquite-logmesquite_logvas", _flat, designs.logmesquite_logvas),
    Posterior("mesquite-logmesquite_logvash", _flat, designs.logmesquite_logvash),
    Posterior("mesquite-logmesquite_logvolume", _flat, designs.logmesquite_logvolume),
    Posterior("mesquite-mesquite", _flat, designs.mesquite),
    *(Posterior(name, _flat, designs.nes) for name in NES),
    Posterior(
        "one_comp_mm_elim_abs-one_comp_mm_elim_abs",
        odes.one_comp_mm_elim_abs,
        odes.concentrations,
        # Large K_m and V_m matter by their ratio alone: densities fall like the third power.
        without_variance=("K_m", "V_m"),
    ),
    Posterior("sblrc-blr", regressions.ridge, designs.blr),
    Posterior("sblri-blr", regressions.ridge, designs.blr),
]
POSTERIORS: dict[str, Posterior] = {posterior.name: posterior for posterior in _ORDERED}


def get(name: str, path: str | os.PathLike | None = None) -> Problem:
    """The posterior with its data; ``path`` leads to the database, if nothing else does."""
    if name not in POSTERIORS:
        raise KeyError(f"no posterior {name!r}; there are: {', '.join(POSTERIORS)}")
    return Problem(POSTERIORS[name], Record(name, source(path)))
