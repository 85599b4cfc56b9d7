"""Takes nothing; gives the foundation's figures: exactness, compile time and cost of a step.

``make bench`` runs it. Every timing is a ratio of two things measured in this one run.
"""

from __future__ import annotations

import time
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import SVI
from numpyro.infer.util import log_density

import asvi
from asvi.program.control_flow.interpretation import Interpretation
from benchmarks.harness import save, seconds, table, train
from benchmarks.models import chain, chain_data, chain_loop, groups, regression

LOSS = asvi.ELBO()


def prepared(model, args, optimizer=None, loss=LOSS):
    """An SVI and its initial state."""
    svi = SVI(model, asvi.AutoASVI(model), optimizer or optax.adam(1e-2), loss)
    return svi, svi.init(jax.random.key(0), *args)


def compile_seconds(model, args, optimizer=None, options=None) -> float:
    """Seconds to trace and compile 100 optimisation steps."""
    svi, state = prepared(model, args, optimizer)

    def chunk(state):
        return jax.lax.scan(lambda s, _: svi.update(s, *args), state, length=100)

    begin = time.perf_counter()
    jax.jit(chunk, compiler_options=options).lower(state).compile()
    return time.perf_counter() - begin


def compile_under_scan() -> list[dict]:
    """Compile time against the length of a scan: flat."""
    rows = []
    compile_seconds(chain, (chain_data(10),))  # warm up the tracer
    for length in (10, 100, 1000, 10_000):
        best = min(compile_seconds(chain, (chain_data(length),)) for _ in range(3))
        rows.append({"T": length, "compile [s]": round(best, 2)})
    for row in rows:
        row["ratio to T=10"] = round(row["compile [s]"] / rows[0]["compile [s]"], 2)
    return rows


def compile_of_a_loop() -> list[dict]:
    """Compile time of 30 sites in a Python loop, plain and with the advised options."""
    args = (chain_data(30),)
    options = {"xla_disable_hlo_passes": "fusion"}
    flat = optax.flatten(optax.adam(1e-2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [
            {"model": "scan, 30 steps", "compile [s]": compile_seconds(chain, args)},
            {"model": "loop of 30 sites", "compile [s]": compile_seconds(chain_loop, args)},
            {
                "model": "loop, optax.flatten",
                "compile [s]": compile_seconds(chain_loop, args, flat),
            },
            {
                "model": "loop, optax.flatten and no fusion",
                "compile [s]": compile_seconds(chain_loop, args, flat, options),
            },
        ]
    for row in rows:
        row["compile [s]"] = round(row["compile [s]"], 1)
        row["ratio to scan"] = round(row["compile [s]"] / rows[0]["compile [s]"], 1)
    return rows


def density_gradients(model, args):
    """The gradient of the model's own log density, at a draw of the prior and at given values.

    Each is compiled twice, through NumPyro's own ``scan`` and through ours; the faster one counts.
    """

    def drawn_by(program, key):
        met = trace(seed(program, key)).get_trace(*args)
        return {
            n: s["value"] for n, s in met.items() if s["type"] == "sample" and not s["is_observed"]
        }

    def stock(values):
        return log_density(model, args, {}, values)[0]

    def threaded(values):
        with trace() as met, substitute(data=values), Interpretation():
            model(*args)
        sites = [s for s in met.values() if s["type"] == "sample"]
        return sum(s["fn"].log_prob(s["value"]).sum() for s in sites)

    def at_a_draw(program, density):
        return jax.jit(lambda key: jax.value_and_grad(density)(drawn_by(program, key)))

    values = drawn_by(model, jax.random.key(1))
    at_draws = [at_a_draw(model, stock), at_a_draw(Interpretation(model), threaded)]
    at_values = [jax.jit(jax.value_and_grad(density)) for density in (stock, threaded)]
    return values, at_draws, at_values


def cost_of_a_step() -> list[dict]:
    """One ELBO gradient (one draw) against one gradient of the model's own log density."""
    rng = np.random.default_rng(0)
    sizes = (100, 10_000, 100_000)
    cases = [("chain", chain, (chain_data(n),), n) for n in sizes]
    cases += [("plate", groups, (jnp.asarray(rng.normal(size=n), jnp.float32),), n) for n in sizes]
    for n in sizes:
        x = jnp.asarray(rng.normal(size=(n, 10)), jnp.float32)
        cases.append(("regression", regression, (x, x.sum(-1)), n))
    rows = []
    for name, model, args, size in cases:
        svi, state = prepared(model, args)
        free = svi.optim.get_params(state.optim_state)

        def loss(free, key, svi=svi, args=args):
            return LOSS.loss(key, svi.constrain_fn(free), svi.model, svi.guide, *args)

        key = jax.random.key(2)
        values, at_draws, at_values = density_gradients(model, args)
        runs = {"step": [partial(jax.jit(jax.value_and_grad(loss)), free, key)]}
        runs["draw"] = [partial(density, key) for density in at_draws]
        runs["values"] = [partial(density, values) for density in at_values]
        # Side by side, alternating, the fastest of each: these machines are noisy.
        best = dict.fromkeys(runs, np.inf)
        for _ in range(4):
            for label, ways in runs.items():
                best[label] = min(best[label], *(seconds(run, 5) for run in ways))
        rows.append(
            {
                "model": name,
                "size": size,
                "step / (prior draw + density gradient)": round(best["step"] / best["draw"], 2),
                "step / density gradient at given values": round(best["step"] / best["values"], 2),
            }
        )
        print(rows[-1], flush=True)
    return rows


def exactness() -> list[dict]:
    """Train on linear Gaussian chains; how far the ELBO stays from the exact log evidence."""
    rows = []
    for length in (10, 100, 1000):
        y = chain_data(length)
        fits = train(
            chain,
            asvi.AutoASVI(chain),
            (y,),
            keys=jax.random.split(jax.random.key(0), 10),
            steps=3000,
            learning_rate=3e-2,
            loss=asvi.ELBO(num_particles=2, estimator="path"),
            evaluation_draws=500,
        )
        gaps = _evidence(np.asarray(y)) - np.asarray(fits["elbo"])
        rows.append(
            {
                "T": length,
                "seeds": len(gaps),
                "median gap [nat]": float(np.median(gaps)),
                "worst gap [nat]": float(np.max(gaps)),
            }
        )
        print(rows[-1], flush=True)
    return rows


def _evidence(y: np.ndarray) -> float:
    """Kalman filter of the chain."""
    mean, variance, total = 0.0, 0.0, 0.0
    for value in y:
        variance += 0.1**2
        s = variance + 0.15**2
        total += -0.5 * (np.log(2 * np.pi * s) + (value - mean) ** 2 / s)
        mean, variance = mean + variance / s * (value - mean), variance * (1 - variance / s)
    return total


def main() -> None:
    """Run everything, print Markdown tables, save JSON."""
    studies = {
        "Compile time under scan": compile_under_scan,
        "Compile time of a Python loop": compile_of_a_loop,
        "Cost of a step": cost_of_a_step,
    }
    found = {}
    for title, study in studies.items():
        found[title] = study()
        print(f"\n### {title}\n\n{table(found[title])}\n", flush=True)
    jax.config.update("jax_enable_x64", True)
    found["Linear Gaussian chain, trained"] = exactness()
    print(table(found["Linear Gaussian chain, trained"]))
    save("foundation", found)


if __name__ == "__main__":
    main()
