"""Takes an ordinary NumPyro model; gives a posterior that keeps the model's own structure.

``asvi.fit(model, *data)`` is all that most need. The names, by stage of the pipeline
``model → program → family → guide → objective → fit → posterior``:

- :class:`Program`, :class:`Site`: the structure of a model; :class:`Interpretation`: a run of it
  that reaches into its loops and branches; :func:`check`: the errors of a fit, without one;
- :mod:`asvi.families`: what a site's surrogate is made of; :func:`register_parameters`,
  :func:`register_stand_in` for distributions of your own;
- :class:`AutoASVI`, :func:`autoguide`: the guide;
- :class:`ELBO`: the loss; :func:`natural_units`: an optimiser with the steps that suit the
  families;
- :func:`fit`, :class:`Training`, :class:`Fit`, :func:`load`: the one call and its result;
- :func:`keep_programs`: compiled programs kept for later processes;
- :class:`Posterior`: what was fitted; :class:`Report`, :class:`Verdict`: how good it is;
  :class:`Explanation`: what the guide holds; :mod:`asvi.plot` draws all of it;
- :mod:`asvi.errors`: errors and warnings; :mod:`asvi.tasks`: embedded problems with exact answers.

What happens on the way is logged by the logger ``asvi``: at INFO what was tried and why it ended,
at DEBUG how long each part took.
"""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING

from asvi import errors, families, tasks
from asvi.distributions import register_parameters, register_stand_in
from asvi.errors import (
    AsviError,
    AsviWarning,
    DataWarning,
    FamilyError,
    InternalError,
    LossError,
    ModelError,
    PerformanceWarning,
    SiteError,
    StoredFitError,
    VerdictWarning,
)
from asvi.fitting.diagnostics.report import Report, Verdict
from asvi.fitting.training.asked import Training
from asvi.fitting.training.step_sizes import natural_units
from asvi.guide.auto_asvi import AutoASVI, autoguide
from asvi.objective.elbo import ELBO
from asvi.program.compiling import keep_programs
from asvi.program.control_flow.interpretation import Interpretation
from asvi.program.program import Program
from asvi.program.site import Site
from asvi.results import old_calls, old_names, old_paths
from asvi.results.explanation import Explanation
from asvi.results.fit import Fit, check, fit, load
from asvi.results.fit import resume as resume
from asvi.results.posterior import Posterior
from asvi.results.versions import show_versions

__version__ = _version("asvi")

__all__ = [
    "ELBO",
    "AsviError",
    "AsviWarning",
    "AutoASVI",
    "DataWarning",
    "Explanation",
    "FamilyError",
    "Fit",
    "InternalError",
    "Interpretation",
    "LossError",
    "ModelError",
    "PerformanceWarning",
    "Posterior",
    "Program",
    "Report",
    "Site",
    "SiteError",
    "StoredFitError",
    "Training",
    "Verdict",
    "VerdictWarning",
    "autoguide",
    "check",
    "errors",
    "families",
    "fit",
    "keep_programs",
    "load",
    "natural_units",
    "register_parameters",
    "register_stand_in",
    "show_versions",
    "tasks",
]

old_calls.install()
old_paths.install()

if TYPE_CHECKING:
    from asvi.results import plot as plot


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "plot"])


def _module(name: str):
    """:mod:`asvi.plot`, which waits for matplotlib until it is asked for, and modules of 0.1."""
    if name in old_names.MODULES:
        return import_module(f"asvi.{name}")
    raise AttributeError(f"module 'asvi' has no attribute {name!r}")


__getattr__ = old_calls.getter_of("asvi", _module)
