"""The everyday suite: sound models, twins of the same law, bridge sampling that finds integrals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import log_density, unconstrain_fn

from benchmarks.everyday import bridge, truth
from benchmarks.everyday.entry import Space, latent_sites
from benchmarks.everyday.suite import ENTRIES, SUITE, TRUTH, stored_truth

STORED = sorted(path.stem for path in TRUTH.glob("*.json"))
TWINS = [name for name, entry in SUITE.items() if entry.truth_model is not None]
TINY = truth.Settings(warm_up=300, draws=500, smallest_effective=200.0, largest_r_hat=1.05)


def latent_shapes(name: str) -> dict[str, tuple[int, ...]]:
    entry = SUITE[name]
    draw = lambda key: latent_sites(entry.model, entry.args, entry.kwargs, key)  # noqa: E731
    return {k: v.shape for k, v in jax.eval_shape(draw, jax.random.key(0)).items()}


def test_names_are_unique_and_say_what_they_stand_for():
    assert len(SUITE) == len(ENTRIES) >= 24
    for entry in ENTRIES:
        assert entry.stands_for.endswith(".")
        assert set(entry.heavy_tailed) <= set(latent_shapes(entry.name))


@pytest.mark.parametrize("name", SUITE)
def test_log_density_is_finite_at_a_prior_draw(name, key, float64):
    entry = SUITE[name]

    @jax.jit
    def at_a_draw(key):
        latent = latent_sites(entry.model, entry.args, entry.kwargs, key)
        return log_density(entry.model, entry.args, entry.kwargs, latent)[0]

    assert np.isfinite(at_a_draw(key))
    assert sum(np.prod(shape) for shape in latent_shapes(name).values()) <= 100


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_the_same_law(name, key, float64):
    """Densities differ by the Jacobian of the map between the two spaces, and by nothing else."""
    entry = SUITE[name]
    data = (entry.args, entry.kwargs)
    twin, space = Space.of(entry.truth_model, *data), Space.of(entry.model, *data)

    def to_model(x):
        sites = {site: twin.constrain(x)[site] for site in latent_shapes(name)}
        return ravel_pytree(unconstrain_fn(entry.model, *data, sites))[0]

    x = 0.3 * jax.random.normal(key, (twin.size,))
    log_volume = jnp.linalg.slogdet(jax.jit(jax.jacfwd(to_model))(x))[1]
    expected = jax.jit(space.log_density)(to_model(x)) + log_volume
    np.testing.assert_allclose(jax.jit(twin.log_density)(x), expected, rtol=1e-8)


def test_bridge_sampling_of_heavy_tails(seed):
    """Student-t with 5 degrees of freedom in 4 dimensions, log integral 3."""
    rng, d, nu = np.random.default_rng(seed), 4, 5.0
    scale = np.array([0.01, 1.0, 10.0, 300.0])
    shared = np.sqrt(rng.chisquare(nu, (4, 4000, 1)) / nu)
    draws = 7.0 + scale * rng.normal(size=(4, 4000, d)) / shared

    def log_densities(x):
        square = (((x - 7.0) / scale) ** 2).sum(-1)
        log_gammas = jax.scipy.special.gammaln(jnp.array([(nu + d) / 2, nu / 2]))
        constant = log_gammas[0] - log_gammas[1] - d / 2 * np.log(nu * np.pi)
        return 3.0 + float(constant) - np.log(scale).sum() - (nu + d) / 2 * np.log1p(square / nu)

    found, error = bridge.log_evidence(log_densities, draws)
    assert error < 0.02
    assert abs(found - 3.0) < 4 * error


def test_bridge_sampling_of_a_banana(seed):
    """y is around the square of x; log integral -5."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4, 4000))
    draws = np.stack([x, rng.normal(x**2, 0.5)], -1)

    def log_densities(z):
        x, y = z.T
        log_normal = -0.5 * (x**2 + ((y - x**2) / 0.5) ** 2)
        return log_normal - np.log(2 * np.pi * 0.5) - 5.0

    found, error = bridge.log_evidence(log_densities, draws)
    assert error < 0.03
    assert abs(found + 5.0) < 4 * error


@pytest.mark.slow
def test_the_whole_way_on_a_regression_with_a_closed_form(float64):
    entry = SUITE["linear-known-noise"]
    found = truth.truth_of(entry, TINY)
    by_bridge = found["bridge"]
    assert found["log_evidence"] == entry.exact_log_evidence
    assert by_bridge["error"] < 0.02
    assert abs(by_bridge["log_evidence"] - entry.exact_log_evidence) < 4 * by_bridge["error"]
    (x,), y = entry.args, entry.kwargs["y"]
    covariance = np.linalg.inv(x.T @ x / 0.5**2 + np.eye(5) / 2.0**2)
    mean, sd = covariance @ x.T @ y / 0.5**2, np.sqrt(np.diagonal(covariance))
    assert np.all(np.abs(found["mean"]["b"] - mean) < 4 * np.array(found["mean_error"]["b"]))
    assert np.all(np.abs(found["sd"]["b"] - sd) < 4 * np.array(found["sd_error"]["b"]))


def test_chains_that_disagree_are_refused_by_name(seed):
    x = np.random.default_rng(seed).normal(size=(4, 500, 2))
    x[3, :, 1] += 3.0
    draws = truth.Draws(x, {"theta": x, "one": np.ones((4, 500))}, lambda z: z, 0, 7.0)
    with pytest.raises(truth.NotSure, match=r"^theta\[1\]: R-hat [^;]*$"):
        truth.check(draws, TINY)


@pytest.mark.parametrize("name", STORED)
def test_a_stored_truth_belongs_to_its_model(name, float64):
    stored, shapes = stored_truth(name), latent_shapes(name)
    for kind in ("mean", "sd", "mean_error", "sd_error"):
        assert {site: np.shape(x) for site, x in stored[kind].items()} == shapes
    np.testing.assert_allclose(stored["fingerprint"], SUITE[name].fingerprint(), rtol=1e-8)
    assert stored["logarithm_of"] == list(SUITE[name].heavy_tailed)
    assert 0.0 <= stored["log_evidence_error"] < 0.1
