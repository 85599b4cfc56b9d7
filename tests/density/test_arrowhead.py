"""Matrices of a core and cells, and the Gaussian of models of many groups."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import asvi
from asvi.density.arrowhead import Arrowhead
from asvi.density.block_structure import BlockStructure, has_long_chain
from asvi.density.edge_factor import factor_on_edges
from asvi.density.settings import BlockSettings, DensitySettings
from asvi.families import Coupled
from asvi.fitting.gaussian.for_training import find_gaussian
from asvi.fitting.gaussian.natural_step import around, cholesky, natural_step, within
from asvi.fitting.problem import Problem
from asvi.fitting.request import Request
from asvi.fitting.rungs import trained
from asvi.fitting.training.settings import TrainingSettings
from asvi.program import Program
from benchmarks import large, long_chains
from tests.support.marks import all_but

CELLS = BlockStructure(
    np.array([0, 5, 6]), (np.array([[1, 3], [2, 4], [9, 8]]), np.array([[7], [10]]))
)


def matrix(seed: int, positive: bool = True, of: BlockStructure = CELLS) -> Arrowhead:
    """A symmetric one."""
    rng = np.random.default_rng(seed)
    full = rng.normal(size=(of.size, of.size))
    full = full + full.T
    found = Arrowhead.of_entries(of, lambda i, j: full[i, j])
    if not positive:
        return found
    more = 1.0 - min(0.0, np.linalg.eigvalsh(found.to_dense()).min())
    return found + more * Arrowhead.identity(of)


def pattern() -> np.ndarray:
    return (
        Arrowhead.of_entries(CELLS, lambda i, j: np.ones(np.broadcast(i, j).shape)).to_dense() > 0
    )


def test_it_does_what_the_full_matrix_does():
    a, b = matrix(0), matrix(1, positive=False)
    full, other = a.to_dense(), b.to_dense()
    x = np.random.default_rng(2).normal(size=(CELLS.size, 4))
    np.testing.assert_allclose(full, full.T)
    np.testing.assert_allclose(a.diagonal(), np.diag(full))
    np.testing.assert_allclose((a - b).to_dense(), full - other)
    np.testing.assert_allclose((2.0 * a + -b).to_dense(), 2 * full - other)
    np.testing.assert_allclose(a @ x, full @ x)
    np.testing.assert_allclose(a.solve(x[:, 0]), np.linalg.solve(full, x[:, 0]))
    np.testing.assert_allclose(a.log_det(), np.linalg.slogdet(full)[1])
    np.testing.assert_allclose(b.log_det(), np.linalg.slogdet(other)[1])
    scaled = a.scaled(x[:, 0], x[:, 1]).to_dense()
    np.testing.assert_allclose(scaled, full * x[:, :1] * x[:, 1])
    assert a.is_positive()
    assert not b.is_positive()


def test_it_solves_among_some_numbers():
    a, x = matrix(0), np.arange(11.0)
    among = np.array([1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1], bool)
    found = a.solve(x, among)
    some = np.ix_(among, among)
    np.testing.assert_allclose(found[among], np.linalg.solve(a.to_dense()[some], x[among]))
    assert not found[~among].any()


def test_a_triangle_with_cells_first_keeps_the_pattern():
    a, b = matrix(0), matrix(1, positive=False)
    root = cholesky(a)
    full = root.to_dense()
    np.testing.assert_allclose(full @ full.T, a.to_dense(), atol=1e-12)
    np.testing.assert_allclose(around(root, b).to_dense(), full @ b.to_dense() @ full.T, atol=1e-9)
    np.testing.assert_allclose(within(root, around(root, b)).to_dense(), b.to_dense(), atol=1e-9)


@pytest.mark.parametrize("of", [CELLS, BlockStructure(np.arange(6))])
def test_a_natural_step_is_positive_and_reaches_what_is_narrower(of):
    a, b = matrix(0, of=of), matrix(1, positive=False, of=of)
    mean, slope = np.zeros(of.size), np.ones(of.size)
    length = 1e-6
    _, near = natural_step(mean, a, slope, b, length)
    change = (b - a).to_dense()
    np.testing.assert_allclose(
        (near.to_dense() - a.to_dense()) / length, change, rtol=1e-3, atol=1e-3
    )
    for longer in (0.1, 1.0):
        _, new = natural_step(mean, a, slope, b, longer)
        assert new.is_positive()
    narrow = a + 10.0 * a
    found, new = natural_step(mean, a, slope, narrow, 1.0)
    np.testing.assert_allclose(new.to_dense(), narrow.to_dense(), atol=1e-9)
    np.testing.assert_allclose(found, narrow.solve(slope))


@pytest.mark.parametrize("damping", [0.0, 3.0])
def test_eigenvalues_by_their_size(damping):
    good, bad = matrix(0), matrix(1, positive=False)
    x = np.arange(11.0)
    if not damping:  # of a positive matrix, itself
        np.testing.assert_allclose(good.by_size().to_arrowhead().to_dense(), good.to_dense())
    found = bad.by_size(damping)
    whole = found.to_arrowhead()
    assert whole.is_positive()
    np.testing.assert_allclose(found.solve(x), np.linalg.solve(whole.to_dense(), x))
    np.testing.assert_allclose(found.log_det(), np.linalg.slogdet(whole.to_dense())[1])
    core = Arrowhead(BlockStructure(np.arange(11)), bad.to_dense())
    curve, axes = np.linalg.eigh(bad.to_dense())
    expected = axes @ ((axes.T @ x) / (np.abs(curve) + damping))
    np.testing.assert_allclose(core.by_size(damping).solve(x), expected)


def test_the_factor_is_that_of_the_full_matrix():
    a = matrix(0)
    rng = np.random.default_rng(3)
    # Who is later may listen: the core between cells, cells to the core and within.
    edge_mask = Arrowhead.of_entries(CELLS, lambda i, j: (i >= j) & ((i == j) | (j != 7)))
    some = Arrowhead.of_entries(
        CELLS, lambda i, j: (i == j) | ((i > j) & (rng.random((11, 11))[i, j] > 0.5))
    )
    for listening in (
        edge_mask,
        some,
        Arrowhead.of_pairs(CELLS, np.zeros(0, int), np.zeros(0, int)),
    ):
        found = factor_on_edges(a, listening).to_dense()
        full = BlockStructure(np.arange(11))
        expected = factor_on_edges(
            Arrowhead(full, a.to_dense()), Arrowhead(full, listening.to_dense() > 0)
        ).to_dense()
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_pairs_between_cells_are_lost():
    found = Arrowhead.of_pairs(CELLS, np.array([0, 1, 1, 7]), np.array([5, 3, 2, 0])).to_dense()
    expected = np.eye(11, dtype=bool)
    expected[0, 5] = expected[1, 3] = expected[7, 0] = True
    assert (found == expected).all()


# ------------------------------------------------------------------------- models of many groups


SMALL = BlockSettings(max_dense_numbers=12, max_shared_numbers=12, small_shared_numbers=6)


class InBlocks(Coupled):
    """Small models are taken for large ones."""

    block_settings = SMALL


def gaussian_of(model, *args, in_blocks=False):
    family = InBlocks() if in_blocks else Coupled()
    density = DensitySettings(blocks=SMALL) if in_blocks else DensitySettings()
    problem = Problem(model, family, args, {}, density=density)
    start = problem.initial(jax.random.key(0))
    return find_gaussian(problem, problem.params(start))


def groups(y, late):
    """Groups around a common mean; what they share comes before them or, some of it, after."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    sigma = None if late else numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("group", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0)) if late else sigma
    with numpyro.plate("observed", len(y)):
        numpyro.sample("y", dist.Normal(theta[:, None], sigma).expand(y.shape).to_event(1), obs=y)


def slopes(x, y):
    """Two numbers to each group, with a covariance of their own."""
    scale = numpyro.sample("scale", dist.HalfNormal(2.0).expand([2]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("group", len(y)):
        u = numpyro.sample(
            "u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=scale[:, None] * factor)
        )
        loc = u[:, :1] + u[:, 1:] * x
        numpyro.sample("y", dist.Normal(loc, 0.7).to_event(1), obs=y)


def nested(y):
    """Classes in schools: cells are schools, with their classes."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("school", y.shape[0], dim=-2):
        school = numpyro.sample("school_effect", dist.Normal(mu, 1.0))
        with numpyro.plate("class", y.shape[1], dim=-1):
            effect = numpyro.sample("class_effect", dist.Normal(school, 0.5))
            numpyro.sample("y", dist.Normal(effect, 0.5), obs=y)


def apart(y):
    """Groups with nothing in common."""
    with numpyro.plate("group", len(y)):
        theta = numpyro.sample("theta", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Poisson(jnp.exp(theta)), obs=y)


RNG = np.random.default_rng(0)
GROUPS = (RNG.normal(size=(15, 1)) + RNG.normal(size=(15, 4))).astype(np.float32)
X = RNG.normal(size=(9, 5)).astype(np.float32)
MODELS = {
    "groups": (groups, GROUPS, False),
    "groups, scale last": (groups, GROUPS, True),
    "slopes": (slopes, X, (0.5 * X + RNG.normal(size=(9, 5))).astype(np.float32)),
    "apart": (apart, RNG.poisson(2.0, 13).astype(np.float32)),
    "nested": (nested, RNG.normal(size=(8, 3)).astype(np.float32)),
}


@pytest.mark.parametrize("name", all_but(["slopes", "groups", "groups, scale last"], MODELS))
def test_cells_find_the_gaussian_of_the_full_matrix(name):
    full = gaussian_of(*MODELS[name])
    found = gaussian_of(*MODELS[name], in_blocks=True)
    assert full is not None
    assert found is not None
    assert found.precision.structure.groups
    # In small models the groups listen to each other too.
    assert -0.3 < found.elbo - full.elbo < 0.1
    sd = full.precision.diagonal() ** -0.5
    np.testing.assert_allclose(found.mean, full.mean, atol=0.3 * sd.max())
    np.testing.assert_allclose(found.precision.diagonal(), full.precision.diagonal(), rtol=0.4)


def crossed(y):
    """Every observation belongs to two groups."""
    with numpyro.plate("row", y.shape[0], dim=-2):
        row = numpyro.sample("r", dist.Normal(0.0, 1.0))
    with numpyro.plate("column", y.shape[1], dim=-1):
        column = numpyro.sample("c", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(row + column, 1.0).to_event(2), obs=y)


@pytest.mark.slow
def test_cells_that_meet_after_all_are_not_taken_for_apart():
    y = np.random.default_rng(0).normal(size=(8, 9)).astype(np.float32)
    found = gaussian_of(crossed, y, in_blocks=True)
    assert found is None
    request = Request(
        crossed, (y,), {}, None, TrainingSettings(max_steps=3000), 0.0,
        family=InBlocks(), progress=False, density=DensitySettings(blocks=SMALL),
    )  # fmt: skip
    outcome = trained.fit_as_asked(request)
    assert outcome.run.start != "gaussian"
    assert np.isfinite(outcome.elbo)


def raw_counts(x, group, y):
    """Predictors as they come: at the prior's centre a draw is beyond all numbers."""
    w = numpyro.sample("w", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("group", 300):
        effect = numpyro.sample("effect", dist.Normal(0.0, tau))
    with numpyro.plate("observed", len(y)):
        numpyro.sample("y", dist.Poisson(jnp.exp(x @ w + effect[group])), obs=y)


@pytest.mark.slow
def test_raw_predictors_of_many_groups_are_fitted():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 300, 1500)
    x = np.stack([rng.normal(1.0, 0.1, 1500), rng.normal(0.0, 1000.0, 1500)], 1)
    rate = np.exp(x @ np.array([1.0, 5e-4]) + 0.5 * rng.normal(size=300)[group])
    y = rng.poisson(rate).astype(np.float32)
    result = asvi.fit(
        raw_counts,
        x.astype(np.float32),
        group,
        y,
        progress_bar=False,
        training=asvi.Training(num_steps=3000),
    )
    assert result.run.start == "gaussian"
    mean, sd = result.posterior.mean(), result.posterior.sd()
    assert abs(mean["w"][1] - 5e-4) < 4 * sd["w"][1]
    assert sd["w"][1] < 1e-4
    assert abs(mean["tau"] - 0.5) < 0.15


@pytest.mark.slow
def test_many_groups_are_fitted_soon():
    y = large.data(600)
    evidence, moments = large.truth(y)
    result = asvi.fit(large.model, y, progress_bar=False)
    assert result.converged
    assert result.num_steps <= 6000
    assert abs(evidence - result.elbo) < 0.05
    found = result.posterior.mean()
    for name, (mean, sd) in moments.items():
        assert abs(float(found[name]) - mean) < 0.1 * sd


@pytest.mark.slow
def test_long_chains_have_no_gaussian_to_start_at():
    for length, has_one in ((100, True), (200, False)):
        problem = Problem(long_chains.model, Coupled(), (long_chains.data(length),), {})
        assert (problem.noise_space is not None) == has_one
        assert any("/frame/" in name for name in problem.vector.transforms) == has_one


@pytest.mark.slow
def test_a_long_chain_is_fitted():
    y = long_chains.data(200)
    result = asvi.fit(long_chains.model, y, progress_bar=False)
    assert abs(long_chains.truth(y)[0] - result.log_evidence) < 0.2
    assert result.diagnose().ok


def test_a_chain_is_as_long_as_all_its_sites():
    def model(length):
        def step(carry, _):
            a = numpyro.sample("a", dist.Normal(carry, 1.0))
            b = numpyro.sample("b", dist.Normal(a, 1.0))
            return b, None

        scan(step, jnp.zeros(()), jnp.arange(length))

    for length, expected in ((70, False), (80, True)):
        sites = Program.of(model, length).latent
        assert has_long_chain(sites, {s.address: s.shape for s in sites}) == expected
