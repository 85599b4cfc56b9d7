"""Takes weights; gives a DCGAN generator: a fixed module from latent vectors to images.

The layers are the paper's: a 4 x 4 transposed convolution of the latent vector, three more of
stride 2, each with batch normalisation and ReLU, then a 1 x 1 convolution and tanh:

    latent -> 4x4x8n -> 8x8x4n -> 16x16x2n -> 32x32xn -> 32x32xchannels,   n = 64

Batch normalisation is folded into kernels and biases once training is over, so the generator is a
plain function of its input. It is a pytree of its arrays: close over it in a NumPyro model, or
hand it to the model as an argument.

>>> import jax
>>> generator = random_generator(jax.random.key(0), latent=6, width=2, channels=1)
>>> generator(jax.numpy.zeros((5, 6))).shape
(5, 32, 32, 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["Generator", "folded", "layer_shapes", "load", "random_generator", "save"]

_LAYOUT = ("NHWC", "HWIO", "NHWC")
_TINY = 1e-5  # added to variances, as in PyTorch


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Generator:
    """``generator(z)``: images (..., height, width, channels) in [-1, 1] of vectors (..., latent).

    ``kernels[0]`` is (latent, 4, 4, features), the others (height, width, in, out).
    """

    kernels: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]

    @property
    def latent(self) -> int:
        """Numbers in a latent vector."""
        return self.kernels[0].shape[0]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        size = 4 * 2 ** (len(self.kernels) - 2)
        return (size, size, self.kernels[-1].shape[-1])

    def __call__(self, z: jax.Array) -> jax.Array:
        lead = z.shape[:-1]
        x = z.reshape(-1, z.shape[-1])
        last = len(self.kernels) - 1
        for i, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            x = apply_layer(i, last, kernel, x) + bias
            x = jnp.tanh(x) if i == last else jax.nn.relu(x)
        return x.reshape(lead + x.shape[1:])


def apply_layer(i: int, last: int, kernel: jax.Array, x: jax.Array) -> jax.Array:
    """The linear part of layer ``i``."""
    if i == 0:  # one pixel becomes 4 x 4: a matrix product
        return jnp.einsum("ni,ihwo->nhwo", x, kernel)
    if i == last:
        return jnp.einsum("nhwi,io->nhwo", x, kernel[0, 0])
    # Kernel 4, stride 2, one pixel cut off each side: twice the size.
    return lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=_LAYOUT)


def layer_shapes(latent: int, width: int, channels: int) -> list[tuple[int, ...]]:
    """Shapes of the kernels.

    >>> sum(np.prod(shape) for shape in layer_shapes(100, 64, 3))   # the paper's, for CIFAR-10
    np.int64(3572928)
    """
    features = [8 * width, 4 * width, 2 * width, width]
    shapes: list[tuple[int, ...]] = [(latent, 4, 4, features[0])]
    shapes += [(4, 4, a, b) for a, b in pairwise(features)]
    return [*shapes, (1, 1, width, channels)]


def start(key: jax.Array, latent: int, width: int, channels: int) -> dict[str, Any]:
    """Trainable parameters: kernels ~ N(0, 0.02), gains ~ N(1, 0.02), offsets 0."""
    shapes = layer_shapes(latent, width, channels)
    keys = jax.random.split(key, 2 * len(shapes))
    kernels = [0.02 * jax.random.normal(k, shape) for k, shape in zip(keys, shapes, strict=False)]
    gains = [
        1.0 + 0.02 * jax.random.normal(k, shape[-1:])
        for k, shape in zip(keys[len(shapes) :], shapes[:-1], strict=False)
    ]
    return {"kernels": kernels, "gains": gains, "offsets": [jnp.zeros_like(g) for g in gains]}


def in_training(
    params: dict[str, Any], z: jax.Array
) -> tuple[jax.Array, list[tuple[jax.Array, jax.Array]]]:
    """Images with batch normalisation by this batch, and its mean and variance at each layer."""
    x, moments, last = z, [], len(params["kernels"]) - 1
    for i, kernel in enumerate(params["kernels"]):
        x = apply_layer(i, last, kernel, x)
        if i == last:
            return jnp.tanh(x), moments
        mean, variance = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
        moments.append((mean, variance))
        x = (x - mean) * lax.rsqrt(variance + _TINY) * params["gains"][i] + params["offsets"][i]
        x = jax.nn.relu(x)
    raise AssertionError("a generator has a last layer")


def folded(params: dict[str, Any], z: jax.Array) -> Generator:
    """The generator with the normalisation that the (large) batch ``z`` gives, folded away."""
    _, moments = jax.jit(in_training)(params, z)
    kernels, biases = [], []
    for kernel, gain, offset, (mean, variance) in zip(
        params["kernels"][:-1], params["gains"], params["offsets"], moments, strict=True
    ):
        factor = gain * lax.rsqrt(variance + _TINY)
        kernels.append(kernel * factor)
        biases.append(offset - mean * factor)
    kernels.append(params["kernels"][-1])
    biases.append(jnp.zeros(params["kernels"][-1].shape[-1]))
    return Generator(tuple(kernels), tuple(biases))


def random_generator(
    key: jax.Array, latent: int, width: int, channels: int, contrast: float = 1.0
) -> Generator:
    """An untrained generator: normalised features, an output of standard deviation ``contrast``.

    It makes textures, not pictures; enough for tests and for measuring speed.
    """
    key, z_key = jax.random.split(key)
    params = start(key, latent, width, channels)
    scale = contrast / (0.02 * (width / 2) ** 0.5)  # a rectified normal has second moment 1/2
    params["kernels"][-1] = params["kernels"][-1] * scale
    return folded(params, jax.random.normal(z_key, (256, latent)))


def save(generator: Generator, path: str | Path) -> None:
    """Write the weights as float16."""
    arrays = {}
    for i, (kernel, bias) in enumerate(zip(generator.kernels, generator.biases, strict=True)):
        arrays[f"kernel{i}"] = np.asarray(kernel, np.float16)
        arrays[f"bias{i}"] = np.asarray(bias, np.float16)
    np.savez_compressed(path, **arrays)


def load(path: str | Path) -> Generator:
    """What :func:`save` wrote, as float32."""
    with np.load(path) as stored:
        layers = range(len(stored.files) // 2)
        kernels = tuple(jnp.asarray(stored[f"kernel{i}"], jnp.float32) for i in layers)
        biases = tuple(jnp.asarray(stored[f"bias{i}"], jnp.float32) for i in layers)
    return Generator(kernels, biases)
