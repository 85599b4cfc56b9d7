"""Marks for laws that are held by many cases: some of them always run, all in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

__all__ = ["all_but", "every"]


def every(step: int, cases: Iterable[Any]) -> list[Any]:
    """The cases of one argument: all but each ``step``-th are slow, the first is not."""
    return [case if k % step == 0 else _slow(case) for k, case in enumerate(cases)]


def all_but(slow: Sequence[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases of one argument, these among them slow: by the case, or by a function's name."""
    return [
        _slow(case) if case in slow or getattr(case, "__name__", None) in slow else case
        for case in cases
    ]


def _slow(case: Any) -> Any:
    values = case if type(case) is tuple else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
