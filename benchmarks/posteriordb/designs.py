"""Takes the data of a regression; gives its predictors as one matrix, and its responses.

A function here is what Stan's block ``transformed data`` is: ``design(data)`` gives the
arguments of a model of `regressions`. Columns are in the order of Stan's coefficients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Data = dict[str, Any]
Arguments = tuple[np.ndarray, np.ndarray]


def _matrix(*columns: np.ndarray) -> np.ndarray:
    """A column of ones, then the columns."""
    return np.stack([np.ones(len(columns[0])), *columns], axis=1)


def _standardised(x: np.ndarray, scales: float = 1.0) -> np.ndarray:
    return (x - x.mean()) / (scales * x.std(ddof=1))


# Earnings of adults, from their height and sex.


def earn_height(d: Data) -> Arguments:
    return _matrix(d["height"]), np.asarray(d["earn"], float)


def log10earn_height(d: Data) -> Arguments:
    return _matrix(d["height"]), np.log10(d["earn"])


def logearn_height(d: Data) -> Arguments:
    return _matrix(d["height"]), np.log(d["earn"])


def logearn_height_male(d: Data) -> Arguments:
    return _matrix(d["height"], d["male"]), np.log(d["earn"])


def logearn_interaction(d: Data) -> Arguments:
    height, male = d["height"], d["male"]
    return _matrix(height, male, height * male), np.log(d["earn"])


def logearn_interaction_z(d: Data) -> Arguments:
    height, male = _standardised(d["height"]), d["male"]
    return _matrix(height, male, height * male), np.log(d["earn"])


def logearn_logheight_male(d: Data) -> Arguments:
    return _matrix(np.log(d["height"]), d["male"]), np.log(d["earn"])


# Scores of children, from the school, the IQ and the work of their mothers.


def _scores(d: Data) -> np.ndarray:
    return np.asarray(d["kid_score"], float)


def kidscore_momhs(d: Data) -> Arguments:
    return _matrix(d["mom_hs"]), _scores(d)


def kidscore_momiq(d: Data) -> Arguments:
    return _matrix(d["mom_iq"]), _scores(d)


def kidscore_momhsiq(d: Data) -> Arguments:
    return _matrix(d["mom_hs"], d["mom_iq"]), _scores(d)


def _kidscore_interaction(school: np.ndarray, iq: np.ndarray, d: Data) -> Arguments:
    return _matrix(school, iq, school * iq), _scores(d)


def kidscore_interaction(d: Data) -> Arguments:
    return _kidscore_interaction(d["mom_hs"], d["mom_iq"], d)


def kidscore_interaction_c(d: Data) -> Arguments:
    school, iq = d["mom_hs"], d["mom_iq"]
    return _kidscore_interaction(school - school.mean(), iq - iq.mean(), d)


def kidscore_interaction_c2(d: Data) -> Arguments:
    return _kidscore_interaction(d["mom_hs"] - 0.5, d["mom_iq"] - 100, d)


def kidscore_interaction_z(d: Data) -> Arguments:
    return _kidscore_interaction(_standardised(d["mom_hs"], 2), _standardised(d["mom_iq"], 2), d)


def kidscore_mom_work(d: Data) -> Arguments:
    return _matrix(*(d["mom_work"] == k for k in (2, 3, 4))), _scores(d)


# Weights of mesquite bushes, from their sizes.


def _canopy(d: Data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logarithms of volume, area and shape."""
    area = d["diam1"] * d["diam2"]
    shape = d["diam1"] / d["diam2"]
    return np.log(area * d["canopy_height"]), np.log(area), np.log(shape)


def mesquite(d: Data) -> Arguments:
    sizes = ("diam1", "diam2", "canopy_height", "total_height", "density", "group")
    return _matrix(*(d[k] for k in sizes)), np.asarray(d["weight"], float)


def logmesquite(d: Data) -> Arguments:
    sizes = ("diam1", "diam2", "canopy_height", "total_height", "density")
    return _matrix(*(np.log(d[k]) for k in sizes), d["group"]), np.log(d["weight"])


def logmesquite_logvolume(d: Data) -> Arguments:
    return _matrix(_canopy(d)[0]), np.log(d["weight"])


def logmesquite_logva(d: Data) -> Arguments:
    volume, area, _ = _canopy(d)
    return _matrix(volume, area, d["group"]), np.log(d["weight"])


def logmesquite_logvas(d: Data) -> Arguments:
    height, density = np.log(d["total_height"]), np.log(d["density"])
    return _matrix(*_canopy(d), height, density, d["group"]), np.log(d["weight"])


def logmesquite_logvash(d: Data) -> Arguments:
    return _matrix(*_canopy(d), np.log(d["total_height"]), d["group"]), np.log(d["weight"])


# Other data sets.


def nes(d: Data) -> Arguments:
    """Party identity of voters, from opinions, age group and so on."""
    ages = [d["age_discrete"] == k for k in (2, 3, 4)]
    person = [d["educ1"], d["gender"], d["income"]]
    return _matrix(d["real_ideo"], d["race_adj"], *ages, *person), np.asarray(d["partyid7"], float)


def diamonds(d: Data) -> Arguments:
    """Prices of diamonds; the first column, of ones, is left out and the others are centred."""
    X = np.asarray(d["X"], float)[:, 1:]
    return X - X.mean(0), np.asarray(d["Y"], float)


def blr(d: Data) -> Arguments:
    """Simulated responses and predictors, as they are."""
    return np.asarray(d["X"], float), np.asarray(d["y"], float)


def kilpisjarvi(d: Data) -> tuple[np.ndarray, np.ndarray, tuple, tuple]:
    """Summer temperatures by year; the means and scales of the priors are data, too."""
    x, y = np.asarray(d["x"], float), np.asarray(d["y"], float)
    return x, y, (d["pmualpha"], d["psalpha"]), (d["pmubeta"], d["psbeta"])
