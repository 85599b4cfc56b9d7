"""Takes a model or guide and values; gives the trace of one run, and its sites' log densities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions.distribution import validation_enabled
from numpyro.distributions.util import scale_and_mask

from asvi.program.control_flow.interpretation import Interpretation
from asvi.program.statements.stacked import log_prob_at

__all__ = [
    "Trace",
    "is_random",
    "joint_log_density",
    "latent_of",
    "log_densities",
    "log_density",
    "trace_of",
]

Trace = dict[str, dict[str, Any]]


def trace_of(
    program: Callable, key, params, values, args, kwargs, reading: Callable = Interpretation
) -> Trace:
    """Messages of one run, with these parameters and with these values where they have one."""

    def parameters(msg):
        return params.get(msg["name"]) if msg["type"] in ("param", "mutable") else None

    with (
        validation_enabled(False),  # what is wrong with data is said once, by the check of them
        handlers.trace() as trace,
        handlers.seed(rng_seed=key),
        handlers.substitute(substitute_fn=parameters),
        handlers.substitute(data=values),
        reading(),
    ):
        program(*args, **kwargs)
    return trace


def is_random(site: dict[str, Any]) -> bool:
    """Whether a message says what was drawn: a latent value, or a plate's rows."""
    return site["type"] == "plate" or (site["type"] == "sample" and not site["is_observed"])


def latent_of(trace: Trace) -> Trace:
    return {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}


def log_densities(site: dict[str, Any]) -> jax.Array:
    """Log density of a site of a trace, scaled and masked, one number for each element."""
    log_prob = log_prob_at(site["fn"], site["value"], site["intermediates"])
    return scale_and_mask(log_prob, site["scale"])


def log_density(site: dict[str, Any]) -> jax.Array:
    """Log density of a site of a trace, scaled and masked, summed over the site."""
    return jnp.sum(log_densities(site))


def joint_log_density(trace: Trace) -> jax.Array:
    """Log density of all sites of a trace."""
    sites = [site for site in trace.values() if site["type"] == "sample"]
    return jnp.sum(jnp.stack([log_density(site) for site in sites]))
