"""Takes a model, its data and its stored exact answers; gives a Task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

__all__ = ["Moments", "Task", "read_json"]

DATA = files("asvi.tasks") / "data"


@cache
def read_json(name: str) -> dict[str, Any]:
    """One of the package's data files."""
    return json.loads((DATA / name).read_text())


@dataclass(frozen=True)
class Moments:
    """Posterior mean and standard deviation of each latent site, and where they come from.

    ``method`` is ``"closed form"``, ``"quadrature"`` or ``"particle filter"``.
    """

    mean: Mapping[str, np.ndarray]
    sd: Mapping[str, np.ndarray]
    method: str


@dataclass(frozen=True)
class Task:
    """An inference problem with a known answer.

    ``log_evidence`` bounds the ELBO of any guide from above; it is known to within
    ``log_evidence_error`` (one standard error for a particle filter, a bound on the discretisation
    for a quadrature).

    >>> import asvi
    >>> task = asvi.tasks.get("eight-schools")
    >>> round(task.log_evidence, 3), sorted(task.moments.mean)
    (-36.131, ['log_tau', 'mu', 'theta'])
    """

    name: str
    model: Callable
    args: tuple = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    citation: str = ""
    description: str = ""
    loop: Callable | None = None
    """The same model as a Python loop of sites, where the model is a scan."""

    @property
    def log_evidence(self) -> float:
        return read_json("exact.json")[self.name]["log_evidence"]

    @property
    def log_evidence_error(self) -> float:
        return read_json("exact.json")[self.name]["log_evidence_error"]

    @property
    def log_evidence_method(self) -> str:
        return read_json("exact.json")[self.name]["method"]

    @property
    def moments(self) -> Moments:
        found = read_json("exact.json")[self.name]
        mean = {site: np.asarray(value) for site, value in found["mean"].items()}
        sd = {site: np.asarray(value) for site, value in found["sd"].items()}
        return Moments(mean, sd, found["method"].split(",")[0])
