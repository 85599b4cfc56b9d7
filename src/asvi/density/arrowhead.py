"""Takes blocks; gives a square matrix that is full in a core, and in blocks elsewhere.

.. math::

    M = \\begin{pmatrix} C & R \\\\ D & B \\end{pmatrix}

with C over the core, B full within each block and 0 between two blocks. Solving, determinants and
products cost as many operations as there are blocks: B is eliminated block by block, and what is
left is the *Schur complement* :math:`S = C - R B^{-1} D`, a matrix of the core's size. Without
blocks, it is C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from asvi.density.block_structure import BlockStructure

__all__ = ["Arrowhead", "ArrowheadEigen", "sum_products"]

Blocks = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Arrowhead:
    """A square matrix over the numbers of ``structure``; each tuple has an array for each group.

    >>> structure = BlockStructure(np.array([0]), (np.array([[1], [2]]),))
    >>> matrix = Arrowhead.of_entries(structure, lambda i, j: np.where(i == j, 4.0, 1.0))
    >>> matrix.to_dense()
    array([[4., 1., 1.],
           [1., 4., 0.],
           [1., 0., 4.]])
    >>> matrix.solve(np.array([6.0, 5.0, 5.0]))
    array([1., 1., 1.])
    """

    structure: BlockStructure
    core: np.ndarray  # (core, core)
    down: Blocks = ()  # (members, b, core): rows of blocks, columns of the core
    right: Blocks = ()  # (members, core, b)
    blocks: Blocks = ()  # (members, b, b)

    @classmethod
    def of_entries(cls, structure: BlockStructure, entry: Callable[..., np.ndarray]) -> Arrowhead:
        """The matrix whose entry at rows i and columns j is ``entry(i, j)``."""
        core, groups = structure.core, structure.groups
        return cls(
            structure,
            entry(core[:, None], core),
            tuple(entry(g[:, :, None], core) for g in groups),
            tuple(entry(core[:, None], g[:, None, :]) for g in groups),
            tuple(entry(g[:, :, None], g[:, None, :]) for g in groups),
        )

    @classmethod
    def identity(cls, structure: BlockStructure) -> Arrowhead:
        return cls.of_entries(structure, lambda i, j: np.where(i == j, 1.0, 0.0))

    # ------------------------------------------------------------------------- entry by entry

    def _each(self, make: Callable[..., np.ndarray], *others: Arrowhead) -> Arrowhead:
        rest = [(o.core, o.down, o.right, o.blocks) for o in others]
        core, *parts = zip((self.core, self.down, self.right, self.blocks), *rest, strict=True)
        made = [tuple(make(*xs) for xs in zip(*part, strict=True)) for part in parts]
        return Arrowhead(self.structure, make(*core), *made)

    def __add__(self, other: Arrowhead) -> Arrowhead:
        return self._each(np.add, other)

    def __sub__(self, other: Arrowhead) -> Arrowhead:
        return self._each(np.subtract, other)

    def __neg__(self) -> Arrowhead:
        return self._each(np.negative)

    def __rmul__(self, factor: float) -> Arrowhead:
        return self._each(lambda x: factor * x)

    def scaled(self, rows: np.ndarray, columns: np.ndarray) -> Arrowhead:
        """Each row and column times a number of its own."""
        return self._each(
            np.multiply, Arrowhead.of_entries(self.structure, lambda i, j: rows[i] * columns[j])
        )

    def diagonal(self) -> np.ndarray:
        found = np.empty(self.structure.size, self.core.dtype)
        found[self.structure.core] = np.diag(self.core)
        for group, block in zip(self.structure.groups, self.blocks, strict=True):
            found[group] = np.diagonal(block, axis1=1, axis2=2)
        return found

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Entries at these rows and columns, of one shape; 0 between blocks."""
        found = np.zeros(rows.shape, self.core.dtype)
        for array, known, index in self._where(rows, columns):
            found[known] = array[index]
        return found

    @classmethod
    def of_pairs(
        cls, structure: BlockStructure, rows: np.ndarray, columns: np.ndarray
    ) -> Arrowhead:
        """True at these pairs, (pairs,) each, and the diagonal; those between blocks are lost."""
        found = cls.of_entries(structure, lambda i, j: i == j)
        for array, _, index in found._where(rows, columns):
            array[index] = True
        return found

    def _where(
        self, rows: np.ndarray, columns: np.ndarray
    ) -> Iterator[tuple[np.ndarray, Any, Any]]:
        """Arrays, which of the pairs they hold, and where."""
        i, j = self.structure.in_core[rows], self.structure.in_core[columns]
        m = (i >= 0) & (j >= 0)
        yield self.core, m, (i[m], j[m])
        for k, (member, place) in enumerate(self.structure.in_groups):
            to, of, row, column = member[rows], member[columns], place[rows], place[columns]
            m = (to >= 0) & (j >= 0)
            yield self.down[k], m, (to[m], row[m], j[m])
            m = (i >= 0) & (of >= 0)
            yield self.right[k], m, (of[m], i[m], column[m])
            m = (to >= 0) & (to == of)
            yield self.blocks[k], m, (to[m], row[m], column[m])

    def to_dense(self) -> np.ndarray:
        index = np.arange(self.structure.size)
        return self.entries(*np.meshgrid(index, index, indexing="ij"))

    # ------------------------------------------------------------------------------ as a whole

    def __matmul__(self, x: np.ndarray) -> np.ndarray:
        """Product with x (numbers, columns)."""
        found, core = np.empty(x.shape), x[self.structure.core]
        total = self.core @ core
        for k, group in enumerate(self.structure.groups):
            total = total + np.einsum("cgb,cbn->gn", self.right[k], x[group], optimize=True)
            found[group] = self.down[k] @ core + self.blocks[k] @ x[group]
        found[self.structure.core] = total
        return found

    def schur_complement(self) -> np.ndarray:
        """C - R B⁻¹ D."""
        found = self.core
        for right, block, down in zip(self.right, self.blocks, self.down, strict=True):
            found = found - sum_products(right, np.linalg.solve(block, down))
        return found

    def solve(self, x: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
        """y with M y = x, both (numbers,); or within the rows and columns ``among``, else 0."""
        among = np.ones(self.structure.size, bool) if among is None else among
        found, inner = np.zeros(x.shape), among[self.structure.core]
        some = np.ix_(inner, inner)
        left, rest = x[self.structure.core][inner], self.core[some]
        parts = []
        for k, group in enumerate(self.structure.groups):
            kept = among[group]
            block = np.where(kept[:, :, None] & kept[:, None, :], self.blocks[k], 0.0)
            block = block + (~kept)[:, :, None] * np.eye(group.shape[1])
            down = kept[:, :, None] * self.down[k][:, :, inner]
            right = kept[:, None, :] * self.right[k][:, inner, :]
            both = np.concatenate([down, (kept * x[group])[:, :, None]], -1)
            solved = np.linalg.solve(block, both)
            parts.append((group, solved))
            rest = rest - sum_products(right, solved[..., :-1])
            left = left - np.einsum("cgb,cb->g", right, solved[..., -1])
        core = np.linalg.solve(rest, left)
        found[self.structure.core[inner]] = core
        for group, solved in parts:
            found[group] = solved[..., -1] - solved[..., :-1] @ core
        return found

    def log_det(self) -> float:
        """Logarithm of the determinant's size."""
        inner = sum(float(np.linalg.slogdet(block)[1].sum()) for block in self.blocks)
        return float(np.linalg.slogdet(self.schur_complement())[1]) + inner

    # ------------------------------------------------------------------------ symmetric ones

    def is_positive(self) -> bool:
        """Whether all eigenvalues are positive."""
        try:
            for block in self.blocks:
                np.linalg.cholesky(block)
            np.linalg.cholesky(self.schur_complement())
        except np.linalg.LinAlgError:
            return False
        return True

    def variances(self, among: np.ndarray) -> np.ndarray:
        """Diagonal of the inverse within the rows and columns ``among``, (numbers,); else 0.

        All numbers of blocks are among them.
        """
        inner = among[self.structure.core]
        rest, ways, found = self.core[np.ix_(inner, inner)], [], np.zeros(self.structure.size)
        for k, block in enumerate(self.blocks):
            ways.append(np.linalg.solve(block, self.down[k][:, :, inner]))
            rest = rest - sum_products(self.right[k][:, inner], ways[k])
        inverse = np.linalg.inv(rest)
        found[self.structure.core[inner]] = np.diag(inverse)
        for k, group in enumerate(self.structure.groups):
            own = np.diagonal(np.linalg.inv(self.blocks[k]), axis1=1, axis2=2)
            found[group] = own + np.sum((ways[k] @ inverse) * ways[k], -1)
        return found

    def symmetric(self) -> Arrowhead:
        return 0.5 * (self + self.transposed())

    def transposed(self) -> Arrowhead:
        down, right, blocks = (
            tuple(np.swapaxes(x, 1, 2) for x in part)
            for part in (self.right, self.down, self.blocks)
        )
        return Arrowhead(self.structure, self.core.T, down, right, blocks)

    def by_size(self, damping: float = 0.0) -> ArrowheadEigen:
        """A positive matrix like this one: eigenvalues by their size, with ``damping`` added."""
        return self.with_eigenvalues(lambda curve: _no_smaller(curve) + damping)

    def with_eigenvalues(self, positive: Callable[[np.ndarray], np.ndarray]) -> ArrowheadEigen:
        """The matrix whose eigenvalues are ``positive`` of this one's.

        Those of the blocks, and of the Schur complement that is left.
        """
        axes, sizes, core = [], [], self.core
        for k, block in enumerate(self.blocks):
            curve, along = np.linalg.eigh(block)
            size = positive(curve)
            axes.append(along)
            sizes.append(size)
            rotated = np.swapaxes(along, 1, 2) @ self.down[k]
            core = core - sum_products(np.swapaxes(rotated, 1, 2), rotated / size[..., None])
        curve, along = np.linalg.eigh(core)
        return ArrowheadEigen(self, along, positive(curve), tuple(axes), tuple(sizes))


@dataclass(frozen=True)
class ArrowheadEigen:
    """A positive matrix by the eigenvectors of its blocks and of its Schur complement."""

    like: Arrowhead
    core_axes: np.ndarray
    core_sizes: np.ndarray
    axes: Blocks
    sizes: Blocks

    def solve(self, x: np.ndarray) -> np.ndarray:
        found, structure = np.empty(x.shape), self.like.structure
        left, ways = x[structure.core], []
        for k, group in enumerate(structure.groups):
            ways.append(self._solve_blocks(k, x[group][..., None])[..., 0])
            left = left - np.einsum("cbg,cb->g", self.like.down[k], ways[k])
        core = self.core_axes @ ((self.core_axes.T @ left) / self.core_sizes)
        found[structure.core] = core
        for k, group in enumerate(structure.groups):
            moved = self._solve_blocks(k, (self.like.down[k] @ core)[..., None])[..., 0]
            found[group] = ways[k] - moved
        return found

    def _solve_blocks(self, k: int, x: np.ndarray) -> np.ndarray:
        return self.axes[k] @ ((np.swapaxes(self.axes[k], 1, 2) @ x) / self.sizes[k][..., None])

    def log_det(self) -> float:
        return float(sum(np.sum(np.log(s)) for s in (self.core_sizes, *self.sizes)))

    def to_arrowhead(self) -> Arrowhead:
        """The matrix itself."""
        core = (self.core_axes * self.core_sizes) @ self.core_axes.T
        blocks = []
        for k, (axes, sizes) in enumerate(zip(self.axes, self.sizes, strict=True)):
            blocks.append((axes * sizes[:, None, :]) @ np.swapaxes(axes, 1, 2))
            down = self.like.down[k]
            core = core + sum_products(np.swapaxes(down, 1, 2), self._solve_blocks(k, down))
        return Arrowhead(self.like.structure, core, self.like.down, self.like.right, tuple(blocks))


def _no_smaller(curve: np.ndarray) -> np.ndarray:
    size = np.abs(curve)
    return np.maximum(size, 1e-10 * size.max(initial=0.0) + 1e-12)


def sum_products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Sum over members of the products of (members, k, b) with (members, b, m)."""
    count, rows, inner = left.shape
    return np.swapaxes(left, 0, 1).reshape(rows, count * inner) @ right.reshape(
        count * inner, right.shape[-1]
    )
