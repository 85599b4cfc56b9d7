"""Takes nothing; gives what a search or a training tells of itself, beside its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["Details", "SearchDetails", "TrainingDetails", "details_from", "is_within"]


@dataclass(frozen=True)
class SearchDetails:
    """Of a structured normal: how near it is, and how its search went."""

    nearness: float
    """Nats, and what moments say in nats, between it and the posterior, with their error."""
    divergence: float
    """KL(q‖p) by importance weights."""
    centring: float
    """How far numbers are centred, as a mean."""
    rounding: float
    """Nats of a draw that single precision loses."""
    start: str = "gaussian"
    gains: list[float] = field(default_factory=lambda: [0.0])
    chunk: int = 1
    """Steps that an entry of ``losses`` stands for."""
    skipped_steps: int = 0
    """Gradients that were not finite: none is taken."""


@dataclass(frozen=True)
class TrainingDetails:
    """Of a guide that was trained by gradient steps."""

    learning_rate: float
    gradient: str
    """``"path"`` or ``"plain"``."""
    gradient_variance: dict[str, Any]
    kept: str
    """Which of the candidates at the end was the best."""
    start: str
    gains: list[float]
    """Nats that each cycle gained."""
    coupling_gain: float | None
    """Nats that coupling may be worth, by the curvature at the start."""
    marginals: dict[str, Any]
    """What splines gained."""
    chunk: int
    lanes: int
    """Restarts; the name is that of stored results."""
    lanes_after_race: int
    """Restarts that share the draws in the end."""
    draws_per_step: int
    rounding: float = field(default=0.0)
    skipped_steps: int = 0
    """Gradients that were not finite, of all restarts."""


Details = SearchDetails | TrainingDetails


def is_within(details: Details, tolerance: float) -> bool:
    """Whether a search ended this near to the posterior, in nats."""
    return isinstance(details, SearchDetails) and details.nearness <= tolerance


def details_from(stored: Mapping[str, Any]) -> Details:
    """The details that a file has, which may have been written by an earlier version."""
    kind = SearchDetails if "nearness" in stored else TrainingDetails
    known = {f.name for f in fields(kind)}
    return kind(**{name: value for name, value in stored.items() if name in known})
