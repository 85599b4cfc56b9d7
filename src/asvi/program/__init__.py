"""Takes a model and its arguments; gives its structure: sites, parents, plates, control flow."""

from asvi.program.program import Plate, Program, Site, Start, survey

__all__ = ["Plate", "Program", "Site", "Start", "survey"]
