"""Takes a model, a guide and a loss; gives many fits, trained side by side in one program."""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import sys
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

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


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
    """Write ``results/{name}.json`` with the versions that made it, and the module that called."""
    RESULTS.mkdir(exist_ok=True)
    versions = {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpyro": numpyro.__version__,
        "asvi": asvi.__version__,
    }
    module = Path(sys._getframe(1).f_globals["__file__"]).resolve()
    made_by = {"module": str(module.relative_to(ROOT)), "fingerprint": fingerprint(module)}
    path = RESULTS / f"{name}.json"
    found = {"versions": versions, "made_by": made_by, "rows": rows}
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"wrote {path.relative_to(ROOT)}")


def fingerprint(module: Path) -> str:
    """What a module does, in sixteen letters: comments, doc-strings, empty lines do not count."""
    text = module.read_text()
    lines = dict(enumerate(text.splitlines(), 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            for line in range(node.body[0].lineno, node.body[0].end_lineno + 1):
                lines[line] = ""
    code = [line for line in lines.values() if line.strip() and not line.lstrip().startswith("#")]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()[:16]


def release(version: str) -> str:
    """``0.2`` of ``0.2.1.dev3``: what users see may change between these."""
    return ".".join(version.split(".")[:2])


def table(rows: list[dict[str, Any]]) -> str:
    """Rows with the same keys as a Markdown table."""
    if not rows:
        return ""
    head = list(rows[0])
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        if list(row) != head:
            raise ValueError(f"a row has the columns {list(row)}, its table {head}")
        cells = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
