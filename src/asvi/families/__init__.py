"""Takes prior sites; gives surrogate sites: the variational families and what they are made of."""

import warnings

from asvi.distributions import decompose, register_parameters, register_substitution
from asvi.families.amortized.family import Amortized
from asvi.families.amortized.networks import SetEncoder
from asvi.families.convex import ConvexUpdate
from asvi.families.coupled.family import Coupled
from asvi.families.joint.autoregressive_flow import InverseAutoregressiveFlow
from asvi.families.joint.linear_chain import AR1, LinearCoupling
from asvi.families.joint.multivariate_normal import MultivariateNormal
from asvi.families.mean_field import MeanField
from asvi.families.parameter import Parameter
from asvi.families.protocol import Family, JointFamily
from asvi.families.structured_normal.family import StructuredNormal

__all__ = [
    "AR1",
    "Amortized",
    "ConvexUpdate",
    "Coupled",
    "Family",
    "InverseAutoregressiveFlow",
    "JointFamily",
    "LinearCoupling",
    "MeanField",
    "MultivariateNormal",
    "Parameter",
    "SetEncoder",
    "StructuredNormal",
    "decompose",
    "register_parameters",
    "register_substitution",
]


def __getattr__(name: str):
    """Names of 0.1, for one version more."""
    today = {"WholeFamily": JointFamily, "ContextFamily": Family}.get(name)
    if today is None:
        raise AttributeError(f"module 'asvi.families' has no attribute {name!r}")
    text = f"asvi.families.{name} is now {today.__name__}; the old name goes with the next version."
    warnings.warn(text, FutureWarning, stacklevel=2)
    return today
