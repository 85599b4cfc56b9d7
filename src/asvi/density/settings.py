"""Takes nothing; gives the limits of the density's stages: how large, how long, by which way.

A work is counted in numbers that operations make (:mod:`asvi.density.cost`); NumPy makes about
10⁹ of them in a second on one core. Limits that weigh NumPy against the compiler were chosen by the
time of whole fits in fresh processes, on two cores.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["BlockSettings", "DensitySettings", "EnumerationSettings", "EvaluatorSettings"]


@dataclass(frozen=True)
class BlockSettings:
    """How large the blocks of a Hessian may be."""

    max_dense_numbers: int = 250
    """Latent numbers of a model that needs no blocks: a Hessian has their square."""
    max_shared_numbers: int = 250
    """Latent numbers that all groups share, for the same reason."""
    max_chain_numbers: int = 150
    """Latent numbers of a scan: of longer ones no look-back holds enough for a Gaussian."""
    small_shared_numbers: int = 64
    """Latent numbers up to which small groups are taken for shared ones."""
    max_block_numbers: int = 32
    """Latent numbers of one block: each block has a Hessian of its own."""
    max_numbers: int = 200_000
    """Latent numbers in all: a vector of each of them is held for every draw."""
    max_cross_entries: float = 4e6
    """Entries between blocks and what they share: 32 MB."""
    max_factor_ops: float = 1e9
    """Multiply-adds for columns of blocks that shared numbers listen to: about a second."""


@dataclass(frozen=True)
class EvaluatorSettings:
    """How a density is evaluated: by NumPy or by the compiler, and at how many points at once."""

    use_numpy: bool = True
    """Whether NumPy evaluates what is small; without it, everything is compiled.

    Over eight everyday models a first call then takes 2.4 s at the median in place of 0.67 s, a
    later one as long (``python -m benchmarks.numpy_evaluator``)."""
    max_points: int = 64
    """Points of one call for a mean Hessian: more say hardly more of a mean."""
    min_points: int = 16
    """Points of one call, as few as there may be: fewer say too little."""
    max_draw_numbers: int = 640_000
    """Latent numbers of all points of one call: large models have fewer points."""
    max_block_leak: float = 0.1
    """Root mean square of what blocks have among each other, beside a block's own curvature."""
    max_leak_nat: float = 0.05
    """Nats that may be lost by leaving that out, where a Hessian without blocks is to be had."""
    max_parallel_numbers: int = 2**22
    """Numbers that a compiled program holds at once for columns of a Hessian: 32 MB."""
    max_numpy_cost: float = 25_000
    """Directions times numbers of a point, below which NumPy is done before the compiler is."""
    numpy_batch_cost: float = 100_000
    """The same, of as many points as NumPy evaluates in one go."""
    points_in_cache: int = 64
    """Points that are evaluated together: on a processor, what they make stays at hand."""
    points_per_call: int = 512
    """Points of one call of a compiled program for slopes: calls cost time by themselves."""
    call_work: float = 5e5
    """Work that NumPy does in the time that a call takes, whatever its size."""
    max_slope_work: float = 6e8
    """Work on slopes that NumPy does in the time that a compiler takes."""
    max_curvature_work: float = 1e8
    """Work on curvature before the compiler is asked, which may not be needed at all."""
    max_call_work: float = 3_500_000
    """Work of one call that NumPy does, many times, before the compiler is done."""
    draws_per_call: int = 256
    """Draws that are run in one call where something is asked of a posterior."""
    operation_work: float = 2000.0
    """Work that NumPy does in the time that it takes to begin with an operation."""
    max_draws_work: float = 5e8
    """Work on what is asked of a posterior, before a compiler would be done."""
    max_unrolled_steps: int = 16
    """Steps of a loop that is written out for NumPy: it is then no loop to differentiate."""
    max_while_rounds: int = 1000
    """Rounds of a loop without a known end, from which on NumPy leaves it to the compiler."""


@dataclass(frozen=True)
class EnumerationSettings:
    """How much may be done to sum discrete sites out."""

    max_runs: int = 1024
    """Runs of the model for one density."""
    max_elements: int = 20_000
    """Elements of discrete sites: their order is found in Python."""
    max_densities: int = 100_000
    """Log densities that depend on discrete elements: each is looked at in Python."""
    small_table: int = 4096
    """Entries of an element's table with two neighbours, up to which it is summed with others."""
    max_table: int = 20_000
    """Entries of one element's table."""
    max_entries: int = 4_000_000
    """Entries of all tables: 32 MB."""
    max_operations: int = 50_000
    """Operations of the model that are followed, those of loops counted at each step."""
    max_index_entries: int = 1_000_000
    """Entries of an index that is computed to see what it picks."""


@dataclass(frozen=True)
class DensitySettings:
    """All of them, as a model carries them (:class:`~asvi.density.bound_model.BoundModel`)."""

    blocks: BlockSettings = field(default_factory=BlockSettings)
    evaluator: EvaluatorSettings = field(default_factory=EvaluatorSettings)
    enumeration: EnumerationSettings = field(default_factory=EnumerationSettings)
