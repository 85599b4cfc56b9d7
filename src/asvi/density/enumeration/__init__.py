"""Discrete sites summed out of a model's density, exactly, and drawn given all others."""

from asvi.density.enumeration.enumerated import Enumerated, NotEnumerable, enumerate_sites

__all__ = ["Enumerated", "NotEnumerable", "enumerate_sites"]
