"""Takes a start's settings; gives them checked: what joint guides have in common."""

from __future__ import annotations

from numpyro.infer.initialization import init_to_uniform

from asvi.errors import FamilyError

__all__ = ["at_zero", "positive_scale"]


def positive_scale(init_scale: float) -> float:
    """``init_scale``, if it can be the standard deviation of a start."""
    if not init_scale > 0:
        raise FamilyError(f"init_scale must be positive, got {init_scale}; write init_scale=0.1.")
    return init_scale


def at_zero():
    """Start where every unconstrained number is 0."""
    return init_to_uniform(radius=0)
