"""The embedded tasks: exact answers recomputed, loop and scan the same model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density

import asvi
from asvi.errors import AsviError
from benchmarks.exact import particles, quadrature
from tests.support.marks import all_but

STATED = {
    "brownian": (5.6130, 1e-4),
    "brownian-global": (1.1877, 1e-4),
    "lorenz": (-29.215, 0.02),
    "lorenz-global": (-30.08, 0.03),
    "eight-schools": (-36.1308, 1e-4),
    "radon": (-1076.951, 2e-3),
}
COARSE = {
    "brownian": quadrature.brownian,
    "brownian-global": lambda *a: quadrature.brownian_global(*a, spacing=0.1, reach=10.0),
    "eight-schools": lambda *a: quadrature.eight_schools(*a, spacing=0.05),
    "radon": lambda *a: quadrature.radon(*a, points=(81, 27)),
}


@pytest.mark.parametrize("name", asvi.tasks.names())
def test_log_evidence_is_the_one_known(name):
    value, error = STATED[name]
    task = asvi.tasks.get(name)
    assert abs(task.log_evidence - value) < error
    assert task.log_evidence_error < 0.01
    assert task.citation
    assert task.description


@pytest.mark.parametrize("name", sorted(COARSE))
def test_stored_answers_are_what_the_code_computes(name):
    task = asvi.tasks.get(name)
    again = COARSE[name](*task.args)
    assert abs(again["log_evidence"] - task.log_evidence) < 2e-4
    for site, mean in task.moments.mean.items():
        sd = task.moments.sd[site]
        np.testing.assert_allclose(again["mean"][site], mean, atol=2e-3 * np.max(sd))
        np.testing.assert_allclose(again["sd"][site], sd, rtol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", all_but(["lorenz"], ["lorenz", "lorenz-global"]))
def test_a_small_particle_filter_agrees(name):
    task = asvi.tasks.get(name)
    again = particles.lorenz(
        *task.args, unknown_scales=name.endswith("global"), particles=20_000, runs=8
    )
    spread = np.hypot(again["log_evidence_error"], task.log_evidence_error)
    assert abs(again["log_evidence"] - task.log_evidence) < 4 * spread
    # Few of the first particles have descendants, and the scales have long tails.
    for site in ("x0", "x"):
        mean, sd = task.moments.mean[site], task.moments.sd[site]
        assert np.mean(np.abs(again["mean"][site] - mean) / sd) < 0.15
        assert np.mean(np.abs(again["sd"][site] / sd - 1)) < (0.3 if "global" in name else 0.1)


def test_quadrature_against_importance_sampling_from_the_prior(float64):
    """An independent check of the formulas: eight schools' evidence by 2 million prior draws."""
    sigma, y = map(jnp.asarray, asvi.tasks.get("eight-schools").args)
    keys = jax.random.split(jax.random.key(0))
    mu = 10 * jax.random.normal(keys[0], (2_000_000,))
    tau = jnp.exp(5 + jax.random.normal(keys[1], (2_000_000,)))
    variance = tau[:, None] ** 2 + sigma**2  # each effect integrated out
    log = -0.5 * (jnp.log(2 * jnp.pi * variance) + (y - mu[:, None]) ** 2 / variance).sum(-1)
    weight = jnp.exp(log - log.max())
    found = float(jnp.log(weight.mean()) + log.max())
    error = float(weight.std() / weight.mean() / len(weight) ** 0.5)
    assert abs(found - asvi.tasks.get("eight-schools").log_evidence) < 4 * error
    assert error < 0.05


@pytest.mark.parametrize("name", ["brownian", "lorenz"])
def test_loop_and_scan_have_the_same_density(name, key):
    task = asvi.tasks.get(name)
    assert task.loop is not None
    x = 0.1 * jax.random.normal(key, (30, 3) if name == "lorenz" else (30,))
    whole = {"x0": x[0], "x": x[1:]} if name == "lorenz" else {"x": x}
    pieces = {f"x_{t}": x[t] for t in range(30)}
    under_scan = log_density(task.model, task.args, {}, whole)[0]
    in_a_loop = log_density(task.loop, task.args, {}, pieces)[0]
    np.testing.assert_allclose(under_scan, in_a_loop, rtol=1e-4)


@pytest.mark.parametrize("name", asvi.tasks.names())
def test_moments_have_the_shapes_of_the_sites(name):
    task = asvi.tasks.get(name)
    shapes = {site.name: site.shape for site in asvi.Program.of(task.model, *task.args).latent}
    assert {k: v.shape for k, v in task.moments.mean.items()} == shapes
    assert {k: v.shape for k, v in task.moments.sd.items()} == shapes


def test_an_unknown_task_lists_the_known_ones():
    with pytest.raises(AsviError, match=r"no task 'lorentz'. Did you mean 'lorenz'(?s:.*)radon"):
        asvi.tasks.get("lorentz")
