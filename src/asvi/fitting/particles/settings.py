"""Takes nothing; gives how particles are moved and led, in numbers with their reasons."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MoveSettings", "TemperingSettings"]


@dataclass(frozen=True)
class MoveSettings:
    """How a particle is moved; lengths are those of noise, of which the posterior's is about 1."""

    target_acceptance: float = 0.8
    """Mean acceptance that the length of a step is set for."""
    first_step: float = 0.9
    """Length of the first step, times the fourth root of the numbers: as acceptance scales."""
    min_step: float = 1e-3
    max_step: float = 1.5
    """A unit normal's leapfrog steps are unstable from 2 on."""
    move_length: float = 4.0
    """As a mean: two thirds of a period of a unit normal."""
    jitter: tuple[float, float] = (0.7, 1.3)
    """Factors of the number of steps, and of each particle's step: no move is a whole period."""
    max_steps: int = 60
    """Steps of a move."""
    wall_loss: float = 10.0
    """Nats of energy lost by a move that met something its steps are too long for."""
    has_second_tries: bool = True
    retry_loss: float = 2.0
    """Nats of energy lost, from which on finer steps are tried."""
    min_wall_share: float = 0.01
    """Share of particles at walls below which nothing is tried again."""
    finer_steps: int = 4
    """Steps of a second try, for one of the first."""
    retry_batch: int = 64
    """Particles that try finer steps in one call."""


@dataclass(frozen=True)
class TemperingSettings:
    """How particles are led to a target."""

    min_effective_share: float = 0.6
    """Share of particles that stay effective from one temperature to the next."""
    moves: int = 3
    """At each temperature but the last."""
    max_temperatures: int = 60
    """A longer way is cut short, and its draws are not trusted."""
