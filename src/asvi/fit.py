"""Takes a model and its data; gives a Fit: a posterior with an honest account of how good it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from asvi import inference_data, stored
from asvi.arguments import check_options
from asvi.corrected import CorrectedPosterior
from asvi.diagnose import BAD, Report, diagnose
from asvi.errors import AsviError, FamilyError, InternalError
from asvi.explain import Explanation, explain, name_of
from asvi.families import Amortized, Coupled, Family, StructuredNormal, WholeFamily
from asvi.fitting import checkpoint as checkpoints
from asvi.fitting.choice import Choice, choose_family
from asvi.fitting.correction.result import Correction
from asvi.fitting.correction.settings import Settings
from asvi.fitting.ladder import EFFORTS, correct_gaussian
from asvi.fitting.plan import Plan
from asvi.fitting.problem import Problem
from asvi.fitting.recheck import check_elbo
from asvi.fitting.run import Run, check_plan, run
from asvi.fitting.structured import fit_structured
from asvi.fitting.units import is_coupling_weight, roles_of
from asvi.judge import judge_correction
from asvi.posterior import Posterior

__all__ = ["Fit", "fit", "load", "resume"]


@dataclass
class Fit:
    """The result of :func:`fit`.

    ``elbo`` and its standard error come from fresh draws that the optimiser never saw. ``losses``
    has the mean negative ELBO of every chunk of steps. ``converged`` says whether the run stopped
    by itself, ``message`` why it stopped. ``print(result)`` shows a table and the verdict.
    """

    elbo: float
    elbo_se: float
    losses: np.ndarray = field(repr=False)
    params: dict[str, jax.Array] = field(repr=False)
    converged: bool
    message: str
    steps: int
    skipped_steps: int
    seconds: float
    info: dict[str, Any] = field(repr=False)
    problem: Problem = field(repr=False)
    told: str = field(default="", repr=False)
    """The diagnosis in words, of a loaded fit."""
    correction: Correction | None = field(default=None, repr=False)
    """Draws of the posterior, where the guide's were corrected."""
    asked: dict[str, Any] = field(default_factory=dict, repr=False)
    """What :func:`fit` was called with."""

    @cached_property
    def guide(self) -> Posterior:
        """The variational distribution: draws, densities, its ELBO."""
        return Posterior(self.problem, self.params)

    @cached_property
    def posterior(self) -> Posterior:
        """Draws of the posterior, their moments, predictions.

        By default they are corrected, by weights or moves. Where a family was asked for, they are
        the guide's own.
        """
        if self.correction is None:
            return self.guide
        return CorrectedPosterior(self.problem, self.params, self.correction)

    @property
    def log_evidence(self) -> float | None:
        """Log marginal likelihood of the data; None where draws were not corrected."""
        return None if self.correction is None else self.correction.log_evidence

    @property
    def log_evidence_se(self) -> float | None:
        """Its standard error."""
        return None if self.correction is None else self.correction.log_evidence_se

    def refine(self, max_error: float | None = None) -> Fit:
        """A better fit of the same model: with a smaller error, or with more effort.

        >>> import numpyro, numpyro.distributions as dist, asvi
        >>> def model(y):
        ...     rate = numpyro.sample("rate", dist.Exponential(1.0))
        ...     numpyro.sample("y", dist.Poisson(rate), obs=y)
        >>> result = asvi.fit(model, 3, progress=False)
        >>> len(result.refine(max_error=0.02).correction.pool) > len(result.correction.pool)
        True
        """
        if not self.asked:
            raise AsviError(
                "refine() goes on from a call of asvi.fit, and this fit was loaded from a file.\n"
                'Write instead:\n    asvi.fit(model, *data, effort="thorough")'
            )
        asked = dict(self.asked)
        model, (args, kwargs) = asked.pop("model"), self.problem.arguments
        if max_error is not None:
            asked["max_error"] = max_error
        else:
            efforts = EFFORTS[EFFORTS.index(asked["effort"] or "auto") + 1 :]
            asked["effort"] = efforts[0] if efforts else EFFORTS[-1]
        return fit(model, *args, **{n: x for n, x in asked.items() if x is not None}, **kwargs)

    @cached_property
    def _report(self) -> Report:
        if self.correction is not None:
            return judge_correction(self.correction, self)
        self.problem.arguments.need_data("diagnose()")
        return diagnose(self.guide, self)

    def diagnose(self) -> Report:
        """How good the posterior is, in numbers and in plain words; see :mod:`asvi.diagnose`."""
        return self._report

    def explain(self) -> Explanation:
        """What the family does at each site, and which dependencies it misses."""
        return explain(self.posterior)

    def to_arviz(self, draws: int = 1000, key: jax.Array | None = None) -> Any:
        """ArviZ data: posterior, prior, predictive draws, data, log likelihood; see ``docs``."""
        self.problem.arguments.need_data("to_arviz()")
        return inference_data.to_arviz(self.posterior, self, draws, key)

    def save(self, path: str | Path, model_path: str | None = None) -> None:
        """Write the fit to a file; :func:`load` reads it, and needs no data to draw.

        ``model_path``, like ``"my_model.py:model"``, lets ``asvi report`` find the model again.
        """
        told = self.told or (str(self.diagnose()) if self.problem.arguments.has_data else "")
        about = {"diagnosis": told, "model_path": model_path}
        stored.save(path, self.guide, self, self.correction, about)

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=100, no_color=True, highlight=False)
        with console.capture() as capture:
            for part in self.__rich_parts__():
                console.print(part)
        return capture.get().rstrip()

    def __rich_parts__(self) -> list[Any]:
        parts: list[Any] = [inference_data.summary_table(self.posterior)]
        if self.correction is None:
            parts.append(
                f"ELBO {self.elbo:.3f} ± {self.elbo_se:.3f} after {self.steps} steps "
                f"({self.seconds:.1f} s); {self.message}"
            )
        else:
            parts.append(
                f"log evidence {self.log_evidence:.3f} ± {self.log_evidence_se:.3f}, "
                f"ELBO {self.elbo:.3f} ± {self.elbo_se:.3f} ({self.seconds:.1f} s)"
            )
            parts.append(self.correction.in_words())
        if "family" in self.info and self.correction is None:
            parts.append(f"family: {self.info['family']}")
        if self.skipped_steps:
            parts.append(f"{self.skipped_steps} gradients were not finite and were skipped")
        if self.problem.arguments.has_data or self.correction is not None:
            report = self.diagnose()
            parts.append(f"verdict: {report.verdict}. {report.advice}")
            parts += [f"  - {reason}" for reason in report.reasons]
            parts += [f"note: {note}" for note in report.notes]
        elif self.told:
            parts.append(self.told)
        return parts


def fit(
    model: Callable,
    /,
    *args: Any,
    key: jax.Array | None = None,
    family: Family | WholeFamily | Mapping[str, Family] | None = None,
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
        :mod:`asvi.fitting.choice`. A family that is asked for is trained and not corrected.
    :param amortize: a plate whose latents get their data terms from a network that reads the data
        of each point, for large or subsampled plates: short for ``family=Amortized(plate=...)``;
        with ``family`` as its ``base``. See :class:`~asvi.families.Amortized`.
    :param draws: draws per step and lane (default 2, or 8 where score-function gradients are used;
        lanes pool theirs after the race). In later cycles small models whose gradients are nothing
        but noise take four times as many.
    :param steps: the most steps that may be taken (default 24,000), those of four times the draws
        counted twice.
    :param restarts: lanes, that is, starts that race (default 8).
    :param optimizer: an optax optimiser in place of Adam with a race over learning rates. It works
        on parameters in natural units (a location in standard deviations of its site); its steps
        are still faded out along a cosine in each cycle. Give the same object again to use the same
        compiled program.
    :param tolerance: gain in ELBO, in nats, that is not worth another cycle (default 0.01).
    :param discrete: how gradients of discrete sites are had, for all or by site name:
        ``"enumerate"``, ``"score"`` or ``"auto"``, which is the default; see
        :class:`~asvi.objective.ELBO`.
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
    begun = time.monotonic()
    options = {
        "key": key, "family": family, "amortize": amortize, "draws": draws, "steps": steps,
        "restarts": restarts, "optimizer": optimizer, "tolerance": tolerance,
        "discrete": discrete, "progress": progress, "checkpoint": checkpoint,
        "effort": effort, "max_error": max_error,
    }  # fmt: skip
    check_options(model, "asvi.fit", options)
    asked, error = {"model": model, **options}, _max_error(max_error)
    effort = _effort(effort)
    discrete, progress = discrete or "auto", progress is not False
    chosen = {"draws": draws, "max_steps": steps, "lanes": restarts, "tolerance": tolerance}
    plan = Plan(**{name: value for name, value in chosen.items() if value is not None})
    check_plan(plan)
    plan = _with_optimizer(plan, optimizer)
    if checkpoint is not None:
        checkpoints.check_writable(checkpoint)
    if isinstance(family, StructuredNormal) and amortize is None:
        problem, found, _ = fit_structured(model, family, args, kwargs, key, plan, begun)
        found.info["family"] = f"{name_of(family)}, as asked for"
        return _as_fit(found, problem, asked=asked)
    choice, first = _asked(family, amortize), None
    if choice is None and optimizer is None and checkpoint is None:
        first = _corrected(model, args, kwargs, key, plan, error, effort, begun)
    if first is not None:
        first.asked = asked
        is_near = first.info["nearness"] <= plan.tolerance
        if is_near if effort == "thorough" else first.diagnose().verdict != BAD:
            return first
        if effort == "quick" or not first.converged:
            return first
    key = jax.random.key(0) if key is None else key
    if choice is None:
        choice = choose_family(model, args, kwargs, discrete, key, plan, progress)
    problem = choice.made or Problem(model, choice.family, args, kwargs, discrete=discrete)
    state = choice.state
    if draws is None and problem.may_have_scores and problem.has_scores():
        plan, state = replace(plan, draws=8), None
    found = choice.stopped or run(problem, key, plan, progress, checkpoint, begun, state=state)
    found.info["family"] = _why(problem, found, choice.measured)
    if first is not None and first.elbo - found.elbo > 2 * np.hypot(found.elbo_se, first.elbo_se):
        lower = f"{name_of(problem.family)} ended {first.elbo - found.elbo:.2g} nat lower"
        first.info["family"] = f"StructuredNormal: {lower}"
        if "interrupted" in found.message:
            first.message, first.converged = found.message, False
        return first
    return _rechecked(_as_fit(found, problem, asked=asked))


def _effort(effort: str | None) -> str:
    if effort is not None and effort not in EFFORTS:
        raise AsviError(
            f"effort={effort!r} is none of {', '.join(map(repr, EFFORTS))}.\n"
            'Write instead:\n    asvi.fit(model, y, effort="thorough")'
        )
    return effort or "auto"


def _max_error(max_error: float | None) -> float:
    if max_error is None:
        return Settings.max_error
    if not 0 < max_error <= 1:
        raise AsviError(
            f"max_error={max_error!r} must be above 0 and at most 1: it is in posterior standard "
            "deviations.\nWrite instead:\n    asvi.fit(model, y, max_error=0.05)"
        )
    return float(max_error)


def _corrected(
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    key: Any,
    plan: Plan,
    max_error: float,
    effort: str,
    begun: float,
) -> Fit | None:
    """The nearest Gaussian over the program's noise, its draws corrected. None without."""
    try:
        problem, run, found = fit_structured(
            model, StructuredNormal(), args, kwargs, key, plan, begun, quick=True
        )
    except FamilyError:
        return None
    correction = correct_gaussian(found, key, max_error, effort)
    if correction.interrupted:
        run.converged, run.message = False, "interrupted: these are the draws so far"
    run.seconds = time.monotonic() - begun
    run.info["family"] = (
        "StructuredNormal, the default, its draws corrected. family=asvi.families.Coupled() trains "
        "another guide"
    )
    return _as_fit(run, problem, correction=correction)


def _why(problem: Problem, found: Run, measured: str | None) -> str:
    """Which family was used, and why, in words; ``measured`` is None where it was asked for."""
    name = name_of(problem.family)
    if measured is None:
        return f"{name}, as asked for"
    if not isinstance(problem.family, Coupled):
        return f"{name}: Coupled measured {measured}. family=asvi.families.Coupled() overrides it"
    roles = roles_of(problem.guide)
    weights = sum(
        np.size(x) for name, x in found.params.items() if is_coupling_weight(roles.get(name))
    )
    if not weights:
        return f"{name}; no two latent numbers need coupling"
    told = f"{name}, the default: {weights:,} weights couple what the data make dependent"
    gain = found.info["coupling_gain"]
    if gain is not None:
        told += f", worth up to {gain:.2g} nat by the curvature at the start"
    if measured:
        told += f"; {measured}"
    return f"{told}. family=asvi.families.ConvexUpdate() leaves them out"


def resume(
    path: str | Path,
    model: Callable,
    /,
    *args: Any,
    family: Family | WholeFamily | Mapping[str, Family] | None = None,
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
    begun = time.monotonic()
    options = {"family": family, "amortize": amortize, "optimizer": optimizer}
    options |= {"discrete": discrete, "progress": progress}
    check_options(model, "asvi.resume", options)
    discrete, progress = discrete or "auto", progress is not False
    key, plan = checkpoints.header(path)
    plan = _with_optimizer(plan, optimizer)
    choice = _asked(family, amortize)
    if choice is None:
        choice = choose_family(model, args, kwargs, discrete, key, plan, progress)
    problem = choice.made or Problem(model, choice.family, args, kwargs, discrete=discrete)
    found = choice.stopped or run(problem, key, plan, progress, path, begun, must_exist=True)
    found.info["family"] = _why(problem, found, choice.measured)
    return _rechecked(_as_fit(found, problem))


def load(
    path: str | Path, model: Callable, /, *args: Any, family: Any = None, **kwargs: Any
) -> Fit:
    """A saved fit of ``model``; it draws without the training data.

    What needs data (``diagnose``, ``to_arviz``, ``model_log_prob``, predictions at the data of the
    fit) wants them again: ``asvi.load(path, model, *data)``, as they were given to :func:`fit`.
    Where the family holds a network of your own, give that family, too: the file has its weights,
    not its code.
    """
    found, problem, correction, about = stored.load(path, model, family, args, kwargs)
    result = _as_fit(found, problem, correction=correction, told=about["diagnosis"])
    return result


def _asked(family: Any, amortize: str | None) -> Choice | None:
    """The family that was asked for; None where it is ours to choose."""
    if amortize is not None:
        if not isinstance(amortize, str):
            raise AsviError(
                f"amortize={amortize!r} is no plate's name.\n"
                'Write instead:\n    asvi.fit(model, y, amortize="point")'
            )
        return Choice(Amortized(plate=amortize, base=family))
    return None if family is None else Choice(family)


def _with_optimizer(plan: Plan, optimizer: Any) -> Plan:
    """The plan with a user's optimiser, whose learning rate is its own affair."""
    if optimizer is None:
        return plan
    if not (callable(getattr(optimizer, "init", None)) and hasattr(optimizer, "update")):
        raise AsviError(
            f"optimizer must be an optax optimiser, got {type(optimizer).__name__}.\n"
            "Write instead:\n    asvi.fit(model, y, optimizer=optax.adamw(1e-2))"
        )
    return replace(plan, optimizer=optimizer, rates=(1.0,), gaussian_rates=(1.0,))


def _as_fit(found: Run, problem: Problem, **more: Any) -> Fit:
    problem.is_fitted = True
    return Fit(**vars(found), problem=problem, **more)


def _rechecked(result: Fit) -> Fit:
    """The result, if fresh draws of its posterior have the ELBO that it reports."""
    for more in range(2):
        # What a rare draw moves is asked again, with more of them.
        key = jax.random.fold_in(jax.random.key(21), more)
        weights = result.guide.importance(key, 1000 * 4**more)[1]
        if check_elbo(result.elbo, result.elbo_se, weights.log_ratios):
            return result
    ratios = weights.log_ratios
    error = float(np.std(ratios) / np.sqrt(len(ratios)))
    raise InternalError(
        f"the ELBO was said to be {result.elbo:.6g} ± {result.elbo_se:.2g}, and is "
        f"{np.mean(ratios):.6g} ± {error:.2g} by fresh draws of the posterior",
        result,
    )
