"""Takes what a user asks of a training; gives it checked, as settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import optax
from numpyro import optim

from asvi.errors import AsviError
from asvi.fitting.training.settings import TrainingSettings

__all__ = ["Training", "as_optax", "settings_for"]


@dataclass(frozen=True)
class Training:
    """How a guide is trained, where :func:`asvi.fit` comes to train one.

    >>> import numpyro, numpyro.distributions as dist, asvi
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> training = asvi.Training(num_steps=1000, num_restarts=2)
    >>> family = asvi.families.ConvexUpdate()
    >>> asvi.fit(model, 2.0, family=family, training=training, progress_bar=False).num_steps
    1000
    """

    num_steps: int = TrainingSettings.max_steps
    """The most gradient steps that may be taken. Steps of four times the draws count twice."""
    num_particles: int | None = None
    """Draws per gradient step and restart: 2, or 8 where a discrete site is not summed out. In
    later cycles small models whose gradients are all noise take four times as many. It is not the
    number of posterior draws: that is ``num_samples``."""
    num_restarts: int = TrainingSettings.restarts
    """Starts that race against each other."""
    optimizer: Any = None
    """One of optax or :mod:`numpyro.optim`, in place of Adam with a race over learning rates. It
    works on parameters in natural units (a location in standard deviations of its site), and its
    steps are faded out along a cosine in each cycle. Give the same object again to use the same
    compiled program."""
    elbo_tolerance: float = TrainingSettings.tolerance
    """Gain in ELBO, in nats, that is not worth another cycle."""


def settings_for(training: Training | None) -> TrainingSettings:
    """The settings that a user's wishes make."""
    if training is None:
        return TrainingSettings()
    if not isinstance(training, Training):
        raise AsviError(
            f"training={training!r} is no asvi.Training.\n"
            "Write instead:\n    asvi.fit(model, y, training=asvi.Training(num_steps=2000))"
        )
    for name in ("num_steps", "num_particles", "num_restarts"):
        value = getattr(training, name)
        unsaid = value is None and name == "num_particles"
        if not unsaid and (not isinstance(value, int) or value < 1):
            raise AsviError(f"{name} must be a whole number from 1 up, got {value!r}.")
    if not training.elbo_tolerance > 0:
        raise AsviError(f"elbo_tolerance must be positive, got {training.elbo_tolerance}.")
    plan = replace(
        TrainingSettings(),
        restarts=training.num_restarts,
        max_steps=training.num_steps,
        tolerance=training.elbo_tolerance,
    )
    if training.num_particles is not None:
        plan = replace(plan, draws=training.num_particles)
    if training.optimizer is None:
        return plan
    # The learning rate is the optimiser's own affair.
    return replace(
        plan, optimizer=as_optax(training.optimizer), rates=(1.0,), gaussian_rates=(1.0,)
    )


def as_optax(optimizer: Any) -> optax.GradientTransformation:
    """A user's optimiser as one of optax.

    >>> as_optax("adam")
    Traceback (most recent call last):
    ...
    asvi.errors.AsviError: optimizer must be one of optax or numpyro.optim, got str...
    """
    has_state = callable(getattr(optimizer, "get_params", None))  # as NumPyro's do, not optax's
    if has_state and not isinstance(optimizer, optim.Minimize):
        return _from_numpyro(optimizer)
    has_both = all(callable(getattr(optimizer, name, None)) for name in ("init", "update"))
    if has_both and not has_state:
        return optimizer
    raise AsviError(
        f"optimizer must be one of optax or numpyro.optim, got {type(optimizer).__name__}"
        f"{', which takes no gradient steps' if isinstance(optimizer, optim.Minimize) else ''}.\n"
        "Write instead:\n    asvi.Training(optimizer=optax.adamw(1e-2))"
    )


@lru_cache(maxsize=32)
def _from_numpyro(optimizer: Any) -> optax.GradientTransformation:
    """The same steps, as a transformation of gradients.

    NumPyro's optimisers keep the parameters in their state, so that a step is the difference of
    two states. One object is made for one optimiser: programs compiled for it are found again.
    """

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        loss = jnp.zeros(()) if optimizer.update_with_value else None
        after = optimizer.update(updates, state, value=loss)
        moved = jax.tree.map(jnp.subtract, optimizer.get_params(after), optimizer.get_params(state))
        return moved, after

    return optax.GradientTransformation(optimizer.init, update)
