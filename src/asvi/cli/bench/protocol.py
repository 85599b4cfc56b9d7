"""Takes a column's name; gives its family and how the protocol trains it."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from asvi.errors import AsviError
from asvi.families import (
    ConvexUpdate,
    Coupled,
    Family,
    JointFamily,
    MeanField,
)
from asvi.families.baselines import (
    AR1,
    InverseAutoregressiveFlow,
    LinearCoupling,
    MultivariateNormal,
)

__all__ = ["COLUMNS", "Column", "Protocol", "column", "known"]


@dataclass(frozen=True)
class Column:
    """One family of a table."""

    title: str
    family: Family | JointFamily
    learning_rate: float
    needs_chain: bool = False


COLUMNS = {
    # The plain sigmoid, as published: at a constant learning rate our steeper gate only adds noise.
    "asvi": Column("ASVI", ConvexUpdate(gate_gain=1.0), 1e-2),
    "asvi-steep-gate": Column("ASVI, gate gain 4", ConvexUpdate(), 1e-2),
    "coupled": Column("Coupled", Coupled(), 1e-2),
    "mean-field": Column("Mean field", MeanField(), 1e-2),
    "iaf-small": Column("Small IAF", InverseAutoregressiveFlow(8), 1e-3),
    "iaf-large": Column("Large IAF", InverseAutoregressiveFlow(512), 5e-5),
    "mvn": Column("MVN", MultivariateNormal(), 1e-3),
    "ar1": Column("AR(1)", AR1(), 1e-2, needs_chain=True),
    "linear-coupling": Column("Linear coupling", LinearCoupling(), 1e-2, needs_chain=True),
}
PAPER_ORDER = ("asvi", "mean-field", "iaf-small", "iaf-large", "mvn", "ar1")
BEST_ORDER = ("coupled", "asvi-steep-gate")


@dataclass(frozen=True)
class Protocol:
    """How every cell is trained and judged.

    ``paper``: Adam at the column's constant learning rate, one draw per step, the last iterate,
    judged by fresh draws. ``best``: :func:`asvi.fit` with nothing set but the family.
    """

    name: str = "paper"
    steps: int = 100_000
    seeds: int = 15
    draws: int = 1
    evaluation_draws: int = 1000
    moment_draws: tuple[int, int] = (100, 10_000)

    @classmethod
    def named(cls, name: str, **chosen: Any) -> Protocol:
        """The protocol of this name; ``best`` has ten seeds and at most 24,000 steps."""
        known("protocol", name, ("paper", "best"))
        defaults: dict[str, Any] = {"steps": 24_000, "seeds": 10} if name == "best" else {}
        return cls(name, **(defaults | chosen))

    @property
    def families(self) -> tuple[str, ...]:
        """The columns that are trained where none is asked for."""
        return BEST_ORDER if self.name == "best" else PAPER_ORDER


def column(name: str) -> Column:
    """The column of this name."""
    return COLUMNS[known("family", name, tuple(COLUMNS))]


def known(kind: str, name: str, names: tuple[str, ...]) -> str:
    """``name``, if it is one of ``names``; else an error that lists them."""
    if name in names:
        return name
    near = get_close_matches(name, names, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise AsviError(f"There is no {kind} {name!r}.{hint}\nKnown are: {', '.join(names)}.")
