"""Matrices of a core and cells, and the Gaussian of models of many groups."""

from __future__ import annotations

import numpy as np
import pytest

from asvi.families.cells import Cells
from asvi.fitting.arrow import Arrow
from asvi.fitting.wiring import factor

CELLS = Cells(np.array([0, 5, 6]), (np.array([[1, 3], [2, 4], [9, 8]]), np.array([[7], [10]])))


def matrix(seed: int, positive: bool = True, cells: Cells = CELLS) -> Arrow:
    """A symmetric one."""
    rng = np.random.default_rng(seed)
    full = rng.normal(size=(cells.size, cells.size))
    full = full + full.T
    found = Arrow.of_entries(cells, lambda i, j: full[i, j])
    if not positive:
        return found
    more = 1.0 - min(0.0, np.linalg.eigvalsh(found.dense()).min())
    return found + more * Arrow.identity(cells)


def pattern() -> np.ndarray:
    return Arrow.of_entries(CELLS, lambda i, j: np.ones(np.broadcast(i, j).shape)).dense() > 0


def test_it_does_what_the_full_matrix_does():
    a, b = matrix(0), matrix(1, positive=False)
    full, other = a.dense(), b.dense()
    x = np.random.default_rng(2).normal(size=(CELLS.size, 4))
    np.testing.assert_allclose(full, full.T)
    np.testing.assert_allclose(a.diagonal(), np.diag(full))
    np.testing.assert_allclose((a - b).dense(), full - other)
    np.testing.assert_allclose((2.0 * a + -b).dense(), 2 * full - other)
    np.testing.assert_allclose(a @ x, full @ x)
    np.testing.assert_allclose(a.solve(x[:, 0]), np.linalg.solve(full, x[:, 0]))
    np.testing.assert_allclose(a.log_det(), np.linalg.slogdet(full)[1])
    np.testing.assert_allclose(b.log_det(), np.linalg.slogdet(other)[1])
    scaled = a.scaled(x[:, 0], x[:, 1]).dense()
    np.testing.assert_allclose(scaled, full * x[:, :1] * x[:, 1])
    np.testing.assert_allclose(
        b.through(a).dense(), np.where(pattern(), other @ np.linalg.solve(full, other), 0.0)
    )
    assert a.is_positive()
    assert not b.is_positive()


def test_it_solves_among_some_numbers():
    a, x = matrix(0), np.arange(11.0)
    among = np.array([1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1], bool)
    found = a.solve(x, among)
    some = np.ix_(among, among)
    np.testing.assert_allclose(found[among], np.linalg.solve(a.dense()[some], x[among]))
    assert not found[~among].any()


@pytest.mark.parametrize("damping", [0.0, 3.0])
def test_eigenvalues_by_their_size(damping):
    good, bad = matrix(0), matrix(1, positive=False)
    x = np.arange(11.0)
    if not damping:  # of a positive matrix, itself
        np.testing.assert_allclose(good.by_size().arrow().dense(), good.dense())
    found = bad.by_size(damping)
    whole = found.arrow()
    assert whole.is_positive()
    np.testing.assert_allclose(found.solve(x), np.linalg.solve(whole.dense(), x))
    np.testing.assert_allclose(found.log_det(), np.linalg.slogdet(whole.dense())[1])
    core = Arrow(Cells(np.arange(11)), bad.dense())
    curve, axes = np.linalg.eigh(bad.dense())
    expected = axes @ ((axes.T @ x) / (np.abs(curve) + damping))
    np.testing.assert_allclose(core.by_size(damping).solve(x), expected)


def test_the_factor_is_that_of_the_full_matrix():
    a = matrix(0)
    rng = np.random.default_rng(3)
    # Who is later may listen: the core between cells, cells to the core and within.
    hears = Arrow.of_entries(CELLS, lambda i, j: (i >= j) & ((i == j) | (j != 7)))
    some = Arrow.of_entries(
        CELLS, lambda i, j: (i == j) | ((i > j) & (rng.random((11, 11))[i, j] > 0.5))
    )
    for listening in (hears, some, Arrow.of_pairs(CELLS, np.zeros(0, int), np.zeros(0, int))):
        found = factor(a, listening).dense()
        full = Cells(np.arange(11))
        expected = factor(Arrow(full, a.dense()), Arrow(full, listening.dense() > 0)).dense()
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_pairs_between_cells_are_lost():
    found = Arrow.of_pairs(CELLS, np.array([0, 1, 1, 7]), np.array([5, 3, 2, 0])).dense()
    expected = np.eye(11, dtype=bool)
    expected[0, 5] = expected[1, 3] = expected[7, 0] = True
    assert (found == expected).all()
