"""The same model and family in plain JAX, to measure what the library costs.

``--throughput`` times training steps of both: the same networks, the same noise per step, the same
optimiser, the same loop.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import optax
from numpyro.infer import SVI

import asvi
from experiments.deep_generative.model import (
    PIXELS,
    SIZES,
    decode,
    deep_generative,
    encode,
    family,
    scales,
    start_of_encoder,
    start_of_model,
)

__all__ = ["loss_by_hand", "throughput"]

GAIN = 4.0  # of the gate of λ, as in the library


def start_by_hand(key: jax.Array) -> dict[str, Any]:
    ours, theirs = jax.random.split(key)
    return {
        "networks": start_of_model(theirs),
        "encoder": start_of_encoder(ours),
        "gates": {"z2": jnp.zeros((1, SIZES["z2"])), "z3": jnp.zeros((1, SIZES["z3"]))},
    }


def _log_normal(x: jax.Array, loc: jax.Array, sd: jax.Array) -> jax.Array:
    z = (x - loc) / sd
    return jnp.sum(-0.5 * z**2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi))


def loss_by_hand(
    params: dict[str, Any], key: jax.Array, images: jax.Array, labels: jax.Array, sd: jax.Array
) -> jax.Array:
    """The negative ELBO of one draw per image under the convex update, with labels."""
    networks, given = params["networks"], encode(params["encoder"], images)
    keys = jax.random.split(key, 3)
    elbo, z = jnp.zeros(()), {}
    for k, (name, source, net) in enumerate(
        (("z1", None, None), ("z2", "z1", "f1"), ("z3", "z2", "f2"))
    ):
        prior = decode(networks, net, z[source]) if source else jnp.zeros(SIZES[name])
        loc, scale = given[name]["loc"], given[name]["scale"]
        if source:
            weight = jax.nn.sigmoid(GAIN * params["gates"][name])
            loc = weight * prior + (1.0 - weight) * loc
        z[name] = loc + scale * jax.random.normal(keys[k], loc.shape)
        prior_sd = jnp.broadcast_to(sd[k], loc.shape)
        elbo += _log_normal(z[name], prior, prior_sd) - _log_normal(z[name], loc, scale)
    pixels = z["z3"] @ networks["g1"]["kernel"] + networks["g1"]["bias"]
    elbo += _log_normal(images, pixels, jnp.broadcast_to(sd[3], pixels.shape))
    logits = z["z2"] @ networks["g2"]["kernel"] + networks["g2"]["bias"]
    rows = jnp.arange(len(labels))
    elbo += jnp.sum(jax.nn.log_softmax(logits)[rows, labels])
    return -elbo


def throughput(
    steps: int = 3000, batch: int = 250, lanes: int = 1, repeats: int = 3
) -> dict[str, Any]:
    """Training steps per second by library and by hand, and their ratio (above 1: faster)."""
    key = jax.random.key(0)
    images = jax.random.uniform(key, (20 * batch, PIXELS))
    labels = jax.random.randint(key, (20 * batch,), 0, 10)
    sd = scales("sd")
    optimizer = optax.adam(1e-3)
    guide = asvi.AutoASVI(deep_generative, family=family("convex"))
    svi = SVI(deep_generative, guide, optimizer, asvi.ELBO())
    svi.init(key, images[:2], labels[:2], sd)

    def taken(i):
        start = (i % 20) * batch
        return tuple(jax.lax.dynamic_slice_in_dim(x, start, batch) for x in (images, labels))

    def by_library(key):
        def step(state, i):
            return svi.update(state, *taken(i), sd)

        return jax.lax.scan(step, svi.init(key, *taken(0), sd), jnp.arange(steps))[1][-1]

    def by_hand(key):
        def step(state, i):
            params, inner, key = state
            key, own = jax.random.split(key)
            loss, gradient = jax.value_and_grad(loss_by_hand)(params, own, *taken(i), sd)
            change, inner = optimizer.update(gradient, inner, params)
            return (optax.apply_updates(params, change), inner, key), loss

        params = start_by_hand(key)
        state = (params, optimizer.init(params), key)
        return jax.lax.scan(step, state, jnp.arange(steps))[1][-1]

    keys = jax.random.split(key, lanes)
    runs = {"library": jax.jit(jax.vmap(by_library)), "by hand": jax.jit(jax.vmap(by_hand))}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        jax.block_until_ready(run(keys))
    for _ in range(repeats):  # by turns, so that a busy machine is busy for both
        for name, run in runs.items():
            begun = time.perf_counter()
            jax.block_until_ready(run(keys))
            seconds[name].append(time.perf_counter() - begun)
    speed = {name: steps / min(times) for name, times in seconds.items()}
    return {
        "device": jax.devices()[0].device_kind,
        "lanes": lanes,
        "batch": batch,
        "steps per second": speed["library"],
        "steps per second by hand": speed["by hand"],
        "ratio": speed["library"] / speed["by hand"],
    }
