"""Takes an ordinary NumPyro model; gives a posterior that keeps the model's own structure.

``asvi.fit(model, *data)`` is all that most need. The names, by stage of the pipeline
``model → program → family → guide → objective → fit → posterior``:

- :class:`Program`, :class:`Site`: the structure of a model; :class:`Interpretation`: a run of it
  that reaches into its loops and branches;
- :mod:`asvi.families`: what a site's surrogate is made of; :func:`register_parameters`,
  :func:`register_substitution` for distributions of your own;
- :class:`AutoASVI`, :func:`autoguide`: the guide;
- :class:`ELBO`: the loss; :func:`in_units`: an optimiser with the steps that suit the families;
- :func:`fit`, :class:`Fit`, :func:`load`, :func:`resume`: the one call and its result;
- :func:`keep_programs`: compiled programs kept for later processes;
- :class:`Posterior`: what was fitted; :mod:`asvi.plot` draws it;
- :mod:`asvi.tasks`: embedded problems with exact answers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from asvi import families, tasks
from asvi.errors import AsviError, FamilyError, InternalError, LossError, ModelError, SiteError
from asvi.families import register_parameters, register_substitution
from asvi.fitting.training.step_sizes import in_units
from asvi.guide.auto_asvi import AutoASVI, autoguide
from asvi.objective.elbo import ELBO
from asvi.program.compiling import keep_programs
from asvi.program.control_flow.interpretation import Interpretation
from asvi.program.program import Program
from asvi.program.site import Site
from asvi.results import old_names
from asvi.results.fit import Fit, fit, load, resume
from asvi.results.posterior import Posterior

__version__ = "0.1.0"

__all__ = [
    "ELBO",
    "AsviError",
    "AutoASVI",
    "FamilyError",
    "Fit",
    "InternalError",
    "Interpretation",
    "LossError",
    "ModelError",
    "Posterior",
    "Program",
    "Site",
    "SiteError",
    "autoguide",
    "families",
    "fit",
    "in_units",
    "keep_programs",
    "load",
    "register_parameters",
    "register_substitution",
    "resume",
    "tasks",
]

old_names.install()

if TYPE_CHECKING:
    from asvi.results import plot as plot


def __getattr__(name: str):
    """:mod:`asvi.plot`, which waits for matplotlib until it is asked for, and modules of 0.1."""
    if name in old_names.MOVED:
        return import_module(f"asvi.{name}")
    raise AttributeError(f"module 'asvi' has no attribute {name!r}")
