"""Takes nothing; gives how an encoder starts and moves."""

from __future__ import annotations

from dataclasses import dataclass

from asvi.families.settings import ParameterSettings

__all__ = ["AmortizedSettings"]


@dataclass(frozen=True)
class AmortizedSettings(ParameterSettings):
    """Numbers of :class:`~asvi.families.Amortized`."""

    head_start_sd: float = 0.01
    """Spread of the heads' weights at the start, over that of a usual layer: near the prior."""
    network_step: float = 0.5
    """Of a network's weights, beside what its shape says: layers multiply, half a step in each."""
