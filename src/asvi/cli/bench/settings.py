"""Takes nothing; gives how a cell is trained beside its protocol: what changes no number of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CellSettings"]


@dataclass(frozen=True)
class CellSettings:
    """How a cell's work is cut."""

    chunks: int = 20
    """Of steps: after each the progress is reported."""
    curve_points: int = 200
    """Of the loss curve that is stored."""
    elbo_batch: int = 50
    """Draws at a time, when a restart is judged: more would need more memory."""
