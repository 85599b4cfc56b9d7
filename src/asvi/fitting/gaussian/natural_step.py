"""Takes a Gaussian and the density's slope and curvature averaged over it; gives the next Gaussian.

With :math:`\\bar g` and :math:`\\bar H` the gradient and negative Hessian of the log density,
averaged over draws of N(m, P⁻¹), a step of the natural gradient of length ρ is

.. math:: P \\leftarrow L\\,h\\big(I + \\rho L^{-1}(\\bar H - P)L^{-\\top}\\big)L^\\top,
   \\qquad P = LL^\\top,\\qquad m \\leftarrow m + \\rho P^{-1} \\bar g.

h takes eigenvalues by their size, and none below a half: :math:`h(\\lambda) = |\\lambda|`, and
:math:`(1 + \\lambda^2) / 2` where that is below 1. P stays positive (as in Lin, Schmidt and Khan
2020), variances grow to twice themselves at most, and precision grows in one step to what it is to
be.

A matrix of a core and blocks keeps its pattern: L has it, with blocks first, and so has
:math:`L^{-1} H L^{-\\top}`. The usual correction, :math:`\\tfrac{\\rho^2}{2}(\\bar H-P)P^{-1}(\\bar
H-P)`, has entries between blocks: without them P is not positive where blocks are nearly known from
the core.
"""

from __future__ import annotations

from math import prod

import numpy as np

from asvi.density.arrowhead import Arrowhead, sum_products

__all__ = ["natural_step"]


def natural_step(
    mean: np.ndarray, precision: Arrowhead, slope: np.ndarray, hessian: Arrowhead, length: float
) -> tuple[np.ndarray, Arrowhead] | None:
    """Mean and precision after one step; None where numbers run out of digits."""
    try:
        root = cholesky(precision)
        aim = within(root, precision + length * (hessian - precision)).symmetric()
        new = around(root, aim.with_eigenvalues(_by_size).to_arrowhead()).symmetric()
        step = new.solve(slope)
    except np.linalg.LinAlgError:
        return None
    return (mean + length * step, new) if new.is_positive() else None


def _by_size(ratio: np.ndarray) -> np.ndarray:
    """Ratios of a new precision to the old, made positive."""
    size = np.abs(ratio)
    return np.where(size > 1, size, 0.5 * (1 + size**2))


def cholesky(matrix: Arrowhead) -> Arrowhead:
    """L with L Lᵀ = M, blocks first: lower triangles, and nothing in the columns of the core."""
    roots = tuple(np.linalg.cholesky(block) for block in matrix.blocks)
    rest, right = matrix.core, []
    for root, down in zip(roots, matrix.down, strict=True):
        way = np.linalg.solve(root, down)
        rest = rest - sum_products(np.swapaxes(way, 1, 2), way)
        right.append(np.swapaxes(way, 1, 2))
    none = tuple(np.zeros_like(down) for down in matrix.down)
    return Arrowhead(matrix.structure, np.linalg.cholesky(rest), none, tuple(right), roots)


def around(root: Arrowhead, middle: Arrowhead) -> Arrowhead:
    """L M Lᵀ, symmetric as M is."""
    core, down, blocks = root.core @ middle.core @ root.core.T, [], []
    for own, across, block, below in zip(
        root.blocks, root.right, middle.blocks, middle.down, strict=True
    ):
        up, half = np.swapaxes(across, 1, 2), own @ block
        blocks.append(half @ np.swapaxes(own, 1, 2))
        down.append(half @ up + own @ (below @ root.core.T))
        mixed = sum_products(across, below) @ root.core.T
        core = core + mixed + mixed.T + sum_products(across, block @ up)
    right = tuple(np.swapaxes(x, 1, 2) for x in down)
    return Arrowhead(root.structure, core, tuple(down), right, tuple(blocks))


def within(root: Arrowhead, outer: Arrowhead) -> Arrowhead:
    """M with L M Lᵀ = ``outer``, symmetric as that is."""
    rest, down, blocks = outer.core, [], []
    for own, across, block, below in zip(
        root.blocks, root.right, outer.blocks, outer.down, strict=True
    ):
        up, half = np.swapaxes(across, 1, 2), np.linalg.solve(own, block)
        inner = np.linalg.solve(own, np.swapaxes(half, 1, 2))
        left = np.linalg.solve(own, below)
        mixed = sum_products(across, left)
        rest = rest - mixed - mixed.T + sum_products(across, inner @ up)
        down.append(_after(root, left - inner @ up))
        blocks.append(inner)
    right = tuple(np.swapaxes(x, 1, 2) for x in down)
    core = _after(root, _after(root, rest).T)
    return Arrowhead(root.structure, core, tuple(down), right, tuple(blocks))


def _after(root: Arrowhead, x: np.ndarray) -> np.ndarray:
    """x C⁻ᵀ with the core's C of L, for (..., core)."""
    rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])
    return np.linalg.solve(root.core, rows.T).T.reshape(x.shape)
