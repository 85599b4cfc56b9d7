"""Takes a site as the guide drew it and as the model met it; gives its part of the ELBO's term."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, Kumaraswamy, LogNormal, kl_divergence
from numpyro.distributions.util import scale_and_mask

from asvi.program.run_trace import log_densities
from asvi.program.statements.stacked import Stacked

__all__ = ["mixed_log_q", "site_divergence"]


def mixed_log_q(score_share: Any, drawn: dict[str, Any], fixed: dict[str, Any]) -> jax.Array:
    """Log q of a draw: one number, known in two ways whose gradients are plain and path."""
    path = log_densities(fixed)
    if isinstance(score_share, float) and score_share == 0.0:
        return path
    # Where a density is infinite, 0 times it must not be NaN.
    plain = jnp.where(score_share == 0, path, log_densities(drawn))
    return jnp.where(score_share == 1, plain, score_share * plain + (1 - score_share) * path)


def site_divergence(drawn: dict[str, Any], met: dict[str, Any]) -> jax.Array | None:
    """KL(q || p) of a site at its parents' values, where it is known in closed form."""
    same = drawn["scale"] is None and met["scale"] is None
    known = isinstance(drawn["scale"], float) and isinstance(met["scale"], float)
    if not same and not (known and drawn["scale"] == met["scale"]):
        return None
    divergence = _closed_form(drawn["fn"], met["fn"])
    if divergence is None:
        return None
    return scale_and_mask(divergence, met["scale"])


def _closed_form(q: Distribution, p: Distribution) -> jax.Array | None:
    if isinstance(q, Stacked) and isinstance(p, Stacked):
        known = []

        def one_step(q: Distribution, p: Distribution) -> jax.Array:
            divergence = _closed_form(q, p)
            known.append(divergence is not None)
            return jnp.zeros(()) if divergence is None else divergence

        divergences = jax.vmap(one_step)(q.step_dist, p.step_dist)
        return divergences if known[-1] else None
    if type(q) is LogNormal and type(p) is LogNormal:  # the divergence ignores bijections
        return _closed_form(q.base_dist, p.base_dist)
    if isinstance(q, Kumaraswamy):  # NumPyro's is a truncated series
        return None
    try:
        return kl_divergence(q, p)
    except NotImplementedError:
        return None
