"""Takes nothing; gives the table of methods. Another method is one function and a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.race import by_numpyro, by_nutpie, by_pathfinder, ours
from benchmarks.race.answer import Answer
from benchmarks.race.pymc_models import MODELS


@dataclass(frozen=True)
class Method:
    """How a method is run.

    :param run: takes a problem and a key; gives an `Answer`, or raises `Refused`.
    :param packages: what its user imports; these seconds are measured apart.
    :param family: the panel of the picture.
    :param only: the problems that it is run on; None for all.
    """

    run: Callable[[Any, Any], Answer]
    packages: tuple[str, ...]
    family: str
    only: frozenset[str] | None = None

    def takes(self, problem: str) -> bool:
        return self.only is None or problem in self.only


REFERENCE = "nuts"
"""Other methods' seconds are shown as ratios to those of this one."""

METHODS: dict[str, Method] = {
    "asvi": Method(ours.default, ("asvi",), "asvi"),
    "structured-normal": Method(ours.structured_normal, ("asvi",), "structured normal"),
    "nuts": Method(by_numpyro.nuts, ("numpyro",), "NUTS"),
    "auto-normal": Method(by_numpyro.auto_normal, ("numpyro",), "autoguides"),
    "auto-laplace": Method(by_numpyro.auto_laplace, ("numpyro",), "autoguides"),
    "auto-mvn": Method(by_numpyro.auto_mvn, ("numpyro",), "autoguides"),
    "pathfinder": Method(by_pathfinder.pathfinder, ("numpyro", "blackjax"), "Pathfinder"),
    "nutpie": Method(by_nutpie.nutpie, ("pymc", "nutpie"), "NUTS", frozenset(MODELS)),
}
