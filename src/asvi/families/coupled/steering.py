"""Takes residuals of globals and of a plate's member; gives how they steer a site's numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from asvi.distributions.warped_noise import Residual
from asvi.families.coupled.coupling_graph import Inputs
from asvi.families.coupled.features import (
    apply_weights,
    gain_features,
    n_gain_features,
    n_shift_features,
    product_features,
    shift_features,
)
from asvi.families.coupled.settings import CouplingSettings

__all__ = ["member_terms", "steer", "steering_sizes"]

#: Weights of globals, by their parameters' names, that steer numbers besides the leaves.
STEERING = ("coupling/stretch_gates", "coupling/loudness", "coupling/voice")


def steering_sizes(inputs: Inputs, settings: CouplingSettings) -> dict[str, int]:
    """Features that weigh in what globals and a plate's member steer, by the weights' names."""
    numbers, has_curves = inputs.size(inputs.globals), inputs.has_curves
    features = n_gain_features(numbers, has_curves, settings)
    found = {}
    if numbers and inputs.has_warp:
        shifts = n_shift_features(numbers, has_curves, settings)
        found = {"coupling/bend_gates": shifts, "coupling/stretch_gates": features}
    if numbers and has_curves:
        found |= {"coupling/loudness": features, "coupling/voice": features}
    if inputs.member_size and inputs.has_warp:
        member = inputs.member_size
        found |= {
            "coupling/bend_cell": n_shift_features(member, has_curves, settings),
            "coupling/stretch_cell": n_gain_features(member, has_curves, settings),
        }
    return found


def steer(
    weights: Mapping[str, jax.Array],
    of_leaves: Collection[str],
    residuals: Mapping[str, Residual],
    settings: CouplingSettings,
) -> dict[str, jax.Array]:
    """What the globals add to each of the numbers that they steer, by the weights' names.

    ``of_leaves`` names the weights that steer leaves.
    """
    rows = {n: w for n, w in weights.items() if n in STEERING or n in of_leaves}
    if not rows:
        return {}
    given = residuals["globals"]
    size = next(iter(rows.values())).shape[-1]
    # One product for all: many small ones cost more than what they compute.
    flat = jnp.concatenate([jnp.reshape(w, (-1, size)) for w in rows.values()])
    ends = np.cumsum([w.size // size for w in rows.values()])[:-1]
    has_curves = size > given.drawn.shape[-1]
    parts = jnp.split(flat @ (gain_features(given) if has_curves else given.drawn), ends)
    found = {n: jnp.reshape(x, rows[n].shape[:-1]) for n, x in zip(rows, parts, strict=True)}
    if "coupling/bend_gates" in weights:
        features = (
            shift_features(given, settings)
            if has_curves
            else product_features(given.drawn, settings)
        )
        found["coupling/bend_gates"] = weights["coupling/bend_gates"] @ features
    return found


def member_terms(
    weights: Mapping[str, jax.Array],
    residuals: Mapping[str, Residual],
    settings: CouplingSettings,
) -> tuple[jax.Array, jax.Array] | None:
    """What the same member of a plate adds to offset and log scale; None where it adds nothing."""
    if "coupling/bend_cell" not in weights:
        return None
    bend, stretch = weights["coupling/bend_cell"], weights["coupling/stretch_cell"]
    member = residuals["member"]
    if stretch.shape[-1] > member.drawn.shape[-1]:
        shifts, gains = shift_features(member, settings), gain_features(member)
    else:
        shifts, gains = product_features(member.drawn, settings), member.drawn
    return apply_weights(bend, shifts), apply_weights(stretch, gains)
