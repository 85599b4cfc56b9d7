"""Takes NumPyro's distributions; gives their parameters, stand-ins, and standard noise."""

from asvi.distributions import catalogue, wrappers  # they fill the registry
from asvi.distributions.registry import decompose, register_parameters
from asvi.distributions.substitutions import register_stand_in

__all__ = ["catalogue", "decompose", "register_parameters", "register_stand_in", "wrappers"]
