"""Takes parameters of a Gaussian over numbers in core and blocks; gives its factor's products.

A is lower triangular in the core and in each block, and has rows of blocks in columns of the core:
:math:`z = \\mu + A\\epsilon`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from asvi.density.block_structure import BlockStructure
from asvi.distributions.standardize import diagonal

__all__ = ["diagonal_of", "noise_of", "spread"]


def spread(structure: BlockStructure, params: dict[str, Any], noise: jax.Array) -> jax.Array:
    """A times noise (n,)."""
    core = params["core"] @ noise[structure.core]
    if not structure.groups:
        return core
    found = jnp.zeros_like(noise).at[structure.core].set(core)
    for k, group in enumerate(structure.groups):
        own = jnp.einsum("cij,cj->ci", params[f"cell{k}"], noise[group])
        found = found.at[group].set(own + params[f"down{k}"] @ noise[structure.core])
    return found


def noise_of(structure: BlockStructure, params: dict[str, Any], moved: jax.Array) -> jax.Array:
    """The noise (n,) that :func:`spread` makes this of."""
    core = solve_triangular(params["core"], moved[structure.core], lower=True)
    if not structure.groups:
        return core
    found = jnp.zeros_like(moved).at[structure.core].set(core)
    for k, group in enumerate(structure.groups):
        rest = moved[group] - params[f"down{k}"] @ core
        solve = jax.vmap(lambda a, b: solve_triangular(a, b, lower=True))
        found = found.at[group].set(solve(params[f"cell{k}"], rest))
    return found


def diagonal_of(structure: BlockStructure, params: dict[str, Any]) -> jax.Array:
    """Diagonal of A, (n,)."""
    core = diagonal(params["core"])
    if not structure.groups:
        return core
    found = jnp.zeros(structure.size, core.dtype).at[structure.core].set(core)
    for k, group in enumerate(structure.groups):
        found = found.at[group].set(diagonal(params[f"cell{k}"]))
    return found
