"""Takes a model and its data, or a file; gives a Fit: the calls of a user."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from asvi.errors import InternalError, VerdictWarning, warn_user
from asvi.families.coupled.family import Coupled
from asvi.families.given import as_family
from asvi.fitting.archive import check_writable
from asvi.fitting.ladder import climb
from asvi.fitting.outcome import Outcome
from asvi.fitting.problem import Problem
from asvi.fitting.request import DEFAULTS, Request, given_of
from asvi.fitting.rungs import gaussian, trained
from asvi.fitting.training.asked import Training
from asvi.fitting.training.checkpoint import key_and_settings
from asvi.program.options import check_options
from asvi.program.program import Program
from asvi.results.fitted import Fit
from asvi.results.old_calls import take_options, with_old_options
from asvi.results.old_names import say
from asvi.results.storage import file as stored

__all__ = ["Fit", "check", "fit", "load", "resume"]

#: NumPyro's handlers, and the limit on threads of linear algebra, are those of the whole process.
ONE_AT_A_TIME = threading.RLock()


def fit(
    model: Callable,
    /,
    *args: Any,
    rng_key: Any = None,
    family: Any = None,
    effort: str = "auto",
    max_error: float = 0.05,
    discrete: str | Mapping[str, str] | None = None,
    training: Training | None = None,
    checkpoint: str | Path | None = None,
    progress_bar: bool | None = None,
    **kwargs: Any,
) -> Fit:
    """The posterior of ``model(*args, **kwargs)``; nothing needs to be tuned.

    Where the verdict on it is *not trustworthy*, it warns (:class:`~asvi.errors.VerdictWarning`).
    Fits in several threads wait for each other, for NumPyro's handlers are those of the whole
    process; processes go side by side, and a :class:`Fit` can be pickled. What happens is logged by
    the logger ``asvi``.

    :param model: an ordinary NumPyro model.
    :param rng_key: a ``jax.random.key``, or an int; None is 0. The same call gives the same answer,
        bit for bit, on one machine.
    :param family: what the variational distribution is made of. An object of
        :mod:`asvi.families`, one per site (``{"theta*": ConvexUpdate(), "sigma": MeanField()}``), a
        class of it by its name (``"Coupled"``), or a guide of NumPyro (``AutoMultivariateNormal``).
        It is trained, and its draws are not corrected. Without it,
        :class:`~asvi.families.StructuredNormal`, whose draws are corrected by weights or moves.
        Where it does not hold the model, or its draws cannot be corrected, it is
        :class:`~asvi.families.Coupled`, or, for large models, what is ahead of two short runs; see
        :mod:`asvi.fitting.default_family`.
    :param effort: ``"quick"`` corrects draws by weights alone, ``"auto"`` by moves where weights do
        not do, ``"thorough"`` trains a guide to within the tolerance.
    :param max_error: two standard errors of every mean, in posterior standard deviations, and of
        every standard deviation, relative, that the draws are to be below.
    :param discrete: how a trained guide has gradients of discrete sites, for all or by site name:
        ``"enumerate"``, ``"score"`` or ``"auto"``; see :class:`~asvi.objective.ELBO`. Without it,
        sites of finitely many values are summed out where they can be, and no guide is trained.
    :param training: how a guide is trained, where it comes to that: a :class:`Training`.
    :param checkpoint: a file that a training is saved to as it goes; after a kill, the same call
        goes on from there to the same result. Draws are not corrected then.
    :param progress_bar: show a line of progress. Without it, on a terminal or in a notebook.

    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist, asvi
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0).expand([3]).to_event(1), obs=y)
    >>> result = asvi.fit(model, jnp.array([1.0, 2.0, 3.0]))
    >>> bool(abs(result.elbo - -6.631) < 0.01), result.verdict == "good"
    (True, True)
    """
    started_at = time.monotonic()
    kwargs, old = take_options(model, kwargs)
    options = {
        "rng_key": rng_key, "family": family, "effort": effort, "max_error": max_error,
        "discrete": discrete, "training": training, "checkpoint": checkpoint,
        "progress_bar": progress_bar,
    }  # fmt: skip
    check_options(model, "asvi.fit", args, given_of(options))
    options = with_old_options(options, old)
    if checkpoint is not None:
        check_writable(checkpoint)
    with ONE_AT_A_TIME:
        request = Request.of(model, args, kwargs, options, started_at)
        result = _climb(request, asked={"model": model, **options})
        result.diagnose()
    return _warned(result)


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
    path: str | Path, model: Callable, /, *args: Any, family: Any = None, **kwargs: Any
) -> Fit:
    """As it was in 0.1: go on with the run that ``fit(..., checkpoint=path)`` began.

    Today the same call of :func:`fit` goes on.
    """
    say("asvi.resume(path, ...)", "asvi.fit(..., checkpoint=path)")
    started_at = time.monotonic()
    kwargs, old = take_options(model, kwargs)
    given = {"family": family, "discrete": kwargs.pop("discrete", None)}
    options = with_old_options({**DEFAULTS, **given, "checkpoint": path}, old)
    request = Request.of(model, args, kwargs, options, started_at)
    key, plan = key_and_settings(path)
    plan = replace(
        plan,
        optimizer=request.plan.optimizer,
        rates=request.plan.rates,
        gaussian_rates=request.plan.gaussian_rates,
    )
    with ONE_AT_A_TIME:
        result = _climb(replace(request, key=key, plan=plan, must_resume=True))
    return _warned(result)


def load(
    path: str | Path, model: Callable, /, *args: Any, family: Any = None, **kwargs: Any
) -> Fit:
    """A saved fit of ``model``; it draws without the training data.

    What needs data (``diagnose``, ``to_arviz``, ``model_log_prob``, predictions at the data of the
    fit) wants them again: ``asvi.load(path, model, *data)``, as they were given to :func:`fit`.
    Where the family holds a network of your own, give that family, too: the file has its weights,
    not its code.

    >>> import tempfile, numpyro, numpyro.distributions as dist, asvi
    >>> def model(y):
    ...     rate = numpyro.sample("rate", dist.Exponential(1.0))
    ...     numpyro.sample("y", dist.Poisson(rate), obs=y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asvi.fit(model, 3).save(f"{folder}/fit.asvi")
    ...     again = asvi.load(f"{folder}/fit.asvi", model)
    >>> again.draws["rate"].ndim
    1
    """
    with ONE_AT_A_TIME:
        outcome, about = stored.load(path, model, as_family(family), args, kwargs)
    return _as_fit(outcome, stored_diagnosis=about["diagnosis"])


def check(model: Callable, /, *args: Any, **kwargs: Any) -> Program:
    """The errors that :func:`fit` would raise of a model and its data, without a fit.

    Gives the model's structure, a :class:`Program`.

    >>> import numpyro, numpyro.distributions as dist, asvi
    >>> def model(y):
    ...     scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    ...     numpyro.sample("y", dist.Normal(0.0, scale), obs=y)
    >>> [site.name for site in asvi.check(model, 2.0).latent]
    ['scale']
    >>> asvi.check(model, float("nan"))
    Traceback (most recent call last):
    ...
    asvi.errors.SiteError: site 'y': ...
    """
    with ONE_AT_A_TIME:
        return Problem(model, Coupled(), args, kwargs).program


def _warned(result: Fit) -> Fit:
    """The result, with a warning if it is not to be trusted."""
    report = result.diagnose()
    if not report.ok:
        warn_user(
            f"the posterior of {result.model_name} is not trustworthy: "
            f"{'; '.join(report.reasons)}. Advice: {report.advice}.\n"
            'To silence this: warnings.simplefilter("ignore", asvi.VerdictWarning)',
            VerdictWarning,
        )
    return result


def _as_fit(outcome: Outcome, **more: Any) -> Fit:
    outcome.problem.bound.is_fitted = True
    return Fit(**vars(outcome), **more)
