"""Takes nothing; gives the error of an operation that NumPy has no rule for."""

from __future__ import annotations

__all__ = ["NoNumpyRule"]


class NoNumpyRule(NotImplementedError):
    """An operation, or a type of numbers, that only the compiler knows."""
