"""Takes nothing; gives what a training is asked to do, in numbers with their reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import optax

__all__ = ["ADAM", "Clipping", "QuantileRefitSettings", "TrainingSettings"]

#: One object, so that programs compiled for it are found again.
ADAM = optax.chain(optax.scale_by_adam(), optax.scale(-1.0))


@dataclass(frozen=True)
class Clipping:
    """How gradients that are too long are cut; part of the compiled program."""

    factor: float = 10.0
    """Multiple of the usual length that is left. A longer gradient (a scale drawn near 0) would
    fill Adam's memory of squares for a thousand steps."""
    memory: float = 0.98
    """Share of the usual length that a step leaves as it was."""


@dataclass(frozen=True)
class QuantileRefitSettings:
    """How splines are led through weighted quantiles."""

    rounds: int = 2
    """The second has draws in tails that the first has opened."""
    max_draws: int = 65_536
    """Of a round."""
    min_draws: int = 16_384
    """Of a round: with fewer, tails are noise."""
    max_weight: float = 20.0
    """Of a draw, in multiples of the median, so that no single one has a say."""
    min_tail_draws: int = 8
    """Draws beyond a knot; where there are fewer it stays."""
    min_gap: float = 0.02
    """Between the places of two knots, in base draws."""


@dataclass(frozen=True)
class TrainingSettings:
    """What a run is allowed and asked to do.

    A user sets the first two, ``max_steps``, ``tolerance`` and ``optimizer``
    (:class:`~asvi.fitting.training.asked.Training`).
    ``benchmarks/fit_tasks.md`` says what was measured.
    """

    restarts: int = 8
    """Starts that race side by side."""
    draws: int = 2
    """Per step and restart."""
    chunk: int = 250
    """Steps of a compiled program."""
    explore_chunks: int = 4
    duel_chunks: int = 4
    first_cycle: int = 6
    """Chunks of the first cycle; each further one has twice as many."""
    max_steps: int = 24_000
    """Those of more draws count twice."""
    tolerance: float = 0.01
    """Nats that are not worth another cycle."""
    rates: tuple[float, ...] = (0.05, 0.02, 0.01, 0.005)
    """Learning rates of the race, in natural units."""
    gaussian_rates: tuple[float, ...] = (0.01, 0.03)
    """Of starts at the Gaussian, which are near their end."""
    recent_steps: int = 50
    """At the end of a chunk: their losses and gradients are those of now."""
    evaluation_draws: int = 128
    """Per restart, where ELBOs are compared."""
    optimizer: optax.GradientTransformation = ADAM
    clipping: Clipping = Clipping()

    # The start.
    start_tries: int = 5
    """Random steps away from a start without a finite ELBO, each longer than the one before."""
    start_draws: int = 128
    """Per restart, to see whether its ELBO is finite."""
    start_step: float = 0.3
    """Length of the first of these steps, in free numbers."""
    min_finite_share: float = 0.25
    """Of the draws of a start: the few at the edge of the support are skipped by the optimiser."""
    slack_sd: tuple[float, ...] = (0.02, 0.003, 0.0005, 1e-4)
    """How far prior weights that are not quite 1 may move the Gaussian: what is tried."""
    slack_cost_nat: float = 0.02
    """What the furthest of them may cost."""
    near_nat: float = 3.0
    """Between the Gaussian and the posterior: other starts are further away."""
    near_numbers: int = 250
    """Latent numbers that ``near_nat`` is for; of more there may be more nats, in proportion."""
    gaussian_share: float = 0.25
    """Of the restarts, that race from the Gaussian where it is not near."""
    first_temperature: float = 0.1
    """Of the data, where they are faded in."""

    # The descent.
    pooled_rate_factor: float = 3.0
    """All draws together have less noise than the restart that won the race: it may go faster."""
    rate_fall: float = 0.6
    """First learning rate of a cycle, over that of the one before."""
    last_rate_share: float = 0.01
    """Last learning rate of a cycle, over its first."""
    loss_nat: float = 0.1
    """A cycle that lost more was too fast."""
    loss_slowdown: float = 0.2
    """What its rates are multiplied with for the next one, from the best before."""
    max_lost_share: float = 0.1
    """Of a chunk's steps, that are not finite: beyond it all restarts share the draws again."""

    # More draws in place of as many steps: in small models they cost less.
    later_draw_factor: int = 4
    """Times the draws, in later cycles."""
    max_noise_ratio: float = 1.0
    """Variance of a gradient over the square of its mean: above it gradients are all noise."""
    large_gain_nat: float = 0.5
    """Of a cycle; one that gains less is seldom followed by more than one."""
    min_params_one_program: int = 20_000
    """From here on a second program, for more draws, is dearer to compile than the draws are."""

    # Stop and judge.
    foretold_tolerances: float = 3.0
    """Gains this small may be foretold, larger ones must be seen."""
    max_noise_nat: float = 0.1
    """A gain as large as this is worth a cycle, however noisy its measure."""
    max_gain_measurements: int = 4
    """Times that a cycle's gain is measured, at most."""
    max_final_measurements: int = 10
    """Times that the final ELBO is drawn, at most."""
    quantile_refit: QuantileRefitSettings = QuantileRefitSettings()

    checkpoint_seconds: float = 2.0
    """Between two writes of a checkpoint, at least."""

    @property
    def has_own_optimizer(self) -> bool:
        """Whether it is a user's."""
        return self.optimizer is not ADAM

    def draws_of(self, restarts: int) -> int:
        """Draws per restart and step where so many are left: of all together as many."""
        return max(1, self.restarts * self.draws // restarts)

    def numbers(self) -> dict[str, Any]:
        """All but the optimiser, which is functions; as JSON has them."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "optimizer"}
        for name in ("clipping", "quantile_refit"):
            found[name] = asdict(found[name])
        return {n: list(x) if isinstance(x, tuple) else x for n, x in found.items()}

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, Any]) -> TrainingSettings:
        """The settings of these numbers, with the optimiser of the default."""
        given: dict[str, Any] = {
            n: tuple(x) if isinstance(x, list) else x for n, x in numbers.items()
        }
        clipping, refit = given.pop("clipping"), given.pop("quantile_refit")
        return cls(
            clipping=Clipping(**clipping), quantile_refit=QuantileRefitSettings(**refit), **given
        )
