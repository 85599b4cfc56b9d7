"""Takes Gaussians near posteriors; gives our tempered moves beside BlackJAX's adaptive SMC.

``python -m benchmarks.tempered_smc``. Both start at the same Gaussian and work in its noise, with
512 particles, an effective share of 0.6 from one temperature to the next and Hamiltonian moves:
BlackJAX's with 5 steps of 0.4, 3 of them at a temperature, and 16 moves more at the posterior.
Seconds are those of a first call, what is compiled included; the search for the Gaussian is not.
"""

from __future__ import annotations

import time
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.smc import extend_params, resampling

import asvi
from asvi.density.curvature import precision
from asvi.families import StructuredNormal
from asvi.fitting.correction.by_moves import correct_by_moves
from asvi.fitting.correction.settings import CorrectionSettings
from asvi.fitting.gaussian.result import GaussianFit
from asvi.fitting.gaussian.search import find_nearest_gaussian
from asvi.fitting.particles.target import GaussianTarget
from asvi.fitting.problem import Problem
from benchmarks.harness import save, table

TASKS = ("eight-schools", "brownian-global", "lorenz", "radon")
PARTICLES, SHARE, STEP, STEPS, MOVES, AT_END = 512, 0.6, 0.4, 5, 3, 16


def found_for(task: Any) -> GaussianFit:
    """The Gaussian, without cells."""
    problem = Problem(task.model, StructuredNormal(blocks=False), task.args, task.kwargs)
    found = find_nearest_gaussian(problem, None, 0.01)
    assert found is not None
    return found


def by_blackjax(found: GaussianFit) -> tuple[float, float]:
    """Log evidence by BlackJAX, and the seconds that it took."""
    program, data = found.density.evaluator.recorded.program, found.density.evaluator.data
    begun = time.perf_counter()
    with jax.enable_x64(True):
        factor, centring = (
            jnp.asarray(found.spread.core),
            (found.density.centring, found.density.anchor),
        )
        data = jax.device_put(data)
        volume = jnp.sum(jnp.log(jnp.diag(factor)))

        def prior(e):
            return -0.5 * jnp.sum(e**2) - 0.5 * e.size * jnp.log(2 * jnp.pi)

        def likelihood(e):
            value = program.density(found.mean + factor @ e, *centring, *data)
            return jnp.nan_to_num(value + volume - prior(e), nan=-1e30, neginf=-1e30)

        settings = {
            "step_size": jnp.asarray(STEP),
            "inverse_mass_matrix": jnp.ones(len(found.mean)),
            "num_integration_steps": jnp.asarray(STEPS),
        }
        smc = blackjax.adaptive_tempered_smc(
            prior,
            likelihood,
            blackjax.hmc.build_kernel(),
            blackjax.hmc.init,
            extend_params(settings),
            resampling.systematic,
            SHARE,
            num_mcmc_steps=MOVES,
        )
        state = smc.init(jax.random.normal(jax.random.key(0), (PARTICLES, len(found.mean))))
        step, total, key = jax.jit(smc.step), 0.0, jax.random.key(1)
        while float(state.tempering_param) < 1:
            key, now = jax.random.split(key)
            state, about = step(now, state)
            total += float(about.log_likelihood_increment)
        hmc = blackjax.hmc(lambda e: prior(e) + likelihood(e), **settings)
        at = jax.vmap(hmc.init)(state.particles)

        def one(k, at):
            keys = jax.random.split(jax.random.fold_in(key, k), PARTICLES)
            return jax.vmap(hmc.step)(keys, at)[0]

        jax.block_until_ready(jax.jit(lambda at: jax.lax.fori_loop(0, AT_END, one, at))(at))
    return total, time.perf_counter() - begun


def by_asvi(found: GaussianFit) -> tuple[float, float]:
    begun = time.perf_counter()
    with precision(True):
        target = GaussianTarget(found.density, found.mean, found.spread)
        made = correct_by_moves(target, CorrectionSettings(), np.random.default_rng(0))
    return made.log_evidence, time.perf_counter() - begun


def main() -> None:
    rows = []
    for name in TASKS:
        task = asvi.tasks.get(name)
        found = found_for(task)
        ours, ours_seconds = by_asvi(found)
        theirs, theirs_seconds = by_blackjax(found)
        rows.append(
            {
                "task": name,
                "numbers": len(found.mean),
                "asvi [s]": round(ours_seconds, 2),
                "BlackJAX [s]": round(theirs_seconds, 2),
                "asvi: log evidence off": round(ours - task.log_evidence, 3),
                "BlackJAX: log evidence off": round(theirs - task.log_evidence, 3),
            }
        )
        print(rows[-1])
    print(table(rows))
    save("tempered_smc", rows)


if __name__ == "__main__":
    main()
