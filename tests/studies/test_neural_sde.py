"""The neural SDE study: its generator, data, model, fits, table and store, all in small."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI

import asvi
from asvi.program.run_trace import log_density, trace_of
from experiments.neural_sde import generator as generators
from experiments.neural_sde import scaling, study, table
from experiments.neural_sde.data import pack, unpack
from experiments.neural_sde.fitting import FAMILIES, Budget, Fitter, families
from experiments.neural_sde.process import neural_sde, observed_frames, simulate
from experiments.neural_sde.train_generator import train


@pytest.fixture(scope="module")
def generator():
    return generators.random_generator(jax.random.key(0), latent=4, width=1, channels=1)


@pytest.mark.slow
def test_layers_are_those_of_flax():
    """The same transposed convolutions and normalisation as flax's, given the same weights."""
    from flax import linen

    params = generators.start(jax.random.key(1), latent=3, width=1, channels=2)
    params["kernels"][-1] *= 50.0
    z = jax.random.normal(jax.random.key(2), (6, 3))
    last = len(params["kernels"]) - 1
    x: Any = z[:, None, None, :]
    for i, kernel in enumerate(params["kernels"]):
        size, stride = (1, 1) if i == last else (4, 1 if i == 0 else 2)
        if i == 0:  # flax does not turn the kernel, which shows over one pixel
            kernel = jnp.moveaxis(kernel, 0, 2)[::-1, ::-1]
        padding = "VALID" if i == 0 else "SAME"
        shape = {"kernel_size": (size, size), "strides": (stride, stride), "padding": padding}
        layer = linen.ConvTranspose(kernel.shape[-1], use_bias=False, **shape)
        x = layer.apply({"params": {"kernel": kernel}}, x)
        if i < len(params["gains"]):
            norm = linen.BatchNorm(use_running_average=False, epsilon=1e-5)
            scale = {"scale": params["gains"][i], "bias": params["offsets"][i]}
            empty = {"mean": jnp.zeros_like(scale["bias"]), "var": jnp.ones_like(scale["bias"])}
            variables = {"params": scale, "batch_stats": empty}
            x = jax.nn.relu(norm.apply(variables, x, mutable=["batch_stats"])[0])
    np.testing.assert_allclose(generators.in_training(params, z)[0], jnp.tanh(x), atol=1e-4)


@pytest.mark.slow
def test_folding_keeps_what_training_showed():
    params = generators.start(jax.random.key(1), latent=3, width=1, channels=3)
    z = jax.random.normal(jax.random.key(2), (16, 3))
    made = generators.folded(params, z)
    np.testing.assert_allclose(made(z), generators.in_training(params, z)[0], atol=1e-5)
    assert made.image_shape == (32, 32, 3)


def test_weights_are_stored_as_float16(generator, tmp_path):
    generators.save(generator, tmp_path / "g.npz")
    z = jnp.ones((2, 4))
    np.testing.assert_allclose(generators.load(tmp_path / "g.npz")(z), generator(z), atol=0.02)


@pytest.mark.parametrize("channels", [1, 3])
def test_packing_loses_nothing(channels, tmp_path):
    data = np.random.default_rng(0).integers(0, 256, (3, 8, 8, channels), dtype=np.uint8)
    pack(data, tmp_path / "x.npz")
    np.testing.assert_array_equal(unpack(tmp_path / "x.npz"), data)


@pytest.mark.slow
def test_training_runs():
    data = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 1), dtype=np.uint8)
    made, account = train(data, latent=3, key=jax.random.key(0), width=1, steps=2, batch=4, chunk=1)
    assert account["steps"] == len(account["losses"]) == 2
    assert bool(jnp.all(jnp.isfinite(made(jnp.ones((1, 3))))))


def test_density_is_the_process(generator):
    """The model's log density, term by term from the equations of the process."""
    episode = simulate(jax.random.key(3), generator, "bridging", noise=0.7)
    first, second = episode.drift.first, episode.drift.second
    path, total = episode.path, 0.0
    for t in range(10):
        before = path[t - 1] if t else jnp.zeros(4)
        mean = before + second @ jnp.tanh(before + jnp.tanh(first @ before))
        total += dist.Normal(mean, 1.0).log_prob(path[t]).sum()
        if t in (0, 1, 2, 8, 9):
            total += dist.Normal(generator(path[t]), 0.7).log_prob(episode.frames[t]).sum()
    data = (episode.drift, generator, episode.frames, episode.seen, 0.7)
    trace = trace_of(neural_sde, jax.random.key(0), {}, {"x": path}, data, {})
    found = sum(log_density(site) for site in trace.values() if site["type"] == "sample")
    np.testing.assert_allclose(found, total, rtol=1e-5)


def test_unknown_problems_are_named():
    with pytest.raises(ValueError, match="filtering, bridging"):
        observed_frames("smoothing")
    assert int(observed_frames("filtering").sum()) == 10


@pytest.mark.slow
def test_coupled_listens_within_a_step_and_to_the_last(generator):
    guide = asvi.autoguide(neural_sde, family=families(4, 10)["coupled"])
    episode = simulate(jax.random.key(3), generator, "filtering")
    svi = SVI(neural_sde, guide, asvi.natural_units(optax.adam(1e-2), guide), asvi.ELBO())
    data = (episode.drift, generator, episode.frames, episode.seen)
    params = svi.get_params(svi.init(jax.random.key(0), *data))
    assert params["auto/x/coupling/within"].shape == (10, 4, 4)
    assert params["auto/x/coupling/window"].shape == (10, 4, 4)


@pytest.mark.slow
def test_the_study_runs_resumes_and_reports(generator, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, "WEIGHTS", tmp_path)
    generators.save(generator, tmp_path / "tiny.npz")
    budget = Budget(steps=4, draws=1, chunk=2, judge_draws=4, judge_batch=2)
    settings = study.Settings(("tiny",), 2, budget, families=("mean field",))
    store = study.Store(tmp_path / "results")
    for family in settings.families:
        study.run("tiny", family, settings, store, 1e9)
    assert len(store.rows) == 2 * 2
    for key in ("generator", "problem", "family", "repetition", "neg_elbo", "neg_elbo_se"):
        assert key in store.rows[0]
    assert all(np.isfinite(row["rmse_image"] + row["rmse_latent"]) for row in store.rows)
    capsys.readouterr()
    study.run("tiny", "mean field", settings, store, 1e9)
    assert capsys.readouterr().out.count("stored already") == 2
    from experiments.neural_sde.figures import draw_all

    assert all(path.exists() for path in draw_all(store))
    assert "| tiny | bridging | mean field |" in table.to_markdown(store.rows)


def test_comparisons_are_paired():
    rows = [
        {
            "generator": "g",
            "problem": "p",
            "family": family,
            "repetition": i,
            "neg_elbo": value,
            "rmse_image": 0.1,
            "rmse_latent": 1.0,
        }
        for family, values in {"convex": (1.0, 11.0, 21.0), "linear": (2.0, 12.5, 22.5)}.items()
        for i, value in enumerate(values)
    ]
    found = table.compare(rows, "g", "p", "convex", "linear")
    gains = np.array([1.0, 1.5, 1.5])
    t = gains.mean() / (gains.std(ddof=1) / 3**0.5)
    np.testing.assert_allclose([found["gain"], found["t"]], [gains.mean(), t], rtol=1e-6)
    from scipy import stats

    np.testing.assert_allclose(found["p"], stats.t.sf(t, 2), rtol=1e-4)
    assert found["won"] == "3 of 3"


@pytest.mark.slow
def test_a_step_is_measured_beside_the_generator_alone():
    found = scaling.one_case("convex", latent=3, frames=2, draws=1, width=1)
    assert min(found["ratio"], found["memory_mb"]) > 0


def test_scaling_has_the_sizes_that_were_asked_for():
    sizes = list(scaling.cases(small=False))
    assert {case["frames"] for case in sizes} == {10, 100, 1000}
    assert {case["draws"] for case in sizes} == {1, 10, 100}
    assert len({json.dumps(case) for case in sizes}) == len(sizes)


def test_every_family_has_a_fitter(generator):
    assert tuple(families(4, 10)) == FAMILIES
    for family in families(4, 10).values():
        assert Fitter(generator, family, Budget()).budget.steps == 4000
