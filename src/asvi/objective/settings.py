"""Takes nothing; gives how many configurations of discrete sites are tried."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EstimatorSettings"]


@dataclass(frozen=True)
class EstimatorSettings:
    """When sites without reparameterised draws are enumerated; see `discrete_choice`."""

    max_joint: int = 64
    """Configurations of all sites together: as many runs of the model."""
    max_joint_requested: int = 4096
    """Configurations where enumeration was asked for; more would fill the memory."""
    max_parallel: int = 32
    """Values that are tried at once for all members of a plate."""
