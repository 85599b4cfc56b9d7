r"""The model of the paper's section 6.3 and the two amortised families that are compared on it.

.. math::

    z_1 &\sim N(0, s_1), \quad z_2 \sim N(\mathrm{ReLU}(f_1(z_1)), s_2), \quad
    z_3 \sim N(\mathrm{ReLU}(f_2(z_2)), s_3), \\
    y &\sim N(g_1(z_3), s_4), \quad l \sim \mathrm{Categorical}(\mathrm{softmax}(g_2(z_2))),

with s = (1.5, 0.25, 0.1, 0.1). The text does not say whether these are standard deviations or
variances: ``scales(reading)`` is the one place where that is decided. The sizes of z₁, z₂, z₃ (2,
50, 100) follow from the inference network (120, 100, 70, 50, 70, 2): each latent's mean is a linear
head on the hidden layer before it, and feeds the next; scales are softplus of another linear head
(supplement D). The main text has a ReLU on the means: ``means``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from asvi.families import Amortized, ConvexUpdate, Family, MeanField

__all__ = ["FAMILIES", "READINGS", "SIZES", "deep_generative", "family", "scales"]

PIXELS, CLASSES = 28 * 28, 10
SIZES = {"z1": 2, "z2": 50, "z3": 100}
READINGS = ("sd", "variance")
FAMILIES = ("convex", "mean_field")
SCALES = (1.5, 0.25, 0.1, 0.1)
SMALLEST = 1e-4  # of a scale, so that its logarithm stays finite


def scales(reading: str) -> jax.Array:
    """Standard deviations of z₁, z₂, z₃ and the image under a reading of the text."""
    if reading not in READINGS:
        raise ValueError(f"reading={reading!r} is not known; choose one of {', '.join(READINGS)}.")
    given = jnp.asarray(SCALES)
    return given if reading == "sd" else jnp.sqrt(given)


def _start(key: jax.Array, sizes: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Linear layers of these sizes, uniform in ±1/√inputs; from one draw, to compile soon."""
    numbers = sum((n + 1) * width for n, width in sizes.values())
    drawn, layers, at = jax.random.uniform(key, (numbers,), minval=-1.0, maxval=1.0), {}, 0
    for name, (n, width) in sizes.items():
        own = drawn[at : at + (n + 1) * width].reshape((n + 1, width)) * n**-0.5
        layers[name] = {"kernel": own[:n], "bias": own[n]}
        at += (n + 1) * width
    return layers


def _apply(layer: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x @ layer["kernel"] + layer["bias"]


# -------------------------------------------------------------------------------- the model


def start_of_model(key: jax.Array) -> dict[str, Any]:
    """The networks f₁, f₂, g₁, g₂ where training starts."""
    sizes = {
        "f1_hidden": (SIZES["z1"], 25),
        "f1_out": (25, SIZES["z2"]),
        "f2_hidden": (SIZES["z2"], 75),
        "f2_out": (75, SIZES["z3"]),
        "g1": (SIZES["z3"], PIXELS),
        "g2": (SIZES["z2"], CLASSES),
    }
    return _start(key, sizes)


def decode(networks: dict[str, Any], name: str, z: jax.Array) -> jax.Array:
    """ReLU(f(z)), the prior's mean of the next latent."""
    hidden = jax.nn.relu(_apply(networks[f"{name}_hidden"], z))
    return jax.nn.relu(_apply(networks[f"{name}_out"], hidden))


def deep_generative(images: jax.Array, labels: jax.Array | None, sd: jax.Array) -> None:
    """Images of shape (n, 784) and, where they are given, their labels."""
    networks = numpyro.param("networks", start_of_model)
    with numpyro.plate("image", len(images)):
        z1 = numpyro.sample("z1", _normal(jnp.zeros(SIZES["z1"]), sd[0]))
        z2 = numpyro.sample("z2", _normal(decode(networks, "f1", z1), sd[1]))
        z3 = numpyro.sample("z3", _normal(decode(networks, "f2", z2), sd[2]))
        numpyro.sample("y", _normal(_apply(networks["g1"], z3), sd[3]), obs=images)
        if labels is not None:
            logits = _apply(networks["g2"], z2)
            numpyro.sample("label", dist.Categorical(logits=logits), obs=labels)


def _normal(loc: jax.Array, sd: jax.Array) -> dist.Distribution:
    return dist.Normal(loc, sd).to_event(1)


# ---------------------------------------------------------------------------- the inference network


def start_of_encoder(key: jax.Array, _images: Any = None) -> dict[str, Any]:
    """The inference network where training starts."""
    sizes = {
        "hidden3": (PIXELS, 120),
        "loc3": (120, SIZES["z3"]),
        "scale3": (120, SIZES["z3"]),
        "hidden2": (SIZES["z3"], 70),
        "loc2": (70, SIZES["z2"]),
        "scale2": (70, SIZES["z2"]),
        "hidden1": (SIZES["z2"], 70),
        "loc1": (70, SIZES["z1"]),
        "scale1": (70, SIZES["z1"]),
    }
    return _start(key, sizes)


def encode(
    params: dict[str, Any], images: jax.Array, means: str = "linear"
) -> dict[str, dict[str, jax.Array]]:
    """Means and scales of z₃, z₂, z₁: each level's mean feeds the next.

    ``means="relu"`` is the main text's "post ReLU", ``"linear"`` the supplement's listing.
    """
    found, x = {}, images
    for level in (3, 2, 1):
        hidden = jax.nn.relu(_apply(params[f"hidden{level}"], x))
        x = _apply(params[f"loc{level}"], hidden)
        x = jax.nn.relu(x) if means == "relu" else x
        scale = jax.nn.softplus(_apply(params[f"scale{level}"], hidden)) + SMALLEST
        found[f"z{level}"] = {"loc": x, "scale": scale}
    return found


def _images_of(images: jax.Array, labels: jax.Array | None, sd: jax.Array) -> jax.Array:
    return images


def family(
    name: str, prior_weight: float = 0.5, gate_gain: float = 4.0, means: str = "linear"
) -> Family:
    """``"convex"``: means λ f(parents) + (1-λ) α(y); ``"mean_field"``: α(y). Scales are ξ(y).

    λ starts at ``prior_weight`` and is optimised through a gate of this gain.
    """
    if name not in FAMILIES:
        raise ValueError(f"family {name!r} is not known; choose one of {', '.join(FAMILIES)}.")
    return Amortized(
        (partial(encode, means=means), start_of_encoder),
        plate="image",
        base=(
            ConvexUpdate(initial_prior_weight=prior_weight, gate_gain=gate_gain)
            if name == "convex"
            else MeanField()
        ),
        features=_images_of,
        follow=("loc",),
    )
