"""Takes images and settings; gives trained models and their test ELBOs, many side by side.

A *lane* is one training: a seed, a reading of the scales, images grey or binarised. Lanes differ in
numbers alone, so that all of them train in one compiled program; another data set of the same
size uses the same one again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import SVI
from numpyro.optim import optax_to_numpyro

import asvi
from experiments.deep_generative.data import WHOLE, Images
from experiments.deep_generative.model import PIXELS, READINGS, deep_generative, family, scales

__all__ = ["IMAGES", "Lane", "Programs", "Setting", "as_floats", "lanes_of", "programs", "train"]

IMAGES = ("grey", "binarised")


@dataclass(frozen=True)
class Setting:
    """How long and how to train, and how to judge."""

    epochs: int = 60
    least_steps: int = 4800
    chunk: int = 1200
    batch: int = 250
    learning_rate: float = 1e-3
    prior_weight: float = 0.5
    gate_gain: float = 4.0
    means: str = "linear"
    seeds: int = 3
    draws: int = 20
    repeats: int = 20
    judged_at_once: int = 500

    @property
    def of_family(self) -> tuple[float, float, str]:
        return self.prior_weight, self.gate_gain, self.means

    def steps(self, n: int) -> int:
        """Steps for ``n`` images, in whole chunks: small sets are seen more often."""
        asked = max(self.least_steps, self.epochs * (n // self.batch))
        return -(-asked // self.chunk) * self.chunk


@dataclass(frozen=True)
class Lane:
    seed: int
    reading: str
    images: str


def lanes_of(setting: Setting) -> list[Lane]:
    """All lanes of a study."""
    return [Lane(*x) for x in product(range(setting.seeds), READINGS, IMAGES)]


def as_floats(images: jax.Array, binarised: jax.Array | bool) -> jax.Array:
    """Bytes as numbers from 0 to 1, (n, 784); binarised at one half."""
    grey = images.reshape((-1, PIXELS)).astype(jnp.float32) / 255.0
    return jnp.where(binarised, (grey > 0.5).astype(jnp.float32), grey)


class Programs(NamedTuple):
    """What is compiled once for all sets; every function takes lanes on the leading axis."""

    guide: asvi.AutoASVI
    begin: Callable[..., Any]
    advance: Callable[..., Any]
    judge: Callable[..., jax.Array]
    params: Callable[[Any], dict[str, Any]]


@lru_cache(maxsize=4)
def programs(labels: bool, name: str, setting: Setting) -> Programs:
    """The programs of one family, with labels or without."""
    guide = asvi.AutoASVI(deep_generative, family=family(name, *setting.of_family))
    svi = SVI(deep_generative, guide, _fading_adam(setting.learning_rate), asvi.ELBO())
    loss = asvi.ELBO(num_particles=setting.draws)

    def arguments(x, c, sd, binarised):
        return as_floats(x, binarised), (c if labels else None), sd

    # The guide looks at the model once, at plain numbers.
    blank = arguments(np.zeros((2, 28, 28), np.uint8), jnp.zeros(2, int), scales("sd"), False)
    jax.eval_shape(lambda key: svi.init(key, *blank), jax.random.key(0))

    def begin(key, sd, binarised, x, c):
        return svi.init(key, *arguments(x, c, sd, binarised))

    def advance(state, rows, sd, binarised, total, x, c):
        # The learning rate falls to nothing along a cosine; how long it takes is an input.
        svi.optim = optax_to_numpyro(_fading_adam(setting.learning_rate, total))

        def step(state, rows):
            return svi.update(state, *arguments(x[rows], c[rows], sd, binarised))

        state, losses = jax.lax.scan(step, state, rows)
        return state, -jnp.mean(losses) / setting.batch

    def judge(params, key, sd, binarised, x, c):
        at_once = _divisor(len(x), setting.judged_at_once)
        shape = (len(x) // at_once, at_once)

        def judged(inputs):
            key, x, c = inputs
            found = arguments(x, c, sd, binarised)
            return -loss.loss(key, params, deep_generative, guide, *found)

        def repeat(key):
            keys = jax.random.split(key, shape[0])
            parts = (keys, x.reshape((*shape, 28, 28)), c.reshape(shape))
            return jnp.sum(jax.lax.map(judged, parts)) / len(x)

        return jax.lax.map(repeat, jax.random.split(key, setting.repeats))

    return Programs(
        guide,
        jax.jit(jax.vmap(begin, (0, 0, 0, None, None))),
        jax.jit(jax.vmap(advance, (0, 0, 0, 0, None, None, None)), donate_argnums=0),
        jax.jit(jax.vmap(judge, (0, 0, 0, 0, None, None))),
        svi.get_params,
    )


def _fading_adam(rate: float, total: Any = 1.0) -> optax.GradientTransformation:
    return optax.adam(lambda i: rate * 0.5 * (1.0 + jnp.cos(jnp.pi * i / total)))


def _divisor(n: int, most: int) -> int:
    return max(d for d in range(1, min(n, most) + 1) if n % d == 0)


def _orders(lanes: list[Lane], n: int, steps: int, batch: int) -> Iterator[np.ndarray]:
    """Rows of each lane's steps, (lanes, batch): every image once before any comes again."""
    streams = []
    for lane in lanes:
        # Lanes of one seed see the same images in the same order.
        draw = np.random.default_rng(lane.seed)
        epochs = -(-steps * batch // (n // batch * batch))
        rows = [draw.permutation(n)[: n // batch * batch] for _ in range(epochs)]
        streams.append(np.concatenate(rows)[: steps * batch].reshape((steps, batch)))
    yield from np.stack(streams, 1).astype(np.int32)


def train(
    images: Images, labels: bool, name: str, lanes: list[Lane], setting: Setting
) -> dict[str, Any]:
    """Test ELBOs (lanes, repeats), the ELBO along training (lanes, chunks), parameters, guide."""
    run = programs(labels, name, setting)
    seeds = jnp.array([lane.seed for lane in lanes])
    keys = jax.vmap(lambda seed: jax.random.split(jax.random.key(seed)))(seeds)
    sd = jnp.stack([scales(lane.reading) for lane in lanes])
    binarised = jnp.array([lane.images == "binarised" for lane in lanes])
    n = len(images.train_images)
    # Sets of all sizes fit one program: what is missing is never looked at.
    room = max(n, WHOLE) if n > setting.batch * 10 else n
    x = np.zeros((room, 28, 28), np.uint8)
    c = np.zeros(room, np.int32)
    x[:n], c[:n] = images.train_images, images.train_labels
    x, c = jnp.asarray(x), jnp.asarray(c)
    steps = setting.steps(n)
    state = run.begin(keys[:, 0], sd, binarised, x[: setting.batch], c[: setting.batch])
    orders, elbos = _orders(lanes, n, steps, setting.batch), []
    for _ in range(steps // setting.chunk):
        rows = jnp.asarray(np.stack(list(islice(orders, setting.chunk)), 1))
        state, elbo = run.advance(state, rows, sd, binarised, float(steps), x, c)
        elbos.append(elbo)
    params = run.params(state)
    test_l = jnp.asarray(images.test_labels, jnp.int32)
    test = run.judge(params, keys[:, 1], sd, binarised, jnp.asarray(images.test_images), test_l)
    return {
        "test": np.asarray(test, float),
        "train": np.stack([np.asarray(x, float) for x in elbos], 1),
        "params": params,
        "guide": run.guide,
        "steps": steps,
    }
