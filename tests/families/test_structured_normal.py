"""The Gaussian over a program's noise: its laws, what fit finds, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.contrib.control_flow import cond, scan
from numpyro.infer import SVI, Predictive, Trace_ELBO

import asvi
from asvi.density.arrowhead import Arrowhead
from asvi.density.curvature import block_density, precision
from asvi.density.evaluators import CompiledEvaluator, NumpyEvaluator
from asvi.density.settings import DensitySettings, EvaluatorSettings
from asvi.errors import FamilyError, SiteError
from asvi.families import Coupled, StructuredNormal
from asvi.fitting.gaussian.search import find_nearest_gaussian
from asvi.fitting.outcome import Outcome
from asvi.fitting.problem import Problem
from asvi.program.run_trace import log_density, trace_of
from benchmarks import large
from tests.support.helpers import params_of, random_walk
from tests.support.marks import every

Y = np.array([1.0, -2.0, 4.0, 7.0], np.float32)


def groups(y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    tau = numpyro.sample("tau", dist.HalfNormal(5.0))
    with numpyro.plate("group", 4):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
        numpyro.sample("y", dist.Normal(theta + share[..., 0], 1.0), obs=y)


def walk(y):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))

    def step(x, y_t):
        x = numpyro.sample("x", dist.Normal(x, scale))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y_t)
        return x, None

    scan(step, 0.0, y)


def many(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", 70):
        a = numpyro.sample("a", dist.Normal(mu, 1.0))
        b = numpyro.sample("b", dist.Normal(a, 1.0))
        numpyro.sample("y", dist.Normal(a + b, 1.0), obs=y)


MODELS = {"groups": (groups, Y), "walk": (walk, Y), "many": (many, np.zeros(70, np.float32))}


def moved(guide, y, rng):
    """Parameters of a guide away from their start."""
    params = params_of(guide, y)
    for name, x in params.items():
        noise = rng.normal(size=x.shape).astype(np.float32)
        if name.endswith("/core") or "/cell" in name:
            params[name] = x + 0.2 * jnp.tril(noise, -1)
        else:
            params[name] = (
                jnp.asarray(rng.uniform(size=x.shape)) if "centring" in name else (x + 0.3 * noise)
            )
    return params


@pytest.mark.parametrize("name", MODELS)
def test_at_its_start_it_is_the_prior(name, key):
    model, y = MODELS[name]
    guide = asvi.autoguide(model, family=StructuredNormal())
    params = params_of(guide, y)
    drawn = trace_of(guide, key, params, {}, (y,), {})
    values = {site.name: drawn[site.name]["value"] for site in guide.program.latent}
    met = trace_of(model, key, {}, values, (y,), {})
    for site, value in values.items():
        if site == "share":  # a Dirichlet is no normal distribution behind a map
            continue
        assert jnp.allclose(log_density(drawn[site]), log_density(met[site]), atol=2e-3), site
        assert value.shape == met[site]["value"].shape


@pytest.mark.parametrize("name", MODELS)
def test_its_density_is_that_of_its_draws(name, key, seed):
    """Site by site, as drawn, and again from the values alone."""
    model, y = MODELS[name]
    guide = asvi.autoguide(model, family=StructuredNormal())
    params = moved(guide, y, np.random.default_rng(seed))
    assert bool(guide.structure.groups) == (name == "many")
    drawn = trace_of(guide, key, params, {}, (y,), {})
    values = {site.name: drawn[site.name]["value"] for site in guide.program.latent}
    total = sum(log_density(s) for s in drawn.values() if s["type"] == "sample")
    again = guide.log_density(params, values, (y,), {})
    assert jnp.allclose(total, again, rtol=1e-3, atol=1e-2)


def test_its_density_is_normalised():
    """By quadrature over both numbers, at parameters away from the start."""

    def model(y):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
        x = numpyro.sample("x", dist.Normal(1.0, scale))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    y = np.float32(0.3)
    guide = asvi.autoguide(model, family=StructuredNormal())
    params = params_of(guide, y)
    params["auto/loc"] = jnp.array([0.2, -0.3])
    params["auto/core"] = jnp.array([[0.6, 0.0], [0.5, 0.8]])
    params["auto/centring"] = jnp.array([0.0, 0.7])
    params["auto/anchor"] = jnp.array([0.0, 0.4])
    log_s, x = np.linspace(-2.5, 2.5, 201), np.linspace(-25, 27, 801)
    grid = np.stack(np.meshgrid(log_s, x, indexing="ij"), -1).reshape(-1, 2).astype(np.float32)

    def one(at):
        values = {"scale": jnp.exp(at[0]), "x": at[1]}
        return guide.log_density(params, values, (y,), {}) + at[0]

    total = np.exp(np.asarray(jax.vmap(one)(grid), float)).sum()
    assert abs(total * (log_s[1] - log_s[0]) * (x[1] - x[0]) - 1) < 1e-3


def test_a_gaussian_posterior_is_found_exactly_and_is_all_the_default_does():
    y = np.random.default_rng(0).normal(size=12).astype(np.float32)
    result = asvi.fit(random_walk(1.0, 0.7), y, progress_bar=False)
    assert isinstance(result.problem.family, StructuredNormal)
    covariance = np.minimum.outer(np.arange(1, 13), np.arange(1, 13)) + 0.49 * np.eye(12)
    exact = -0.5 * (
        y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1]
    )
    assert abs(result.elbo - exact) < 1e-4
    assert result.diagnose().verdict == "good"
    assert abs(result.log_evidence - exact) < 1e-4
    assert result.correction.rung == "weights"
    asked = asvi.fit(
        random_walk(1.0, 0.7),
        y,
        family=Coupled(),
        progress_bar=False,
        training=asvi.Training(num_steps=500),
    )
    assert isinstance(asked.problem.family, Coupled)


@pytest.mark.slow
def test_with_more_effort_what_is_no_gaussian_is_left_to_the_coupled_family():
    task = asvi.tasks.get("eight-schools")
    options = {"effort": "thorough", "progress_bar": False}
    result = asvi.fit(task.model, *task.args, training=asvi.Training(num_steps=1500), **options)
    assert isinstance(result.problem.family, Coupled)
    near = asvi.fit(task.model, *task.args, training=asvi.Training(elbo_tolerance=0.5), **options)
    assert isinstance(near.problem.family, StructuredNormal)
    assert near.elbo < result.elbo < task.log_evidence + 0.02


@pytest.mark.parametrize(
    "message", every(2, ["interrupted: the best so far", "stopped after 500 steps"])
)
def test_the_first_look_is_kept_where_the_run_ends_lower(monkeypatch, message):
    def low(problem, *_args, **_kwargs):
        details = SimpleNamespace(rounding=0.0, skipped_steps=0, gains=[0.0])
        return Outcome(-1e3, 0.1, np.zeros(2), {}, False, message, 500, 1.0, details, problem)

    monkeypatch.setattr("asvi.fitting.rungs.trained.train", low)
    monkeypatch.setattr("asvi.fitting.rungs.trained.correct_guide", lambda *_: None)
    monkeypatch.setattr("asvi.fitting.rungs.trained._check", lambda outcome, _: outcome)
    result = asvi.fit(
        groups, Y, progress_bar=False, training=asvi.Training(num_steps=500), effort="thorough"
    )
    assert isinstance(result.problem.family, StructuredNormal)
    assert "Coupled was no better" in result.family_reason
    assert ("interrupted" in result.message) == (not result.converged) == ("inter" in message)


@pytest.mark.parametrize(("name", "most"), [("eight-schools", 0.15), ("radon", 0.2)])
def test_hierarchies_are_centred_as_far_as_the_data_ask(name, most):
    """Without centring both gaps are larger than this."""
    task = asvi.tasks.get(name)
    result = asvi.fit(task.model, *task.args, family=StructuredNormal(), progress_bar=False)
    assert -0.02 < task.log_evidence - result.elbo < most
    assert 0 < result.run.centring < 1
    assert result.diagnose().verdict != "not trustworthy"


def test_many_groups_in_cells():
    y = large.data(300)
    evidence, exact = large.truth(y)
    result = asvi.fit(large.model, y, family=StructuredNormal(), progress_bar=False)
    assert result.problem.guide.structure.groups
    assert -0.05 < evidence - result.elbo < 0.3
    draws = result.posterior.sample(jax.random.key(0), (4000,))
    for site, (mean, sd) in exact.items():
        assert abs(np.mean(draws[site]) - mean) < 0.15 * sd


def test_crossed_groups_are_taken_as_one():
    """Plates say that both are apart; every observation belongs to one of each."""

    rng = np.random.default_rng(0)
    i, j = rng.integers(0, 70, (2, 300))

    def model(y):
        with numpyro.plate("row", 70):
            a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with numpyro.plate("column", 70):
            b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a[i] + b[j], 1.0).to_event(1), obs=y)

    y = rng.normal(size=300).astype(np.float32)
    result = asvi.fit(model, y, family=StructuredNormal(), progress_bar=False)
    assert not result.problem.guide.structure.groups
    same = np.equal.outer(i, i) * 1.0 + np.equal.outer(j, j) + np.eye(300)
    exact = -0.5 * (y @ np.linalg.solve(same, y) + np.linalg.slogdet(2 * np.pi * same)[1])
    assert abs(result.elbo - exact) < 0.01


def test_variances_of_an_arrow(seed):
    rng = np.random.default_rng(seed)
    cells = asvi.density.block_structure.BlockStructure(
        np.array([0, 3]), (np.array([[1, 2], [4, 5]]),)
    )
    full = Arrowhead.of_entries(cells, lambda i, j: 1.0 * (i == j)).to_dense()
    root = rng.normal(size=(6, 6))
    values = 8 * full + root + root.T
    arrow = Arrowhead.of_entries(cells, lambda i, j: values[i, j])
    among = np.array([True, True, True, False, True, True])
    wanted = np.zeros(6)
    wanted[among] = np.diag(np.linalg.inv(arrow.to_dense()[np.ix_(among, among)]))
    np.testing.assert_allclose(arrow.variances(among), wanted, rtol=1e-9)


def test_it_works_in_numpyro(key):
    guide = asvi.autoguide(groups, family=StructuredNormal())
    for loss in (asvi.ELBO(num_particles=4), Trace_ELBO(num_particles=4)):
        svi = SVI(groups, guide, optax.adam(0.02), loss)
        state = svi.run(key, 500, Y, progress_bar=False)
        assert np.mean(state.losses[-50:]) < np.mean(state.losses[:50])
    draws = guide.sample_posterior(key, state.params, sample_shape=(50,))
    assert draws["share"].shape == (50, 4, 3)
    assert guide.median(state.params)["theta"].shape == (4,)
    predicted = Predictive(groups, guide=guide, params=state.params, num_samples=10)(key)
    assert predicted["y"].shape == (10, 4)


def test_it_is_saved_explained_and_drawn_from(tmp_path, key):
    result = asvi.fit(groups, Y, family=StructuredNormal(), progress_bar=False)
    result.save(tmp_path / "fit.asvi")
    loaded = asvi.load(tmp_path / "fit.asvi", groups)
    first, second = (r.posterior.sample(key, (20,)) for r in (result, loaded))
    assert all(jnp.array_equal(first[name], second[name]) for name in first)
    told = result.explain()
    assert not told.missed
    assert 0 < told.rows[-1].prior_weights["noise"] <= 1
    gap = result.posterior.model_log_prob(first) - result.posterior.log_prob(first)
    assert abs(float(gap.mean()) - result.elbo) < 1.0
    again = asvi.fit(groups, Y, family=StructuredNormal(), progress_bar=False)
    assert again.elbo == result.elbo
    assert all(jnp.array_equal(result.params[n], again.params[n]) for n in result.params)
    asvi.plot.prior_weights(result)
    asvi.plot.losses(result)


def branching(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    cond(x > 0, *(lambda _: numpyro.sample("z", dist.Normal(0.0, 1.0)) for _ in range(2)), None)
    numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def counted(y):
    k = numpyro.sample("k", dist.Poisson(2.0))
    numpyro.sample("y", dist.Normal(k, 1.0), obs=y)


def trained(y):
    scale = numpyro.param("scale", 1.0, constraint=dist.constraints.positive)
    x = numpyro.sample("x", dist.Normal(0.0, scale))
    numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def long_walk(y):
    random_walk(1.0, 1.0)(jnp.zeros(400))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (branching, "branches"),
        (counted, "'k' has infinitely many values"),
        (trained, "the model has 'scale'"),
        (long_walk, "more than 250"),
    ],
)
def test_what_it_does_not_hold_is_refused(model, said):
    with pytest.raises(FamilyError, match=said) as told:
        asvi.fit(model, np.float32(1.0), family=StructuredNormal(), progress_bar=False)
    assert "asvi.fit(model, y" in str(told.value)


def test_bad_data_are_named_before_anything_is_looked_for():
    bad = Y.copy()
    bad[1] = np.nan
    with pytest.raises(SiteError, match="site 'y'"):
        asvi.fit(groups, bad, family=StructuredNormal(), progress_bar=False)


@pytest.mark.parametrize("name", MODELS)
def test_numpy_and_the_compiler_see_the_same(name):
    model, y = MODELS[name]
    problem = Problem(model, StructuredNormal(), (y,), {})
    space, rng = problem.noise_space, np.random.default_rng(0)
    points = 0.3 * rng.normal(size=(5, space.size))
    centring, anchor = rng.uniform(size=space.size), 0.1 * rng.normal(size=space.size)
    seen = []
    with jax.enable_x64(True):
        for cost in (1e9, 0.0):
            settings = DensitySettings(evaluator=EvaluatorSettings(max_numpy_cost=cost))
            density = block_density(space, {}, True, settings)
            density = replace(density, centring=centring, anchor=anchor)
            at = density(points)
            seen.append(
                (
                    density.evaluator,
                    at.value,
                    at.slope,
                    at.hessian.to_dense(),
                    density.prior_moments(points),
                )
            )
            np.testing.assert_allclose(density.values(points), at.value, rtol=1e-10)
            assert density.is_fine()
    # Loops over steps are left to the compiler.
    assert isinstance(seen[0][0], CompiledEvaluator if name == "walk" else NumpyEvaluator)
    assert isinstance(seen[1][0], CompiledEvaluator)
    for ours, theirs in zip(seen[0][1:4], seen[1][1:4], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(seen[0][4], seen[1][4], rtol=1e-10)


def test_an_operation_that_numpy_does_not_know_is_left_to_the_compiler():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(jnp.sort(x), 1.0).to_event(1), obs=y)

    result = asvi.fit(model, Y[:3], family=StructuredNormal(), progress_bar=False)
    assert np.isfinite(result.elbo)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("bad", [1e39, -1e300])
def test_numbers_too_large_for_single_precision_are_named(bad):
    with pytest.raises(SiteError, match="site 'y'"):
        asvi.fit(
            groups, np.array([1.0, bad, 2.0, 3.0]), family=StructuredNormal(), progress_bar=False
        )


def test_where_newtons_path_ends_at_the_posterior_nothing_is_compiled():
    """However many the data: these would go to the compiler, were there more to look at."""
    x = np.random.default_rng(0).normal(size=(3000, 9))
    y = x @ np.arange(9.0) + np.random.default_rng(1).normal(size=3000)

    def regression(x, y):
        slopes = numpyro.sample("slopes", dist.Normal(0, 10).expand([9]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ slopes, 1.0), obs=y)

    problem = Problem(regression, StructuredNormal(), (x, y), {})
    found = find_nearest_gaussian(problem, None, 0.01)
    assert isinstance(found.density.evaluator, CompiledEvaluator)
    assert not found.density.evaluator.run._made
    assert found.distance < 0.01
    exact = np.linalg.solve(x.T @ x + np.eye(9) / 100, x.T @ y)
    with precision(True):
        slopes = found.density.sites(found.mean[None])["slopes"][0]
    np.testing.assert_allclose(slopes, exact, atol=2e-4)
