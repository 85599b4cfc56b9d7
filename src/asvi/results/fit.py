"""Takes a model and its data, or a file; gives a Fit: the calls of a user."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import optax

from asvi.errors import AsviError, InternalError
from asvi.families.amortized.family import Amortized
from asvi.families.protocol import Family, JointFamily
from asvi.fitting.archive import check_writable
from asvi.fitting.ladder import climb
from asvi.fitting.outcome import Outcome
from asvi.fitting.request import Request, checked_effort, checked_error
from asvi.fitting.rungs import gaussian, trained
from asvi.fitting.training.checkpoint import key_and_settings
from asvi.fitting.training.run import check_plan
from asvi.fitting.training.settings import TrainingSettings
from asvi.program.arguments import check_options
from asvi.results.fitted import Fit
from asvi.results.storage import file as stored

__all__ = ["Fit", "fit", "load", "resume"]


def fit(
    model: Callable,
    /,
    *args: Any,
    key: jax.Array | None = None,
    family: Family | JointFamily | Mapping[str, Family] | None = None,
    amortize: str | None = None,
    draws: int | None = None,
    steps: int | None = None,
    restarts: int | None = None,
    optimizer: optax.GradientTransformation | None = None,
    tolerance: float | None = None,
    discrete: str | Mapping[str, str] | None = None,
    progress: bool | None = None,
    checkpoint: str | Path | None = None,
    effort: str | None = None,
    max_error: float | None = None,
    **kwargs: Any,
) -> Fit:
    """The posterior of ``model(*args, **kwargs)``; nothing needs to be tuned.

    :param model: an ordinary NumPyro model.
    :param key: a ``jax.random.key``; the same key gives the same result, bit for bit, on one
        machine. Without it, ``jax.random.key(0)``.
    :param family: see :class:`~asvi.guide.AutoASVI`; also a family of the whole model. Without it,
        :class:`~asvi.families.StructuredNormal`, whose draws are corrected by weights or moves.
        Where it does not hold the model, or its draws cannot be corrected, it is
        :class:`~asvi.families.Coupled`, or, for large models, what is ahead of two short runs; see
        :mod:`asvi.fitting.default_family`. A family that is asked for is trained and not corrected.
    :param amortize: a plate whose latents get their data terms from a network that reads the data
        of each point, for large or subsampled plates: short for ``family=Amortized(plate=...)``;
        with ``family`` as its ``base``. See :class:`~asvi.families.Amortized`.
    :param draws: draws per step and restart (default 2, or 8 where score-function gradients are
        used); after the race the winner has those of all. In later cycles small models whose
        gradients are nothing but noise take four times as many.
    :param steps: the most steps that may be taken (default 24,000), those of four times the draws
        counted twice.
    :param restarts: starts that race (default 8).
    :param optimizer: an optax optimiser in place of Adam with a race over learning rates. It works
        on parameters in natural units (a location in standard deviations of its site); its steps
        are still faded out along a cosine in each cycle. Give the same object again to use the same
        compiled program.
    :param tolerance: gain in ELBO, in nats, that is not worth another cycle (default 0.01).
    :param discrete: how a trained guide has gradients of discrete sites, for all or by site name:
        ``"enumerate"``, ``"score"`` or ``"auto"``; see :class:`~asvi.objective.ELBO`. Without it,
        sites of finitely many values are summed out where they can be, and no guide is trained.
    :param progress: show a line of progress (default True).
    :param checkpoint: a file that the run is saved to as it goes; after a kill, the same call, or
        :func:`resume`, goes on from there to the same result. Draws are not corrected then.
    :param effort: ``"quick"`` corrects draws by weights alone, ``"auto"``, the default, by moves
        where weights do not do, ``"thorough"`` trains a guide to within the tolerance.
    :param max_error: two standard errors of every mean, in posterior standard deviations, and of
        every standard deviation, relative, that the draws are to be below (default 0.05).

    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, asvi
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0).expand([3]).to_event(1), obs=y)
    >>> result = asvi.fit(model, jnp.array([1.0, 2.0, 3.0]), progress=False)
    >>> bool(abs(result.elbo - -6.631) < 0.01), result.diagnose().verdict
    (True, 'good')
    """
    started_at = time.monotonic()
    options = {
        "key": key, "family": family, "amortize": amortize, "draws": draws, "steps": steps,
        "restarts": restarts, "optimizer": optimizer, "tolerance": tolerance,
        "discrete": discrete, "progress": progress, "checkpoint": checkpoint,
        "effort": effort, "max_error": max_error,
    }  # fmt: skip
    check_options(model, "asvi.fit", options)
    max_error, effort = checked_error(max_error), checked_effort(effort)
    chosen = {"draws": draws, "max_steps": steps, "restarts": restarts, "tolerance": tolerance}
    plan = TrainingSettings(**{name: value for name, value in chosen.items() if value is not None})
    check_plan(plan)
    if checkpoint is not None:
        check_writable(checkpoint)
    request = Request(
        model=model,
        args=args,
        kwargs=kwargs,
        key=key,
        plan=_with_optimizer(plan, optimizer),
        started_at=started_at,
        family=_family(family, amortize),
        discrete=discrete or "auto",
        progress=progress is not False,
        checkpoint=checkpoint,
        effort=effort,
        max_error=max_error,
        draws=draws,
    )
    return _climb(request, asked={"model": model, **options})


def _climb(request: Request, **about: Any) -> Fit:
    """What was asked for, or the best that there is."""
    try:
        if request.family is None:
            return _as_fit(climb(request), **about)
        is_searched = getattr(request.family, "is_searched", False)
        way = gaussian.fit_as_asked if is_searched else trained.fit_as_asked
        return _as_fit(way(request), **about)
    except InternalError as fault:
        if isinstance(fault.result, Outcome):
            fault.result = _as_fit(fault.result, **about)
        raise


def resume(
    path: str | Path,
    model: Callable,
    /,
    *args: Any,
    family: Family | JointFamily | Mapping[str, Family] | None = None,
    amortize: str | None = None,
    optimizer: optax.GradientTransformation | None = None,
    discrete: str | Mapping[str, str] | None = None,
    progress: bool | None = None,
    **kwargs: Any,
) -> Fit:
    """Go on with the run that ``fit(..., checkpoint=path)`` began, to the result it would have had.

    The data are not in the file: give the same model and data again, and what else was given to
    :func:`fit` of family, optimiser and ``discrete``.
    """
    started_at = time.monotonic()
    options = {"family": family, "amortize": amortize, "optimizer": optimizer}
    options |= {"discrete": discrete, "progress": progress}
    check_options(model, "asvi.resume", options)
    key, plan = key_and_settings(path)
    request = Request(
        model=model,
        args=args,
        kwargs=kwargs,
        key=key,
        plan=_with_optimizer(plan, optimizer),
        started_at=started_at,
        family=_family(family, amortize),
        discrete=discrete or "auto",
        progress=progress is not False,
        checkpoint=path,
        must_resume=True,
    )
    return _climb(request)


def load(
    path: str | Path, model: Callable, /, *args: Any, family: Any = None, **kwargs: Any
) -> Fit:
    """A saved fit of ``model``; it draws without the training data.

    What needs data (``diagnose``, ``to_arviz``, ``model_log_prob``, predictions at the data of the
    fit) wants them again: ``asvi.load(path, model, *data)``, as they were given to :func:`fit`.
    Where the family holds a network of your own, give that family, too: the file has its weights,
    not its code.
    """
    outcome, about = stored.load(path, model, family, args, kwargs)
    return _as_fit(outcome, stored_diagnosis=about["diagnosis"])


def _family(family: Any, amortize: str | None) -> Any:
    """The family that was asked for; None where it is ours to choose."""
    if amortize is None:
        return family
    if not isinstance(amortize, str):
        raise AsviError(
            f"amortize={amortize!r} is no plate's name.\n"
            'Write instead:\n    asvi.fit(model, y, amortize="point")'
        )
    return Amortized(plate=amortize, base=family)


def _with_optimizer(plan: TrainingSettings, optimizer: Any) -> TrainingSettings:
    """The plan with a user's optimiser, whose learning rate is its own affair."""
    if optimizer is None:
        return plan
    if not (callable(getattr(optimizer, "init", None)) and hasattr(optimizer, "update")):
        raise AsviError(
            f"optimizer must be an optax optimiser, got {type(optimizer).__name__}.\n"
            "Write instead:\n    asvi.fit(model, y, optimizer=optax.adamw(1e-2))"
        )
    return replace(plan, optimizer=optimizer, rates=(1.0,), gaussian_rates=(1.0,))


def _as_fit(outcome: Outcome, **more: Any) -> Fit:
    outcome.problem.bound.is_fitted = True
    return Fit(**vars(outcome), **more)
