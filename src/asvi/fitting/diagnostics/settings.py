"""Takes nothing; gives what draws are to be like for each verdict, in numbers with their reasons.

Shares and thresholds of guides were chosen on the embedded tasks, as ``benchmarks/verdicts.py``
reports.
"""

from __future__ import annotations

from dataclasses import dataclass

from asvi.fitting.particles.settings import TemperingSettings

__all__ = ["VerdictSettings"]


@dataclass(frozen=True)
class VerdictSettings:
    """Thresholds of the verdict; effective draws are counted after weighting."""

    max_rounding_nat: float = 0.1
    """Nats of a draw's density that single precision may lose."""
    min_effective_draws: float = 100.0
    """Fewer say too little of a mean, or of the weights that make them."""
    good_k_hat: float = 0.5
    """Above it, the variance of weights is infinite."""
    max_k_hat: float = 0.7
    """Above it, not even resampling is to be trusted (Vehtari et al. 2024)."""

    # ------------------------------------------------------------------------------ of guides
    draws: int = 4000
    """Of a guide, that are weighted."""
    max_k_hat_of_many: float = 1.0
    """Where draws enough are effective: k̂ is strict in many dimensions, where a guide with the
    right means can have a poor tail."""
    equal_share: float = 0.9
    """Share of draws that are effective, above which their weights are as good as equal."""
    many_share: float = 0.5
    """The same, above which a rare heavy weight is no verdict."""
    even_share: float = 0.25
    """The same, above which draws are right however the run came by them, if k̂ is good."""
    max_shift_sd: float = 0.16
    """Posterior sds that weights move a mean: they know only what was drawn, and move it less far
    than the truth is."""
    wide_nat: float = 1.0
    """Nats that weighting gains, above which draws are not good as they are."""
    close_nat: float = 0.1
    """Nats that weighting gains, below which a guide with discrete sites is close enough: its
    weights are bounded, and a rare configuration is no Pareto tail."""
    settled_gain_nat: float = 0.5
    """Nats that the last cycle of a run gained, below which it had nowhere left to go."""
    max_skipped_share: float = 0.05
    """Of gradients that were not finite."""
    max_dependence_numbers: int = 300
    """Latent numbers up to which their dependence is estimated: of more, draws are too few."""

    # ---------------------------------------------------------------------- of corrected draws
    good_r_hat: float = 1.01
    max_r_hat: float = 1.05
    """Nested R̂ up to which draws are good, and above which they are bad."""
    max_drift: float = 4.0
    """Standard errors of a drift that may be chance: all numbers have one, the worst counts."""
    good_wall_share: float = 0.03
    max_wall_share: float = 0.15
    """Share of moves that met a wall, up to which draws are good, and above which they are bad."""
    max_temperatures: int = TemperingSettings.max_temperatures
    """Of a way to the posterior that was cut short."""
