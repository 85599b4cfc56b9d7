"""Takes an ordinary NumPyro model; gives a posterior that keeps the model's own structure.

The names, by stage of the pipeline ``model → program → family → guide → objective``:

- :class:`Program`, :class:`Site`: the structure of a model;
- :mod:`asvi.families`: what a site's surrogate is made of; :func:`register_parameters`,
  :func:`register_substitution` for distributions of your own;
- :class:`AutoASVI`: the guide;
- :class:`ELBO`: the loss.
"""

from asvi import families, tasks
from asvi.errors import AsviError, FamilyError, LossError, ModelError, SiteError
from asvi.families import register_parameters, register_substitution
from asvi.fit import Fit, fit, load, resume
from asvi.guide import AutoASVI, autoguide
from asvi.objective import ELBO
from asvi.posterior import Posterior
from asvi.program import Program, Site

__version__ = "0.1.0"

__all__ = [
    "ELBO",
    "AsviError",
    "AutoASVI",
    "FamilyError",
    "Fit",
    "LossError",
    "ModelError",
    "Posterior",
    "Program",
    "Site",
    "SiteError",
    "autoguide",
    "families",
    "fit",
    "load",
    "register_parameters",
    "register_substitution",
    "resume",
    "tasks",
]
