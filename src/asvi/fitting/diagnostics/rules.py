"""Takes measures of draws; gives what is said of them, by rules of a measure and a threshold.

A rule fits where its measure is above its threshold; NaN is above none. Of rules that stand
together the first that fits speaks. A diagnostic of its own is a rule more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Rule", "first_that_fits", "fitting_rules"]

Measures = TypeVar("Measures")


@dataclass(frozen=True)
class Rule(Generic[Measures]):
    """What is said where a measure is above a threshold, and the verdict that goes with it."""

    measure: Callable[[Measures], float]
    """A number, or a condition (with a threshold of 0)."""
    threshold: float
    words: Callable[[Measures], str]
    verdict: str = ""

    def fits(self, measures: Measures) -> bool:
        return bool(self.measure(measures) > self.threshold)


def first_that_fits(rules: Iterable[Rule[Measures]], measures: Measures) -> Rule[Measures] | None:
    """The first rule that fits; None where none does."""
    return next((rule for rule in rules if rule.fits(measures)), None)


def fitting_rules(
    groups: Iterable[Sequence[Rule[Measures]]], measures: Measures
) -> list[Rule[Measures]]:
    """Of each group of rules the first that fits."""
    firsts = (first_that_fits(group, measures) for group in groups)
    return [rule for rule in firsts if rule is not None]
