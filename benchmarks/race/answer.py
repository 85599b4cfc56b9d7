"""Takes what a method found; gives the form in which the race measures it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Refused(Exception):
    """The method cannot take this model. The first line of the text is kept."""


@dataclass
class Seconds:
    """Seconds by the clock, and those of the processor: a busy machine lengthens the first."""

    wall: float = 0.0
    cpu: float = 0.0

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(self.wall - other.wall, self.cpu - other.cpu)


@contextmanager
def stopwatch() -> Iterator[Seconds]:
    """Its value has the seconds of the block, once the block has ended."""
    found = Seconds()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield found
    finally:
        found.wall, found.cpu = time.perf_counter() - wall, time.process_time() - cpu


@dataclass
class Answer:
    """What a method found.

    :param draws: by site, the draws' axis first, as NumPy arrays.
    :param verdict: what the method says of its own draws, where it says anything.
    :param diagnosis: seconds of the call that went into judging the draws; they are shown apart.
    :param extra: other numbers that are worth keeping.
    """

    draws: dict[str, np.ndarray]
    log_evidence: float | None = None
    log_evidence_se: float | None = None
    verdict: str | None = None
    diagnosis: Seconds = field(default_factory=Seconds)
    extra: dict[str, Any] = field(default_factory=dict)


def as_numpy(draws: dict[str, Any]) -> dict[str, np.ndarray]:
    """Draws on the host: a method's seconds end when its last number is there."""
    return {site: np.asarray(x) for site, x in draws.items()}
