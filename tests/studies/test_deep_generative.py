"""The deep generative study: its data, its model, and that the library computes what JAX does."""

from __future__ import annotations

import gzip
import struct

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpyro.infer import SVI

import asvi
from experiments.deep_generative import data
from experiments.deep_generative.by_hand import loss_by_hand
from experiments.deep_generative.model import PIXELS, deep_generative, family, scales
from experiments.deep_generative.study import _encoder


def write_idx(path, array, packed=False):
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    raw = head + array.tobytes()
    path.write_bytes(gzip.compress(raw) if packed else raw)


@pytest.mark.parametrize("name", data.NAMES)
def test_samples_are_there(name):
    images = data.sample(name)
    assert images.train_images.shape == (1000, 28, 28)
    assert images.test_images.dtype == np.uint8
    assert set(images.test_labels) <= set(range(10))
    assert "1,000" in images.note


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_of_a_folder_are_read(tmp_path, packed):
    images = data.sample("kmnist")
    folder = tmp_path / "kmnist"
    folder.mkdir()
    for part, file in data.FILES.items():
        path = folder / (file + ".gz" if packed else file)
        write_idx(path, getattr(images, part), packed)
    found = data.load("kmnist", tmp_path)
    np.testing.assert_array_equal(found.train_images, images.train_images)
    # Files of the same names in a folder of another name could be any set's.
    folder.rename(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="download=True"):
        data.load("kmnist", tmp_path / "other")


def test_a_download_with_a_wrong_checksum_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(data.PACKAGED, "mnist", ())
    monkeypatch.setattr(data, "_fetch", lambda url, tell: b"not the file")
    with pytest.raises(OSError, match="checksum"):
        data.load("mnist", download=True)
    assert not list((tmp_path / "asvi" / "mnist").iterdir())


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="mnist, kmnist"):
        data.load("cifar")
    with pytest.raises(ValueError, match="sd, variance"):
        scales("precision")


@pytest.mark.slow
def test_the_library_computes_what_is_written_by_hand():
    images = jax.random.uniform(jax.random.key(0), (3, PIXELS))
    args = (images, jnp.array([1, 5, 9]), scales("variance"))
    guide = asvi.AutoASVI(deep_generative, family=family("convex"))
    svi = SVI(deep_generative, guide, optax.adam(1e-3), asvi.ELBO())
    jax.eval_shape(lambda key: svi.init(key, *args), jax.random.key(0))
    params = svi.get_params(jax.jit(svi.init)(jax.random.key(1), *args))
    params["auto/z2/loc/prior_weight"] = jnp.full((1, 50), 0.3)
    logit = jnp.log(0.3 / 0.7) / 4.0
    by_hand = {
        "networks": params["networks"],
        "encoder": _encoder(params),
        "gates": {"z2": jnp.full((1, 50), logit), "z3": jnp.zeros((1, 100))},
    }
    keys = jax.random.split(jax.random.key(2), 2000)
    loss = asvi.ELBO()

    @jax.jit
    def both(keys):
        ours = jax.vmap(lambda k: loss.loss(k, params, deep_generative, guide, *args))(keys)
        return ours, jax.vmap(lambda k: loss_by_hand(by_hand, k, *args))(keys)

    ours, theirs = map(np.asarray, both(keys))
    error = np.sqrt((ours.var() + theirs.var()) / len(keys))
    assert abs(ours.mean() - theirs.mean()) < 4 * error
    assert error < 0.01 * abs(theirs.mean())
