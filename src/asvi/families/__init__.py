"""Takes prior sites; gives surrogate sites: the variational families and what they are made of.

Families that papers compare with are in :mod:`asvi.families.baselines`.
"""

from asvi.distributions import decompose
from asvi.families import baselines
from asvi.families.amortized.family import Amortized
from asvi.families.amortized.networks import SetEncoder
from asvi.families.convex import ConvexUpdate
from asvi.families.coupled.family import Coupled
from asvi.families.mean_field import MeanField
from asvi.families.parameter import Parameter
from asvi.families.protocol import Family, JointFamily
from asvi.families.structured_normal.family import StructuredNormal

__all__ = [
    "Amortized",
    "ConvexUpdate",
    "Coupled",
    "Family",
    "JointFamily",
    "MeanField",
    "Parameter",
    "SetEncoder",
    "StructuredNormal",
    "baselines",
    "decompose",
]


def __dir__() -> list[str]:
    return __all__
