"""Takes what a fit found; gives a Fit: a posterior with an honest account of how good it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asvi.errors import AsviError
from asvi.fitting.diagnostics.judge import judge
from asvi.fitting.diagnostics.report import Report, Verdict
from asvi.fitting.outcome import Outcome
from asvi.fitting.request import EFFORTS
from asvi.program.program import Program
from asvi.program.random_key import as_key
from asvi.results import inference_data
from asvi.results.arviz_adapter import arviz_adapter
from asvi.results.corrected_posterior import CorrectedPosterior
from asvi.results.display import OnConsole, in_a_line, in_html, in_text
from asvi.results.explanation import Explanation, explain
from asvi.results.pickling import restored, state_of
from asvi.results.posterior import Posterior
from asvi.results.storage import file as stored
from asvi.results.summary import summarize

if TYPE_CHECKING:
    import pandas

__all__ = ["Fit"]


@dataclass(eq=False, repr=False)
class Fit(Outcome):
    """The result of :func:`fit`.

    ``elbo`` and its standard error come from fresh draws that the optimiser never saw. ``losses``
    has the mean negative ELBO of every chunk of steps. ``converged`` says whether the run stopped
    by itself, ``message`` why it stopped. ``print(result)`` shows a table and the verdict.
    """

    stored_diagnosis: str = field(default="", repr=False)
    """The diagnosis in words, of a loaded fit."""
    asked: dict[str, Any] = field(default_factory=dict, repr=False)
    """What :func:`fit` was called with."""

    def __getstate__(self) -> dict[str, Any]:
        return state_of(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        restored(self, state)

    @property
    def model(self) -> Callable:
        """The model that was fitted."""
        return self.problem.model

    @property
    def model_name(self) -> str:
        """What its author calls it."""
        model = self.problem.model
        while isinstance(model, partial):
            model = model.func
        return getattr(model, "__name__", type(model).__name__)

    @property
    def program(self) -> Program:
        """The model's structure."""
        return self.problem.program

    @property
    def family(self) -> Any:
        """The family of the guide, or families by site."""
        return self.problem.family

    @property
    def verdict(self) -> Verdict:
        """Whether the posterior can be trusted: *good*, *usable* or *not trustworthy*."""
        return self.diagnose().verdict

    @cached_property
    def draws(self) -> dict[str, Any]:
        """Draws of the posterior by site, (draws, ...): all that there are, or 1,000."""
        count = 1000 if self.correction is None else len(self.correction.pool)
        return self.posterior.sample(0, count)

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
        >>> result = asvi.fit(model, 3)
        >>> len(result.refine(max_error=0.02).correction.pool) > len(result.correction.pool)
        True
        """
        if not self.asked:
            raise AsviError(
                "refine() goes on from a call of asvi.fit, and this fit was loaded from a file, or "
                "pickled with an optimiser that cannot be.\n"
                'Write instead:\n    asvi.fit(model, *data, effort="thorough")'
            )
        from asvi.results.fit import fit

        asked = dict(self.asked)
        model, (args, kwargs) = asked.pop("model"), self.problem.arguments
        if max_error is not None:
            asked["max_error"] = max_error
        else:
            efforts = EFFORTS[EFFORTS.index(asked["effort"]) + 1 :]
            asked["effort"] = efforts[0] if efforts else EFFORTS[-1]
        return fit(model, *args, **asked, **kwargs)

    @cached_property
    def _report(self) -> Report:
        return judge(self)

    def diagnose(self) -> Report:
        """How good the posterior is, in numbers and in plain words: a :class:`Report`."""
        return self._report

    def explain(self) -> Explanation:
        """What the family does at each site, and which dependencies it misses."""
        return explain(self.posterior)

    def summary(
        self,
        var_names: str | Iterable[str] | None = None,
        ci_prob: float = 0.9,
        ci_kind: str = "eti",
    ) -> pandas.DataFrame:
        """A data frame with a row for every number of the posterior; its columns are ArviZ's.

        ``mean``, ``sd``, the ends of the interval (``eti90_lb``, ``eti90_ub``, or of the shortest
        one with ``ci_kind="hdi"``), the errors of mean and sd (``mcse_mean``, ``mcse_sd``), and as
        how many independent draws they are worth (``ess_bulk``, ``ess_tail``). Draws that were
        moved have an ``r_hat`` of islands of particles that never met; draws that were weighted, or
        are a guide's, a ``k_hat``. The verdict goes by the same numbers.

        >>> import numpyro, numpyro.distributions as dist, asvi
        >>> def model(y):
        ...     rate = numpyro.sample("rate", dist.Exponential(1.0))
        ...     numpyro.sample("y", dist.Poisson(rate), obs=y)
        >>> frame = asvi.fit(model, 3).summary()
        >>> list(frame.columns)[:4], bool(abs(frame.loc["rate", "mean"] - 2.0) < 0.1)
        (['mean', 'sd', 'eti90_lb', 'eti90_ub'], True)
        """
        return summarize(self, var_names, ci_prob, ci_kind)

    def to_arviz(
        self,
        num_samples: int = 1000,
        rng_key: Any = None,
        groups: Any = None,
        coords: Any = None,
        dims: Any = None,
    ) -> Any:
        """The fit as ArviZ takes it: an ``InferenceData`` (ArviZ 0.x) or ``DataTree`` (1.x).

        ``data["posterior"]`` is right in both. Chains are groups of particles that never met, or
        four parts of independent draws.

        :param num_samples: draws in all, at least.
        :param groups: which of the groups, of ``posterior``, ``sample_stats``,
            ``posterior_predictive``, ``log_likelihood``, ``prior``, ``prior_predictive``,
            ``observed_data`` and ``constant_data``; all without it.
        :param coords: labels along axes, by the name of the axis. Without them, those that the
            data bring along: an index of pandas, coordinates of xarray, categories.
        :param dims: names of axes, by the name of the variable. Without them, those of plates, and
            ``infer={"event_dims": [...]}`` at a site.

        >>> import numpy as np, numpyro, numpyro.distributions as dist, asvi
        >>> def model(y):
        ...     with numpyro.plate("school", 3):
        ...         theta = numpyro.sample("theta", dist.Normal(0.0, 10.0))
        ...         numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)
        >>> result = asvi.fit(model, np.arange(3.0))
        >>> data = result.to_arviz(coords={"school": ["A", "B", "C"]})
        >>> dict(data["posterior"]["theta"].sizes)
        {'chain': 4, 'draw': 250, 'school': 3}
        """
        self.problem.arguments.require_data("to_arviz()")
        return inference_data.to_arviz(
            self.posterior, self, num_samples, as_key(rng_key), groups, coords, dims
        )

    def arviz_adapter(self, num_samples: int = 1000, rng_key: Any = None) -> Any:
        """What ``arviz.from_numpyro`` takes (ArviZ 1.x); see :meth:`to_arviz` for all at once.

        ``az.from_numpyro(result.arviz_adapter(), log_likelihood=True)``.
        """
        self.problem.arguments.require_data("arviz_adapter()")
        return arviz_adapter(self.posterior, num_samples, as_key(rng_key))

    def save(self, path: str | Path, model_path: str | None = None) -> None:
        """Write the fit to a file; :func:`load` reads it, and needs no data to draw.

        ``model_path``, like ``"my_model.py:model"``, lets ``asvi report`` find the model again.
        """
        stored_diagnosis = self.stored_diagnosis or (
            str(self.diagnose()) if self.problem.arguments.has_data else ""
        )
        about = {"diagnosis": stored_diagnosis, "model_path": model_path}
        stored.save(path, self.guide, self, self.correction, about)

    def __str__(self) -> str:
        return in_text(self)

    def __repr__(self) -> str:
        return in_a_line(self)

    def __rich__(self) -> OnConsole:
        return OnConsole(self)

    def _repr_html_(self) -> str:
        return in_html(self)
