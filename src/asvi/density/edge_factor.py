"""Takes a precision matrix and who listens to whom; gives the factor of the closest such Gaussian.

Noise makes latent numbers as :math:`u = m + A\\epsilon`, where A has an entry wherever a number
listens to another. For a target with precision H the closest such Gaussian, by KL(q‖p), has for
column j, over the rows S that listen to j,

.. math:: A_{Sj} = x / \\sqrt{x_j}, \\qquad x = H_{SS}^{-1} e_j,

which is the inverse of H's Cholesky factor where everybody listens to everybody, and
:math:`1/\\sqrt{H_{jj}}` where nobody does.
"""

from __future__ import annotations

import numpy as np

from asvi.density.arrowhead import Arrowhead, sum_products
from asvi.density.settings import BlockSettings

__all__ = ["factor_on_edges"]


def factor_on_edges(
    precision: Arrowhead, edge_mask: Arrowhead, settings: BlockSettings = BlockSettings()
) -> Arrowhead:
    """A of the closest Gaussian that the edges allow to one of this precision.

    ``edge_mask`` says who listens to whom: the number of the row to that of the column.
    """
    if not precision.structure.groups:
        return Arrowhead(precision.structure, _full(precision.core, edge_mask.core))
    core, down = _core_columns(precision, edge_mask)
    blocks = range(len(precision.blocks))
    found = [_block_columns(precision, edge_mask, k, settings) for k in blocks]
    right, blocks = zip(*found, strict=True)
    return Arrowhead(precision.structure, core, down, right, blocks)


def _full(precision: np.ndarray, edge_mask: np.ndarray) -> np.ndarray:
    """The same of a full matrix."""
    listening = [np.flatnonzero(column) for column in edge_mask.T]
    order = np.argsort([-len(rows) for rows in listening], kind="stable")
    if all(len(listening[j]) == len(order) - k for k, j in enumerate(order)):
        # Everybody listens to everybody before him: the inverse of a Cholesky factor from the end.
        last_first = np.ix_(order[::-1], order[::-1])
        try:
            found = np.zeros_like(precision)
            found[last_first] = np.linalg.inv(np.linalg.cholesky(precision[last_first])).T
            return found
        except np.linalg.LinAlgError:
            pass  # nearly singular: each column by itself, with a little added
    found = np.zeros_like(precision)
    for j, rows in enumerate(listening):
        found[rows, j] = _column(precision[np.ix_(rows, rows)], rows == j)
    return found


def _column(block: np.ndarray, unit: np.ndarray) -> np.ndarray:
    size = len(unit)
    column = np.linalg.solve(block + 1e-12 * np.trace(block) * np.eye(size) / size, 1.0 * unit)
    return column / np.sqrt(max(column[unit][0], 1e-300))


def _core_columns(
    precision: Arrowhead, edge_mask: Arrowhead
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Columns of the core: rows of the core, and of blocks.

    Blocks that listen are eliminated. Columns that the same blocks listen to have that in common.
    """
    core = np.zeros_like(precision.core)
    down = tuple(np.zeros_like(x) for x in precision.down)
    alike: dict[bytes, list[int]] = {}
    for j in range(len(core)):
        key = b"".join(np.packbits(x[:, :, j]).tobytes() for x in edge_mask.down)
        alike.setdefault(key, []).append(j)
    for columns in alike.values():
        left, ways = precision.core, []
        for k, block in enumerate(precision.blocks):
            kept = edge_mask.down[k][:, :, columns[0]]
            own = np.where(kept[:, :, None] & kept[:, None, :], block, 0.0)
            own = own + (~kept)[:, :, None] * np.eye(block.shape[1])
            across = kept[:, :, None] * precision.down[k]
            ways.append(np.linalg.solve(own, across))
            left = left - sum_products(np.swapaxes(across, 1, 2), ways[k])
        for j in columns:
            rows = np.flatnonzero(edge_mask.core[:, j])
            core[rows, j] = _column(left[np.ix_(rows, rows)], rows == j)
            for k, way in enumerate(ways):
                down[k][:, :, j] = -way @ core[:, j]
    return core, down


def _block_columns(
    precision: Arrowhead, edge_mask: Arrowhead, k: int, settings: BlockSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Columns of a group's blocks: rows of the core, if any listens, and of the same block."""
    block, size = precision.blocks[k], precision.blocks[k].shape[1]
    some = np.flatnonzero(edge_mask.right[k].any((0, 2)))
    if len(block) * (size + len(some)) ** 3 > settings.max_factor_ops:
        some = some[:0]  # these edges go unused
    beside = np.broadcast_to(precision.core[np.ix_(some, some)], (len(block), *2 * (len(some),)))
    upper = np.concatenate([block, precision.down[k][:, :, some]], 2)
    lower = np.concatenate([precision.right[k][:, some], beside], 2)
    whole = np.concatenate([upper, lower], 1)
    right = np.zeros_like(precision.right[k])
    blocks = np.zeros_like(block)
    for j in range(size):
        kept = np.concatenate([edge_mask.blocks[k][:, :, j], edge_mask.right[k][:, some, j]], 1)
        part = np.where(kept[:, :, None] & kept[:, None, :], whole, 0.0)
        part = part + (~kept)[:, :, None] * np.eye(kept.shape[1])
        unit = np.zeros((kept.shape[1], 1))
        unit[j] = 1.0
        column = np.linalg.solve(part, np.broadcast_to(unit, (len(part), *unit.shape)))[..., 0]
        column = column / np.sqrt(np.maximum(column[:, j], 1e-300))[:, None]
        blocks[:, :, j] = column[:, :size]
        right[:, some, j] = column[:, size:]
    return right, blocks
