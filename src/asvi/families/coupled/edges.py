"""Takes weights of edges and the residuals behind them; gives what these add to a site's noise."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from asvi.distributions.warped_noise import Residual
from asvi.families.coupled.coupling_graph import Inputs
from asvi.families.coupled.features import apply_weights
from asvi.program.control_flow.lookback import look_back

__all__ = ["EDGE_KINDS", "fixed_name", "fixed_weights", "row_sizes", "sum_edges", "weight_name"]

#: Kinds of edges, and what their weights are called in parameters' names.
EDGE_KINDS = {"dense": "dense", "aligned": "aligned", "lookback": "window", "within": "within"}

#: How weights of edges from other sites meet a residual.
PRODUCTS = {"dense": apply_weights, "aligned": apply_weights, "lookback": look_back}


def weight_name(kind: str) -> str:
    """The parameter that weighs edges of this kind."""
    return f"coupling/{EDGE_KINDS[kind]}"


def fixed_name(kind: str) -> str:
    """The parameter that weighs them in the fixed coupling."""
    return f"frame/{EDGE_KINDS[kind]}"


def row_sizes(inputs: Inputs) -> dict[str, int]:
    """How many numbers each number of the site listens to, by kind of edges."""
    sizes = {
        "dense": inputs.size(inputs.dense),
        "aligned": inputs.size(inputs.aligned),
        "lookback": inputs.lookback_size,
        "within": inputs.within,
    }
    return {kind: size for kind, size in sizes.items() if size}


def fixed_weights(parameters: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Weights of the fixed coupling, by kind.

    It is not trained: without this its gradient would be computed, and left unused.
    """
    return {
        kind: jax.lax.stop_gradient(parameters[fixed_name(kind)])
        for kind in EDGE_KINDS
        if fixed_name(kind) in parameters
    }


def sum_edges(
    parameters: Mapping[str, jax.Array],
    fixed: Mapping[str, jax.Array],
    residuals: Mapping[str, Residual],
) -> tuple[jax.Array, jax.Array | None]:
    """What others add to a site's noise, by edges that are trained and by those that are fixed."""
    trained, held = jnp.zeros(()), None
    for kind, product in PRODUCTS.items():
        if weight_name(kind) in parameters:
            trained = trained + product(parameters[weight_name(kind)], residuals[kind].drawn)
        if kind in fixed:
            more = product(fixed[kind], residuals[kind].warped)
            held = more if held is None else held + more
    return trained, held
