"""Takes a model and its arguments; gives its structure: sites, parents, plates, control flow."""

from asvi.program.program import Program
from asvi.program.site import Plate, Site
from asvi.program.survey import Start, survey

__all__ = ["Plate", "Program", "Site", "Start", "survey"]
