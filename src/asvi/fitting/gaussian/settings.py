"""Takes nothing; gives how the nearest Gaussian is looked for, in numbers with their reasons.

Two searches are made of the same parts: the default call's (:class:`SearchSettings`), which is kept
short, and one that a guide's training begins at (:class:`TrainingSearchSettings`), which pays for
itself in gradient steps. Nats are of the ELBO.
"""

from __future__ import annotations

from dataclasses import dataclass

from asvi.fitting.particles.settings import MoveSettings, TemperingSettings

__all__ = [
    "AscentSettings",
    "ModeSettings",
    "NewtonSettings",
    "SearchSettings",
    "TrainingSearchSettings",
]


@dataclass(frozen=True)
class NewtonSettings:
    """Newton's path to a mode, and where else a search begins."""

    max_steps: int = 100
    min_gain: float = 1e-3
    """Nats that the next step is expected to gain: below it, a mode is reached."""
    max_damping: float = 1e12
    """Beside a precision of 1, of the prior: no step this short goes anywhere."""
    extra_starts: int = 3
    """Draws of the prior that further paths begin at: dynamics have false modes near its centre."""
    max_numbers_for_extra_starts: int = 100
    """Latent numbers: paths of larger models cost too much."""
    start_precisions: tuple[float, ...] = (16.0, 1e3, 1e5)
    """Over the prior's, of starts at its centre: the first at which draws are possible is taken."""


@dataclass(frozen=True)
class AscentSettings:
    """Natural gradients on fixed draws, as far as they rise."""

    max_steps: int = 60
    draw_sets: int = 2
    """Sets of draws that are climbed on, one after the other: where none rises, it may be they."""
    small_gain: float = 0.02
    """Nats: two steps that gain less end the climb on a set."""
    min_step: float = 1e-3
    """Length of a natural gradient below which there is no way on."""
    min_step_near: float = 1e-3
    """The same where the end is near: after a small gain, or from a start that is near it."""
    starts_near: bool = False


@dataclass(frozen=True)
class ModeSettings:
    """How other modes are looked for: scouts are led to the posterior, and climbs follow."""

    max_numbers: int = 600
    """Latent numbers up to which scouts are sent."""
    scouts: int = 32
    islands: int = 8
    """They are small, lest one find rule all."""
    tempering: TemperingSettings = TemperingSettings(min_effective_share=0.5, moves=1)
    moves: MoveSettings = MoveSettings(max_steps=8, has_second_tries=False)
    last_moves: int = 4
    """Moves at the posterior."""
    min_excess_nat: float = 8.0
    """Nats by which the posterior is above a Gaussian that lacks this part of it."""
    max_deficit_nat: float = 10.0
    """Nats below the highest mode, from which on a mode is left out."""
    max_modes: int = 12
    """Beside the first."""
    max_failures: int = 4
    """Climbs in a row that led back, after which no more are made."""
    same_mode_nat: float = 1.0
    """Nats of a mode's Gaussian within which a path ended at the mode."""
    newton: NewtonSettings = NewtonSettings()
    ascent: AscentSettings = AscentSettings(
        max_steps=20, draw_sets=1, small_gain=0.05, min_step_near=0.05
    )
    draws: int = 32
    """That climbs are made on."""


@dataclass(frozen=True)
class SearchSettings:
    """The search of the default call: a second, not a minute."""

    enough_nat: float = 1e-3
    """Nats between Gaussian and posterior within which nothing better is looked for."""
    newton: NewtonSettings = NewtonSettings(max_steps=30)
    first_ascent: AscentSettings = AscentSettings(
        max_steps=40, draw_sets=1, small_gain=0.05, min_step_near=0.05
    )
    """From starts: roughly, as more climbs follow."""
    last_ascent: AscentSettings = AscentSettings(
        max_steps=40, draw_sets=1, min_step_near=0.05, starts_near=True
    )
    """From the end of the first: a shorter step does not rise on the posterior, but on its draws.
    """
    first_draws: int = 16
    """Where an evaluation is dear; else as many as come in one call."""
    last_draws: int = 32
    fresh_steps: int = 12
    """Steps on draws of their own after the last climb, and twice as many where they are cheap."""
    fresh_length: float = 0.3
    """Of the first half of these steps; the others are a mean over what is left."""
    min_centring: float = 0.02
    """Centring of the number that is centred most, to be worth a climb."""
    min_mode_gain: float = 0.1
    """Nats by which another mode is higher, to be the one that the Gaussian stands at."""
    modes: ModeSettings = ModeSettings()
    comparison_draws: int = 128
    """Draws on which ends are compared, that led none of them."""
    evaluation_draws: int = 1024
    """Draws that the end is judged by at a time."""
    min_evaluation_draws: int = 64
    evaluation_rounds: int = 4
    """How often so many are drawn at the most."""
    max_evaluation_numbers: int = 8_000_000
    """Latent numbers of all draws of a round: 64 MB. Large models have fewer draws."""
    rough_error_nat: float = 0.05
    """Standard error of the ELBO, in nats, that does for what is no posterior anyway."""
    min_effective_share: float = 0.1
    """Share of draws that must count for weights to tell the divergence."""
    min_curvature: float = 0.05
    """Curvature of a direction, of the precision there, that something bends."""
    min_relative_precision: float = 1e-13
    """Precision of a direction, beside 1, that is not rounding alone."""


@dataclass(frozen=True)
class TrainingSearchSettings:
    """The search that training begins at, with the guide's edges and no others."""

    enough_nat: float = 1e-3
    """Nats between Gaussian and posterior within which nothing better is looked for."""
    newton: NewtonSettings = NewtonSettings()
    ascent: AscentSettings = AscentSettings()
    fresh_steps: int = 15
    """Steps on draws of their own at the end, of lengths of a mean over all of them."""
    max_multiply_adds: float = 5e10
    """That may be spent on the climb from one start: some ten seconds."""
