"""Takes nothing; gives all that shapes a fit beside what a user asks for, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass

from asvi.fitting.correction.settings import CorrectionSettings
from asvi.fitting.diagnostics.settings import VerdictSettings
from asvi.fitting.gaussian.settings import SearchSettings

__all__ = ["FitSettings", "LadderSettings", "NumpyroCheckSettings"]


@dataclass(frozen=True)
class LadderSettings:
    """Which rung is for which model, and what it is asked for."""

    max_numbers: int = 250
    """Latent numbers without groups, of which the default call looks for a Gaussian: its steps
    cost their cube."""
    max_numbers_in_groups: int = 3000
    """The same where groups keep them apart: costs grow with the groups' number."""
    near_nat: float = 0.1
    """Nats between Gaussian and posterior that weights make good."""
    score_draws: int = 8
    """Draws a gradient step, where gradients come by score functions, which are noisy."""
    max_params_unmeasured: int = 50_000
    """Parameters of a coupled guide up to which it is taken unmeasured: its steps are cheap."""


@dataclass(frozen=True)
class NumpyroCheckSettings:
    """How NumPyro is asked whether it says the same."""

    draws: int = 4
    """Draws at which densities are compared: a fault shows at any."""
    max_error: float = 1e-6
    """Relative difference of sums in double precision that are the same but for rounding."""
    max_rounded_error: float = 1e-3
    """The same in single precision."""
    elbo_draws: int = 1000
    """Fresh draws that the ELBO is compared with."""
    elbo_draws_growth: int = 4
    """Times as many are drawn where the first ones say otherwise: it may be one rare draw."""
    max_elbo_nat: float = 0.05
    max_elbo_errors: float = 6.0
    """Nats, and standard errors beside them, of a difference that may be chance."""


@dataclass(frozen=True)
class FitSettings:
    """All stages but training, whose settings are a plan of their own."""

    ladder: LadderSettings = LadderSettings()
    search: SearchSettings = SearchSettings()
    correction: CorrectionSettings = CorrectionSettings()
    verdict: VerdictSettings = VerdictSettings()
    numpyro_check: NumpyroCheckSettings = NumpyroCheckSettings()
