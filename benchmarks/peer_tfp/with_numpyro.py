"""Takes a task's name and a guide's; gives our guide, or one of NumPyro's own, on it."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import jax
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoIAFNormal, AutoMultivariateNormal, AutoNormal

import asvi

sys.path.insert(0, str(Path(__file__).parent))
from measure import report

STOCK = {
    "AutoNormal": AutoNormal,
    "AutoMultivariateNormal": AutoMultivariateNormal,
    "AutoIAFNormal": AutoIAFNormal,
}


def main(name: str, library: str, steps: int) -> None:
    warnings.simplefilter("ignore")  # the loop's hint at scan: the loop is the point here
    task = asvi.tasks.get(name.removesuffix("-loop"))
    model = task.loop if name.endswith("-loop") and task.loop is not None else task.model
    if library == "asvi":
        # The plain gate, as TFP has it: at a constant learning rate ours would only jitter more.
        family = asvi.families.ConvexUpdate(gate_gain=1.0)
        guide, loss = asvi.AutoASVI(model, family=family), asvi.ELBO()
    else:
        guide, loss = STOCK[library](model), Trace_ELBO()
    svi = SVI(model, guide, optax.flatten(optax.adam(1e-2)), loss)
    start = svi.init(jax.random.key(0), *task.args)

    def step(state):
        return svi.update(state, *task.args)[0]

    def judge(state):
        params = svi.get_params(state)
        keys = jax.random.split(jax.random.key(1), 1000)
        one = jax.jit(
            lambda p: jax.lax.map(lambda k: loss.loss(k, p, model, guide, *task.args), keys).mean()
        )
        return one(params)

    report(name, library, start, step, judge, steps)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
