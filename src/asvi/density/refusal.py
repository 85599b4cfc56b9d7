"""Takes nothing; gives the record of why something is not to be had."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Refusal"]


@dataclass(frozen=True)
class Refusal:
    """Why a way is not for this model, or this call: an answer, and no error."""

    why: str
