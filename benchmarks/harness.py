"""Takes a model, a guide and a loss; gives many fits, trained side by side in one program."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.infer import SVI

import asvi

RESULTS = Path(__file__).parent / "results"


def train(
    model: Callable,
    guide: Callable,
    args: tuple,
    *,
    keys: jax.Array,
    steps: int,
    learning_rate: float = 1e-2,
    decay: bool = True,
    loss: Any = None,
    evaluation_draws: int = 1000,
    batch: int = 50,
) -> dict[str, jax.Array]:
    """Adam from each key; gives final ELBOs (fresh draws), their losses and parameters."""
    schedule = optax.cosine_decay_schedule(learning_rate, steps) if decay else learning_rate
    # Draws of a scale near 0 give rare gradients of any size; one would spoil Adam for long.
    optimizer = optax.chain(optax.clip_by_global_norm(100.0), optax.adam(schedule))
    svi = SVI(model, guide, optimizer, asvi.ELBO() if loss is None else loss)
    judge = asvi.ELBO(num_particles=batch)

    def fit(key):
        init_key, judge_key = jax.random.split(key)
        state = svi.init(init_key, *args)
        state, losses = jax.lax.scan(lambda state, _: svi.update(state, *args), state, length=steps)
        params = svi.get_params(state)
        draws = jax.lax.map(
            lambda k: judge.loss(k, params, model, guide, *args),
            jax.random.split(judge_key, evaluation_draws // batch),
        )
        return {"elbo": -jnp.mean(draws), "losses": losses, "params": params}

    return jax.jit(jax.vmap(fit))(keys)


def seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """The fastest of several runs, after one that does not count."""
    jax.block_until_ready(run())
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - begin)
    return min(times)


def save(name: str, rows: Any) -> None:
    """Write ``results/{name}.json`` with the versions that made it."""
    RESULTS.mkdir(exist_ok=True)
    versions = {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpyro": numpyro.__version__,
        "asvi": asvi.__version__,
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")
    print(f"wrote {path.relative_to(RESULTS.parent.parent)}")


def table(rows: list[dict[str, Any]]) -> str:
    """Rows with the same keys as a Markdown table."""
    if not rows:
        return ""
    head = list(rows[0])
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
