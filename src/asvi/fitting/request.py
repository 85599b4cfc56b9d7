"""Takes what a user asked of a fit; gives it checked, in one record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax

from asvi.density.settings import DensitySettings
from asvi.errors import AsviError
from asvi.families.given import as_family
from asvi.fitting.correction.settings import CorrectionSettings
from asvi.fitting.settings import FitSettings
from asvi.fitting.training.asked import settings_for
from asvi.fitting.training.progress import can_be_seen
from asvi.fitting.training.settings import TrainingSettings
from asvi.program.random_key import as_key

__all__ = ["DEFAULTS", "EFFORTS", "Request", "checked_effort", "checked_error", "given_of"]

EFFORTS = ("quick", "auto", "thorough")
#: Options of :func:`asvi.fit`, as they are if nothing is said.
DEFAULTS: dict[str, Any] = {
    "rng_key": None,
    "family": None,
    "effort": "auto",
    "max_error": CorrectionSettings.max_error,
    "discrete": None,
    "training": None,
    "checkpoint": None,
    "progress_bar": None,
}


@dataclass(frozen=True)
class Request:
    """One call of :func:`asvi.fit`."""

    model: Callable
    args: tuple
    kwargs: dict[str, Any]
    key: jax.Array | None
    plan: TrainingSettings
    """How a guide is trained."""
    started_at: float
    """By the clock that does not go back."""
    family: Any = None
    """What was asked for; None where it is ours to choose."""
    discrete: Any = "auto"
    progress: bool = True
    checkpoint: str | Path | None = None
    must_resume: bool = False
    """Whether there has to be a state in the checkpoint."""
    effort: str = "auto"
    max_error: float = CorrectionSettings.max_error
    num_particles: int | None = None
    """Draws per gradient step that were asked for."""
    density: DensitySettings = field(default_factory=DensitySettings)
    """Limits of what is made of the model's density."""
    settings: FitSettings = FitSettings()
    """How the other stages go about it."""

    @property
    def correction(self) -> CorrectionSettings:
        """How draws are corrected, to the error that was asked for."""
        return replace(self.settings.correction, max_error=self.max_error)

    @classmethod
    def of(
        cls,
        model: Callable,
        args: tuple,
        kwargs: dict[str, Any],
        options: Mapping[str, Any],
        started_at: float,
    ) -> Request:
        """The request that a user's options make; raises where they are none."""
        training, key = options["training"], options["rng_key"]
        return cls(
            model=model,
            args=args,
            kwargs=kwargs,
            key=None if key is None else as_key(key),
            plan=settings_for(training),
            started_at=started_at,
            family=as_family(options["family"]),
            discrete=options["discrete"] or "auto",
            progress=is_shown(options["progress_bar"]),
            checkpoint=options["checkpoint"],
            effort=checked_effort(options["effort"]),
            max_error=checked_error(options["max_error"]),
            num_particles=None if training is None else training.num_particles,
        )

    @property
    def asks_for_training(self) -> bool:
        """Whether it says something that only a trained guide can do."""
        return self.plan.has_own_optimizer or self.checkpoint is not None or self.discrete != "auto"

    @property
    def a_key(self) -> jax.Array:
        """The key, or that of the default."""
        return jax.random.key(0) if self.key is None else self.key


def given_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that say something else than nothing."""
    plain = (str, int, float)
    return {
        name: value
        for name, value in options.items()
        if value is not DEFAULTS[name]
        and not (isinstance(value, plain) and value == DEFAULTS[name])
    }


def is_shown(progress_bar: bool | None) -> bool:
    """Whether progress is shown: as it was asked for, else where somebody can look."""
    if progress_bar is not None:
        return bool(progress_bar)
    return can_be_seen()


def checked_effort(effort: str | None) -> str:
    """The effort, if it is one."""
    if effort is not None and effort not in EFFORTS:
        raise AsviError(
            f"effort={effort!r} is none of {', '.join(map(repr, EFFORTS))}.\n"
            'Write instead:\n    asvi.fit(model, y, effort="thorough")'
        )
    return effort or "auto"


def checked_error(max_error: float | None) -> float:
    """The error that is wanted, if it is one."""
    if max_error is None:
        return CorrectionSettings.max_error
    if not 0 < max_error <= 1:
        raise AsviError(
            f"max_error={max_error!r} must be above 0 and at most 1: it is in posterior standard "
            "deviations.\nWrite instead:\n    asvi.fit(model, y, max_error=0.05)"
        )
    return float(max_error)
