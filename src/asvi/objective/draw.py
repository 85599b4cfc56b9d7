"""Takes nothing; gives records of one run of model and guide, and of the draw that it makes."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from asvi.program.run_trace import Trace

__all__ = ["Draw", "RunTerms"]


class Draw(NamedTuple):
    """One draw: terms of the ELBO by site, and scores with their costs of sites that need them."""

    terms: dict[str, jax.Array]
    scores: dict[str, tuple[jax.Array, jax.Array]]
    mutable: dict[str, Any]
    latent: Trace | None = None
    """The guide's sites, where none had to be summed out."""


class RunTerms(NamedTuple):
    """What one run of model and guide gives."""

    latent: Trace
    terms: dict[str, jax.Array]
    """One number for each element."""
    own: dict[str, jax.Array]
    """log q as it stands in the term."""
    mutable: dict[str, Any]
