"""Takes nothing; gives how much coupling is affordable, and how its weights move."""

from __future__ import annotations

from dataclasses import dataclass

from asvi.families.settings import ParameterSettings

__all__ = ["CouplingSettings"]


@dataclass(frozen=True)
class CouplingSettings(ParameterSettings):
    """Numbers of :class:`~asvi.families.Coupled`; edges are weights between two latent numbers."""

    max_edges: int = 20_000
    """Edges, in all, that any model may have: a step of the optimiser stays cheap."""
    edges_per_number: int = 6
    """Edges a latent number that large models may have: cost stays linear in their size."""
    max_block_edges: int = 100_000
    """Edges between what groups have in common and the groups, beside ``max_edges``."""
    max_own_share: float = 0.5
    """Of the edges, that the numbers of a site may spend on each other, and steps of a chain."""
    max_globals: int = 16
    """Numbers of low-dimensional sites that steer a site."""
    max_member: int = 4
    """Numbers of a plate's member that steer another number of the same member."""
    window: int | None = None
    """Steps of a chain that are looked back on; None: as many as fit."""
    max_warped_numbers: int = 2_000
    """Latent numbers of a model whose noise is skewed: beyond, every weight per number is felt."""
    max_product_numbers: int = 6
    """Numbers whose products and tails are features too, and that have a spline."""
    max_skew: float = 0.95
    """Of the noise: at 1 it would have no inverse."""
    max_gated_numbers: int = 64
    """Numbers of a site that give each other as much as globals say: a triangle for each draw."""
    global_step: float = 0.25
    """Step of weights that steer a gate or a data term: the gate's own gain is 4."""
    spline_step: float = 0.3
    """Step of logarithms of a spline's heights and slopes: each is felt by a few draws only."""
