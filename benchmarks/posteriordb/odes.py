"""Takes measured populations or concentrations; gives models with differential equations.

The equations are solved by the classical Runge–Kutta method with fixed small steps, in one scan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist


def solve(rate: Callable, start: jax.Array, knots: jax.Array) -> jax.Array:
    """States at ``knots``, the first left out; ``rate(t, state)``; one step between neighbours."""

    def step(state, interval):
        t, h = interval
        k1 = rate(t, state)
        k2 = rate(t + h / 2, state + h / 2 * k1)
        k3 = rate(t + h / 2, state + h / 2 * k2)
        k4 = rate(t + h, state + h * k3)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return state, state

    _, states = jax.lax.scan(step, start, (knots[:-1], jnp.diff(knots)))
    return states


def split(times: jax.Array, steps: int, first: float = 1.0) -> jax.Array:
    """Times from 0 on, with ``steps`` steps in each interval.

    The steps are equal, but in the first interval they end at the powers ``first`` of equal parts.
    """
    starts = jnp.concatenate([jnp.zeros(1), times[:-1]])
    powers = jnp.ones(len(times)).at[0].set(first)
    parts = (jnp.arange(1, steps + 1) / steps) ** powers[:, None]
    inside = starts[:, None] + (times - starts)[:, None] * parts
    return jnp.concatenate([jnp.zeros(1), inside.ravel()])


# Hares and lynxes.

STEPS_A_YEAR = 10


def populations(d: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Years after the first; populations in the first year; populations in the others."""
    return tuple(np.asarray(d[k], float) for k in ("ts", "y_init", "y"))


def lotka_volterra(ts: jax.Array, y_init: jax.Array, y: jax.Array):
    """Lynxes eat hares. The equations are those of the logarithms, so that none is negative."""
    locs = jnp.array([1.0, 0.05, 1.0, 0.05])
    scales = jnp.array([0.5, 0.05, 0.5, 0.05])
    theta = numpyro.sample("theta", dist.TruncatedNormal(locs, scales, low=0.0).to_event(1))
    sigma = numpyro.sample("sigma", dist.LogNormal(-1.0, 1.0).expand([2]).to_event(1))
    z_init = numpyro.sample("z_init", dist.LogNormal(jnp.log(10.0), 1.0).expand([2]).to_event(1))

    def rate(t, log_z):
        hares, lynxes = jnp.exp(log_z)
        return jnp.stack([theta[0] - theta[1] * lynxes, theta[3] * hares - theta[2]])

    log_z = solve(rate, jnp.log(z_init), split(ts, STEPS_A_YEAR))[STEPS_A_YEAR - 1 :: STEPS_A_YEAR]
    numpyro.sample("y_init", dist.LogNormal(jnp.log(z_init), sigma).to_event(1), obs=y_init)
    with numpyro.plate("N", len(ts)):
        numpyro.sample("y", dist.LogNormal(log_z, sigma).to_event(1), obs=y)


# A drug in the blood.

STEPS_AN_INTERVAL = 10
FIRST_STEPS = 4.0


def concentrations(d: dict[str, Any]) -> tuple:
    """Dose, volume, times of measurement, concentrations; the first dose is at time 0."""
    times, measured = np.asarray(d["times"], float), np.asarray(d["C_hat"], float)
    return float(d["D"]), float(d["V"]), times - d["t0"], measured


def one_comp_mm_elim_abs(D: float, V: float, times: jax.Array, C_hat: jax.Array):
    """A dose is absorbed at rate k_a, and eliminated at a rate that saturates.

    Elimination changes quickly just after the start, when there is little to eliminate: the first
    steps are very short.
    """
    k_a = numpyro.sample("k_a", dist.HalfCauchy(1.0))
    K_m = numpyro.sample("K_m", dist.HalfCauchy(1.0))
    V_m = numpyro.sample("V_m", dist.HalfCauchy(1.0))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1.0))

    def rate(t, C):
        absorbed = D / V * k_a * jnp.exp(-k_a * t)
        C = jnp.maximum(C, 0.0)
        return absorbed - V_m / V * C / (K_m + C)

    knots = split(times, STEPS_AN_INTERVAL, FIRST_STEPS)
    C = solve(rate, jnp.zeros_like(k_a), knots)[STEPS_AN_INTERVAL - 1 :: STEPS_AN_INTERVAL]
    with numpyro.plate("N", len(times)):
        median = jnp.maximum(C, 1e-10)
        numpyro.sample("C_hat", dist.LogNormal(jnp.log(median), sigma), obs=C_hat)
