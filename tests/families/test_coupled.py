"""The coupled family: exact densities, its contexts, and what it holds that others cannot."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import cond, scan
from scipy.optimize import minimize

import asvi
from asvi.density.arrowhead import Arrowhead
from asvi.density.block_structure import BlockStructure
from asvi.distributions.spline import N_SPLINE_WEIGHTS, spline_forward
from asvi.distributions.standardize import noise_shape, standardize
from asvi.distributions.warped_noise import Residual, WarpedNoise
from asvi.errors import FamilyError
from asvi.families import ConvexUpdate, Coupled, MeanField
from asvi.families.coupled.features import (
    gain_features,
    n_gain_features,
    n_shift_features,
    shift_features,
)
from asvi.fitting.gaussian.for_training import find_gaussian
from asvi.fitting.gaussian.natural_step import natural_step
from asvi.fitting.problem import Problem
from asvi.fitting.training import race, stopping
from asvi.fitting.training.parallel_optimizer import (
    ChunkInputs,
    _apply,
    advance,
    draw_elbos,
    new_state,
)
from asvi.fitting.training.settings import TrainingSettings
from asvi.fitting.training.step_sizes import named_step_sizes, upper_limits
from asvi.program import Program
from asvi.program.run_trace import log_density, trace_of
from tests.support.marks import all_but

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning")  # which loss is in use

# ------------------------------------------------------------------------------------- models


def mixed_model(y=None):
    """Sites of many kinds, in and out of plates."""
    a = numpyro.sample("a", dist.Normal(1.0, 2.0))
    s = numpyro.sample("s", dist.HalfNormal(2.0))
    p = numpyro.sample("p", dist.Dirichlet(jnp.array([2.0, 3.0, 4.0])))
    g = numpyro.sample("g", dist.Gamma(2.0, 1.0))
    with numpyro.plate("group", 3):
        x = numpyro.sample("x", dist.Normal(a, s))
        b = numpyro.sample("b", dist.Beta(2.0, 1.0 + g))
        v = numpyro.sample("v", dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
        numpyro.sample("y", dist.Normal(x + b + v.sum(-1) + p[0], 1.0), obs=y)


def chain_model(y):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))

    def step(x, y_t):
        x = numpyro.sample("x", dist.Normal(0.9 * x, scale))
        w = numpyro.sample("w", dist.Normal(x, 1.0))
        numpyro.sample("y", dist.Normal(w, 0.5), obs=y_t)
        return x, None

    scan(step, 0.0, y)
    numpyro.sample("after", dist.Normal(0.0, 1.0))


def branch_model(y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))

    def left(_):
        return numpyro.sample("z", dist.Normal(a, 1.0))

    def right(_):
        return numpyro.sample("z", dist.Normal(-a, 2.0))

    z = cond(y.sum() > 0, left, right, None)
    numpyro.sample("y", dist.Normal(z, 1.0).expand([2]).to_event(1), obs=y)


MODELS = {
    "kinds": (mixed_model, (jnp.array([0.5, 1.0, 2.0]),)),
    "chain": (chain_model, (jnp.array([0.5, 1.0, 2.0, 1.0]),)),
    "branch": (branch_model, (jnp.array([0.5, 1.0]),)),
}


def guide_with_random_weights(model, args, family, size=0.15):
    guide = asvi.AutoASVI(model, family=family)
    params = initial(guide, args)
    moved = {}
    for i, (name, value) in enumerate(sorted(params.items())):
        noise = jax.random.normal(jax.random.key(i), jnp.shape(value))
        moved[name] = value + size * noise if "coupling" in name or "/frame/" in name else value
    return guide, moved


def draw(guide, params, args, key=1, values=None):
    @jax.jit
    def run(params, values):
        drawn = trace_of(guide, jax.random.key(key), params, values, args, {})
        sites = {n: m for n, m in drawn.items() if m["type"] == "sample"}
        density = sum(log_density(m) for m in sites.values())
        return {n: m["value"] for n, m in sites.items()}, density

    return run(params, values or {})


def initial(guide, args):
    """The guide's parameters at their start."""

    def run():
        drawn = trace_of(guide, jax.random.key(0), {}, {}, args, {})
        return {name: m["value"] for name, m in drawn.items() if m["type"] == "param"}

    return jax.jit(run)()


# ----------------------------------------------------------------------------------- densities


@pytest.mark.parametrize("name", all_but(["kinds"], sorted(MODELS)))
def test_the_density_of_a_draw_is_found_again_from_its_values(name, float64):
    model, args = MODELS[name]
    guide, params = guide_with_random_weights(model, args, Coupled())
    values, density = draw(guide, params, args)
    again, density_again = draw(guide, params, args, key=7, values=values)
    assert np.isfinite(density)
    np.testing.assert_allclose(density, density_again, rtol=1e-9)
    for site, value in values.items():
        np.testing.assert_array_equal(value, again[site])


@pytest.mark.parametrize("name", ["branch", "chain"])
def test_a_mask_around_the_guide_changes_no_draw(name, float64):
    """As `Predictive` puts around guides: what others hear must be the noise under the mask."""
    model, args = MODELS[name]
    guide, params = guide_with_random_weights(model, args, Coupled())
    values, _density = draw(guide, params, args)
    masked, density = draw(handlers.mask(guide, mask=False), params, args)
    assert density == 0.0
    for site, value in values.items():
        np.testing.assert_allclose(value, masked[site], rtol=1e-9)


@pytest.mark.parametrize("gated", [False, True])
def test_the_density_is_that_of_the_noise_over_the_jacobian(gated, float64):
    """Against automatic differentiation: log q(x) = log N(z) - log |dx/dz| for Gaussian noise."""
    base = dist.LogNormal(jnp.array([0.1, -0.2, 0.3]), jnp.array([0.5, 1.0, 2.0])).to_event(1)
    weights = jax.random.normal(jax.random.key(0), (2, 1, 3, 3))
    loudness, voice = jnp.array([0.3, 2.0, 0.6]), jnp.array([1.5, 0.4, 1.1])
    spline = jax.random.normal(jax.random.key(1), (3, N_SPLINE_WEIGHTS))
    moved = WarpedNoise(
        base,
        jnp.array([0.3, 0.1, -0.5]),
        jnp.array([0.2, -0.4, 0.1]),
        weights[0],
        jnp.array([1.0, 0.5, -0.5]),
        weights[1],
        jnp.array([0.9, -0.5, 0.0]),
        loudness if gated else None,
        voice if gated else None,
        spline if gated else None,
    )
    found = standardize(base)
    inner, outer = jnp.tril(weights[:, 0], -1)
    if gated:
        inner, outer = (loudness[:, None] * triangle * voice for triangle in (inner, outer))

    def value(z):
        w = spline_forward(z, spline)[0] if gated else z
        v = w + moved.skew * (jnp.sqrt(1 + w**2) - 1)
        epsilon = jnp.exp(moved.log_scale) * (v + inner @ v) + moved.offset
        framed = epsilon + outer @ epsilon + moved.shift
        return found.transform(found.loc + found.scale * framed)

    z = jnp.array([0.4, -1.0, 0.7])
    x = value(z)
    by_hand = (
        dist.Normal(0.0, 1.0).log_prob(z).sum() - jnp.linalg.slogdet(jax.jacobian(value)(z))[1]
    )
    np.testing.assert_allclose(moved.log_prob(x), by_hand, rtol=1e-9)
    np.testing.assert_allclose(moved.unit_noise(x), z, rtol=1e-9)
    heard = voice * spline_forward(z, spline)[0] if gated else z  # others hear it as bent
    np.testing.assert_allclose(moved.noise(x).drawn, heard, rtol=1e-9)
    drawn, intermediates = moved.sample_with_intermediates(jax.random.key(3))
    np.testing.assert_allclose(
        moved.log_prob(drawn), moved.log_prob(drawn, intermediates), rtol=1e-9
    )


@pytest.mark.slow
def test_without_weights_it_is_the_convex_update(float64):
    model, args = MODELS["kinds"]
    coupled, params = guide_with_random_weights(model, args, Coupled(), size=0.0)
    convex = asvi.AutoASVI(model, family=ConvexUpdate())
    values, density = draw(coupled, params, args)
    own = {n: v for n, v in params.items() if "coupling" not in n and "/frame/" not in n}
    assert set(own) == set(initial(convex, args))
    np.testing.assert_allclose(density, draw(convex, own, args, values=values)[1], rtol=1e-9)


def test_draws_have_the_coupling_that_the_weights_say(float64):
    def model():
        numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("b", dist.Normal(0.0, 1.0))

    guide = asvi.AutoASVI(model, family=Coupled())
    params = initial(guide, ())
    params["auto/b/coupling/dense"] = jnp.array([-2.0])
    draws = guide.sample_posterior(jax.random.key(1), params, sample_shape=(20_000,))
    assert abs(np.corrcoef(draws["a"], draws["b"])[0, 1] + 2 / np.sqrt(5)) < 0.02


# ------------------------------------------------------------------------------------ contexts


@pytest.mark.slow
def test_curves_and_skew_hold_what_no_gaussian_over_the_noise_can():
    """One number follows the square of another, and is skewed: a banana of sharp edges."""

    def banana():
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        c = numpyro.sample("c", dist.Normal(0.0, 1.0))
        numpyro.factor("bend", dist.Normal(a**2 / 2, 0.3).log_prob(b))
        numpyro.factor("side", -jnp.exp(-4.0 * c))

    grid = jnp.linspace(-8.0, 8.0, 4001)
    prior = dist.Normal(0.0, 1.0).log_prob(grid)
    inner = dist.Normal(grid**2 / 2, jnp.sqrt(1 + 0.3**2)).log_prob(0.0)
    step = jnp.log(grid[1] - grid[0])
    evidence = jax.nn.logsumexp(prior + inner) + step
    evidence += jax.nn.logsumexp(prior - jnp.exp(-4.0 * grid)) + step
    result = asvi.fit(banana, effort="thorough", progress_bar=False)
    assert -2 * result.elbo_se < evidence - result.elbo < 0.15
    flat = {
        k: 0.0 * v if k.endswith(("/skew", "/bend_gates")) else v for k, v in result.params.items()
    }
    terms = jax.vmap(lambda k: sum(result.problem.terms_at(flat, k).values()))
    assert terms(jax.random.split(jax.random.key(0), 500)).mean() < result.elbo - 0.5


@pytest.mark.slow
def test_globals_say_how_much_others_hang_together():
    """The larger the scale, the more the data tie the numbers to each other."""

    def model(y):
        u = numpyro.sample("u", dist.Normal(0.0, 1.0))
        z = numpyro.sample("z", dist.Normal(jnp.zeros(5), 1.0).to_event(1))
        numpyro.sample("y", dist.Normal(jnp.exp(1.5 * u) * z.sum(), 1.0), obs=y)

    y, grid = 1.0, jnp.linspace(-9.0, 9.0, 4001)
    spread = jnp.sqrt(1 + 5 * jnp.exp(3.0 * grid))
    density = dist.Normal(0.0, 1.0).log_prob(grid) + dist.Normal(0.0, spread).log_prob(y)
    evidence = float(jax.nn.logsumexp(density) + jnp.log(grid[1] - grid[0]))
    result = asvi.fit(model, y, effort="thorough", progress_bar=False)
    gap = evidence - result.elbo
    assert -2 * result.elbo_se < gap < 0.05
    same = {
        k: 0.0 * v if k.endswith(("loudness", "voice")) else v for k, v in result.params.items()
    }
    terms = jax.vmap(lambda k: sum(result.problem.terms_at(same, k).values()))
    elbos = terms(jax.random.split(jax.random.key(0), 2000))
    assert evidence - elbos.mean() > gap + 0.1


def test_cells_of_a_plate_steer_each_other_in_curves():
    program = Program.of(mixed_model, jnp.zeros(3))
    sites = [program.with_parents(s) for s in program.latent]
    found = Coupled().inputs(program, sites)
    assert found["b"].member == ("x",)
    assert found["v"].member == ("x", "b")
    declared = Coupled().declare_with(program.with_parents(program["v"]), found["v"])
    assert declared["coupling/bend_cell"].shape == (3, 2, 3 + 4 + 8)  # products, tails; moved
    assert declared["coupling/stretch_cell"].shape == (3, 2, 2 * 8)  # noise, squares and tails


def test_globals_steer_by_where_they_lie_and_by_how_they_were_drawn():
    drawn, moved = jnp.array([0.5, -1.0]), jnp.array([3.0, 0.2])
    features = gain_features(Residual(drawn, moved))
    assert features.shape == (n_gain_features(2, has_curves=True),)
    assert shift_features(Residual(drawn, moved)).shape == (n_shift_features(2, has_curves=True),)
    half = len(features) // 2
    np.testing.assert_allclose(features[:2], drawn)
    np.testing.assert_allclose(features[half : half + 2], moved)
    far = gain_features(Residual(drawn, 10 * moved)) - features
    np.testing.assert_array_equal(far[:half], 0.0)
    assert (np.abs(far[half : half + 4]) > 0).all()


def test_what_a_site_listens_to():
    program = Program.of(chain_model, jnp.zeros(4))
    sites = [program.with_parents(s) for s in program.latent]
    found = Coupled().inputs(program, sites)
    assert found["scan0/x"].globals == ("scale",)
    assert found["scan0/w"].dense == ("scale", "scan0/x")  # the same step, earlier in the body
    assert found["scan0/x"].lookback == 3
    assert found["scan0/x"].lookback_sources == ("scan0/x", "scan0/w")
    assert found["after"].size(found["after"].dense) == 1 + 4 + 4  # all steps of an ended scan
    assert Coupled(window=1).inputs(program, sites)["scan0/x"].lookback == 1
    assert Coupled("none").inputs(program, sites)["after"].dense == ()
    only = Coupled("globals").inputs(program, sites)["scan0/w"]
    assert (only.globals, only.dense, only.lookback) == (("scale",), ("scale",), 0)


def test_large_plates_cost_in_proportion_to_their_size():
    def groups(n):
        def model(y):
            mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
            with numpyro.plate("group", n):
                a = numpyro.sample("a", dist.Normal(mu, 1.0))
                b = numpyro.sample("b", dist.Normal(mu, 1.0))
                numpyro.sample("y", dist.Normal(a + b, 1.0), obs=y)

        return Problem(model, Coupled(), (jnp.zeros(n),), {})

    small, large = groups(10_000), groups(40_000)
    assert large.size < 4.1 * small.size
    inputs = large.guide.inputs["b"]
    assert inputs.aligned == ("a",)  # group by group
    assert inputs.dense == ("mu",)
    assert set(large.guide.inputs["a"].dropped) == {"a"}


def test_subsampled_plates_are_coupled_group_by_group(key):
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("group", 6, subsample_size=2) as index:
            a = numpyro.sample("a", dist.Normal(mu, 1.0))
            b = numpyro.sample("b", dist.Normal(mu, 1.0))
            numpyro.sample("y", dist.Normal(a + b, 1.0), obs=y[index])

    guide = asvi.AutoASVI(model, family=Coupled())
    loss = asvi.ELBO().loss(key, {}, model, guide, jnp.arange(6.0))
    assert np.isfinite(loss)
    assert guide.inputs["b"].aligned == ("a",)
    assert guide.inputs["b"].within == 0


def test_sites_without_noise_to_move_keep_the_convex_update(key):
    def model():
        numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("direction", dist.ProjectedNormal(jnp.array([1.0, 0.0])))
        numpyro.sample("b", dist.Normal(0.0, 1.0))

    program = Program.of(model)
    assert noise_shape(program["direction"]) is None
    guide = asvi.AutoASVI(model, family=Coupled())
    assert np.isfinite(asvi.ELBO().loss(key, {}, model, guide))
    assert guide.inputs["b"].dense == ("a",)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": "all"}, "choose auto, globals or none"),
        ({"max_edges": -1}, "max_edges"),
        ({"window": 1.5}, "window"),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(FamilyError, match=message):
        Coupled(**settings)


# --------------------------------------------------------------- a start at the nearest Gaussian


def elbo_at_start(model, args, family, draws=400):
    problem = Problem(model, family, args, {})
    start = problem.initial(jax.random.key(0))
    assert problem.noise_space is not None
    found = race.gaussian_start(problem, start, jax.random.key(2), TrainingSettings())
    assert found is not None
    vector = found.vector
    keys = jax.random.split(jax.random.key(1), draws)
    found = jax.jit(jax.vmap(lambda k: problem.elbo(vector, k)))(keys)
    return float(found.mean()), float(found.std() / draws**0.5)


def tree(y):
    """A linear Gaussian tree, each of its 8 leaves seen with a cousin: colliders everywhere."""
    x = numpyro.sample("root", dist.Normal(0.0, 1.0).expand([1]).to_event(1))
    for depth in range(3):
        x = numpyro.sample(f"x{depth}", dist.Normal(jnp.repeat(x, 2), 1.0).to_event(1))
    numpyro.sample("y", dist.Normal(x + x[::-1] + jnp.roll(x, 3), 0.1).to_event(1), obs=y)


def tree_evidence(y):
    """In closed form: y is a linear map of independent noise."""
    links = np.zeros((15, 15))
    for i in range(15):
        links[i] = links[(i - 1) // 2] if i else 0
        links[i, i] = 1.0
    leaves = links[7:]
    mixed = leaves + leaves[::-1] + np.roll(leaves, 3, 0)
    covariance = mixed @ mixed.T + 0.01 * np.eye(8)
    _sign, log_det = np.linalg.slogdet(2 * np.pi * covariance)
    return -0.5 * (log_det + y @ np.linalg.solve(covariance, y))


@pytest.mark.slow
def test_a_gaussian_tree_with_colliders_is_exact_at_its_start():
    y = np.array([1.0, -2.0, 0.5, 3.0, 0.0, 1.0, -1.0, 2.0])
    evidence = tree_evidence(y)
    elbo, error = elbo_at_start(tree, (jnp.asarray(y, jnp.float32),), Coupled())
    assert abs(elbo - evidence) < 0.05
    assert error < 0.02
    convex = asvi.fit(
        tree,
        jnp.asarray(y, jnp.float32),
        family=ConvexUpdate(),
        training=asvi.Training(num_steps=3000, num_restarts=2),
        progress_bar=False,
    )
    assert evidence - convex.elbo > 1.0  # nats that the parents alone cannot hold


def test_a_chain_is_exact_at_its_start():
    task = asvi.tasks.get("brownian")
    elbo, _error = elbo_at_start(task.model, task.args, Coupled())
    assert abs(elbo - task.log_evidence) < 0.01


def counts(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Poisson(jnp.exp(2 * x)), obs=y)


def test_the_gaussian_is_the_nearest_one_not_the_mode():
    problem = Problem(counts, Coupled(), (3,), {})
    start = problem.initial(jax.random.key(0))
    found = find_gaussian(problem, problem.params(start))

    def loss(at):  # the ELBO is known in closed form
        m, log_s = at
        s2 = np.exp(2 * log_s)
        return 0.5 * (m**2 + s2) - 6 * m + np.exp(2 * m + 2 * s2) - log_s

    best = minimize(loss, [0.0, -1.0]).x
    assert found is not None
    np.testing.assert_allclose(found.mean[0], best[0], atol=0.01)
    np.testing.assert_allclose(found.precision.diagonal()[0] ** -0.5, np.exp(best[1]), rtol=0.03)
    mode = minimize(lambda m: 0.5 * m[0] ** 2 - 6 * m[0] + np.exp(2 * m[0]), [0.0]).x[0]
    assert abs(found.mean[0] - mode) > 0.05  # the two can be told apart


def test_a_natural_gradient_keeps_the_precision_positive():
    rng = np.random.default_rng(0)
    cells = BlockStructure(np.arange(4))
    for _ in range(20):
        root = rng.normal(size=(4, 4))
        hessian = rng.normal(size=(4, 4)) * 10
        precision = Arrowhead(cells, root @ root.T + np.eye(4))
        moved = natural_step(
            np.zeros(4), precision, np.ones(4), Arrowhead(cells, hessian + hessian.T), 1.0
        )
        assert moved is not None
        assert np.linalg.eigvalsh(moved[1].to_dense()).min() > 0


def raw_regression(x, y):
    b = numpyro.sample("b", dist.Normal(0.0, 10.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ b, 1.0).to_event(1), obs=y)


@pytest.mark.slow
def test_scales_that_span_many_orders_are_fitted(float64, no_first_look):
    rng = np.random.default_rng(0)
    columns = [np.ones(60), rng.normal(2000.0, 5.0, 60), rng.normal(5e4, 1e4, 60)]
    x = np.stack(columns, 1).astype(np.float64)
    y = x @ np.array([3.0, -0.01, 2e-4]) + rng.normal(size=60)
    covariance = 100 * x @ x.T + np.eye(60)
    evidence = -0.5 * (
        np.linalg.slogdet(2 * np.pi * covariance)[1] + y @ np.linalg.solve(covariance, y)
    )
    result = asvi.fit(
        raw_regression, x, y, progress_bar=False, training=asvi.Training(num_steps=3000)
    )
    assert result.run.start == "gaussian"
    assert abs(result.elbo - evidence) < 0.01
    assert result.diagnose().verdict == "good"
    # The noise is b / 10, and its posterior precision this:
    precision = np.eye(3) + 100 * x.T @ x
    worth = 0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1])
    np.testing.assert_allclose(result.run.coupling_gain, worth, rtol=0.02)
    assert result.family_reason.startswith("Coupled, the default")
    assert f"worth up to {result.run.coupling_gain:.2g} nat" in result.family_reason


def test_other_families_take_no_such_start():
    problem = Problem(mixed_model, MeanField(), (jnp.zeros(3),), {})
    assert problem.noise_space is None


def test_a_lane_that_overflows_leaves_the_others_alone():
    lanes = new_state(jnp.zeros((2, 3)))
    settings = ChunkInputs(jnp.full(2, 0.1), jnp.eye(2), jnp.ones((2, 2)), jnp.zeros(()))
    gradients = jnp.array([[1e30, 1e30, 1e30], [1.0, 2.0, 3.0]])
    after, seen = _apply(lanes, jnp.array([1.0, 1.0]), gradients, settings)
    assert np.isfinite(np.asarray(after.free)).all()
    np.testing.assert_allclose(after.free[1], -0.1, rtol=1e-5)
    assert after.skipped.tolist() == [1.0, 0.0]
    assert np.isfinite(seen["spread"][1])


def test_a_gate_is_never_shut_for_good():
    """A prior weight of 1 in single precision has no gradient; here the optimum is 0.5."""

    def model(own_gate, y):
        numpyro.param("my/prior_weight", own_gate)  # a name of the model's own is no gate
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a, 1.0), obs=y)

    args = (jnp.array(7.0), jnp.array(2.0))
    problem = Problem(model, asvi.families.ConvexUpdate(), args, {})
    names = problem.vector.unflatten(jnp.asarray(upper_limits(problem)))
    assert names["auto/a/loc/prior_weight"] == pytest.approx(2.03, abs=0.01)
    assert np.isinf(names["my/prior_weight"])
    assert np.isinf(names["auto/a/loc/data_term"])

    start = problem.vector.unflatten(problem.initial(jax.random.key(0)))
    start |= {n: jnp.asarray(6.0) for n in start if n.startswith("auto/a") and "weight" in n}
    free = jax.flatten_util.ravel_pytree(start)[0][None]
    settings = ChunkInputs(jnp.full(1, 0.05), jnp.eye(1), jnp.ones((1, 2)), jnp.zeros(1))
    ends = {}
    for name, limit in (("free", None), ("held", jnp.asarray(upper_limits(problem)))):
        lanes = new_state(free, limit=limit)
        for i in range(4):
            key = jax.random.key(i)
            lanes, _ = advance(problem, lanes, key, settings, steps=500, draws=4)
        draws = draw_elbos(problem, lanes.free, jax.random.key(9), draws=512)
        ends[name] = float(draws.mean())
    exact = float(dist.Normal(0.0, jnp.sqrt(2.0)).log_prob(2.0))
    assert ends["held"] == pytest.approx(exact, abs=0.02)
    assert ends["free"] < exact - 0.3


def test_a_run_holds_gates_below_1_and_not_above_0():
    def model(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a, 1.0), obs=y)

    problem = Problem(model, ConvexUpdate(), (jnp.array(2.0),), {})
    state = race.begin(problem, jax.random.key(0), TrainingSettings(chunk=2))
    upper = problem.vector.unflatten(state.parallel.limit[0])["auto/a/scale/prior_weight"]
    assert float(upper) < 3
    lanes = new_state(jnp.array([[-9.0, 2.0]]), limit=jnp.array([[2.0, 2.0]]))
    settings = ChunkInputs(jnp.full(1, 0.1), jnp.eye(1), jnp.ones((1, 2)), jnp.zeros(1))
    after, _ = _apply(lanes, jnp.ones(1), jnp.array([[1.0, -1.0]]), settings)
    np.testing.assert_allclose(after.free[0], [-9.1, 2.0], rtol=1e-5)


def test_when_a_run_has_gained_enough():
    enough, plan = stopping.is_enough, TrainingSettings(tolerance=0.01)
    assert enough([0.4, 0.005], 0.0, plan)
    assert enough([0.4, 0.02], 0.001, plan)  # the next would gain 0.001
    assert not enough([0.4, 0.05], 0.001, plan)
    assert not enough([1.0, 2.0], 0.0, plan)
    assert not enough([5.0, -0.4], 0.001, plan)  # a cycle that lost is no end
    assert not enough([705.0, 49.8], 30.0, plan)  # however noisy the measure


@pytest.mark.parametrize(
    ("spread", "gain", "looks"), [(0.0, 0.02, 1), (5.0, 0.02, 4), (0.01, 0.0, 1), (0.3, 0.02, 2)]
)
def test_a_gain_is_measured_again_while_it_may_be_nothing(monkeypatch, spread, gain, looks):
    made = []

    def evaluate(_problem, rows, key, *, draws, streams):
        made.append((key, streams))
        noise = np.random.default_rng(len(made)).normal(size=(4, draws)) * spread
        noise -= noise.mean()
        return np.concatenate([gain + noise, 0.0 * noise])

    monkeypatch.setattr(stopping, "draw_elbos", evaluate)
    found, error = stopping.gain_over(
        jnp.zeros(3), jnp.ones(3), None, jax.random.key(0), TrainingSettings()
    )
    assert len(made) == looks
    assert found == pytest.approx(gain, abs=1e-9)
    assert error == pytest.approx(spread / np.sqrt(512 * looks), rel=0.1, abs=1e-12)


@pytest.mark.slow
def test_a_coupled_fit_is_saved_loaded_and_explained(tmp_path):
    def model(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.HalfNormal(1.0))
        numpyro.sample("y", dist.Normal(a + b, 0.5), obs=y)

    options = {
        "family": Coupled(),
        "progress_bar": False,
        "training": asvi.Training(num_steps=500, num_restarts=2),
    }
    result = asvi.fit(model, 1.0, **options)
    result.save(tmp_path / "fit.asvi")
    again = asvi.load(tmp_path / "fit.asvi", model)
    draws, same = (r.posterior.sample(jax.random.key(1), (50,)) for r in (result, again))
    for site, values in draws.items():
        np.testing.assert_array_equal(values, same[site])
    latent = {site.name: draws[site.name] for site in result.problem.program.latent}
    drawn, log_q = result.posterior.draw(jax.random.key(2), (20,))
    found = result.posterior.log_prob({name: drawn[name] for name in latent})
    np.testing.assert_allclose(found, log_q, rtol=1e-3, atol=1e-2)
    explanation = result.explain()
    assert {row.family for row in explanation.rows} == {"Coupled"}
    assert explanation.missed == ()


def test_sites_may_be_called_as_parameters_are():
    """A site named frame is trained, and one named coupling is not counted as weights."""

    def model(y):
        frame = numpyro.sample("frame", dist.Normal(0.0, 1.0))
        numpyro.sample("coupling", dist.Normal(frame, 1.0))
        numpyro.sample("y", dist.Normal(frame, 1.0), obs=y)

    family = asvi.families.MeanField()
    result = asvi.fit(
        model,
        3.0,
        family=family,
        progress_bar=False,
        training=asvi.Training(num_steps=1500, num_restarts=2),
    )
    assert abs(result.posterior.mean()["frame"] - 1.5) < 0.2
    units = named_step_sizes(result.problem)
    assert all(np.all(np.asarray(value) > 0) for value in units.values())
    assert not any(p.role.couples for p in result.problem.guide.parameters().values())
