"""Takes prior sites; gives surrogate sites: the variational families and what they are made of."""

from asvi.families import catalogue, wrappers  # noqa: F401  (they fill the registry)
from asvi.families.amortized import Amortized
from asvi.families.base import ContextFamily, Family, Parameter
from asvi.families.chains import AR1, LinearCoupling
from asvi.families.convex import ConvexUpdate
from asvi.families.coupled import Coupled
from asvi.families.encoders import SetEncoder
from asvi.families.mean_field import MeanField
from asvi.families.parameters import decompose, register_parameters
from asvi.families.structured import StructuredNormal
from asvi.families.substitutions import register_substitution
from asvi.families.whole import InverseAutoregressiveFlow, MultivariateNormal, WholeFamily

__all__ = [
    "AR1",
    "Amortized",
    "ContextFamily",
    "ConvexUpdate",
    "Coupled",
    "Family",
    "InverseAutoregressiveFlow",
    "LinearCoupling",
    "MeanField",
    "MultivariateNormal",
    "Parameter",
    "SetEncoder",
    "StructuredNormal",
    "WholeFamily",
    "decompose",
    "register_parameters",
    "register_substitution",
]
