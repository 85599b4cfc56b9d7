"""Takes ten simulated Lorenz series; gives, for each start, how many fits find the right basin.

``python -m benchmarks.start``: one draw, constant Adam 1e-2, 6,000 steps, plain convex update. A
fit counts as found when its ELBO is within 15 nats of the best that any start reached on its data.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import SVI

import asvi
from asvi.families import ConvexUpdate
from benchmarks.harness import save, table
from benchmarks.models import lorenz, lorenz_data

STEPS, SERIES = 6000, 10


def final_elbos(family: ConvexUpdate, ys: jax.Array, mask: jax.Array) -> np.ndarray:
    guide = asvi.AutoASVI(lorenz, family=family)
    guide._setup_prototype(ys[0], mask)
    svi = SVI(lorenz, guide, optax.adam(1e-2), asvi.ELBO())
    judge = asvi.ELBO(num_particles=200)

    def fit(key, y):
        state = svi.init(key, y, mask)
        state, _ = jax.lax.scan(lambda s, _: svi.update(s, y, mask), state, length=STEPS)
        return -judge.loss(key, svi.get_params(state), lorenz, guide, y, mask)

    keys = jax.random.split(jax.random.key(0), len(ys))
    return np.asarray(jax.jit(jax.vmap(fit))(keys, ys))


def main() -> None:
    data = [lorenz_data(number) for number in range(SERIES)]
    ys, mask = jnp.stack([y for y, _ in data]), data[0][1]
    found = {}
    for weight in (0.5, 0.9, 0.98, 0.99, 0.999, 0.9999):
        for start in ("prior_mean", "prior_draw", "random"):
            for gain in (1.0, 4.0) if start == "prior_mean" else (4.0,):
                family = ConvexUpdate(initial_prior_weight=weight, start=start, gate_gain=gain)
                found[weight, start, gain] = final_elbos(family, ys, mask)
                print(weight, start, gain, np.round(found[weight, start, gain], 1), flush=True)
    best = np.max([e[np.newaxis] for e in found.values()], axis=0)[0]
    rows = [
        {
            "initial prior weight": weight,
            "data term starts at": start,
            "gain of the gate": gain,
            "right basin": f"{int((best - elbos < 15).sum())} of {SERIES}",
            "median distance to the best [nat]": round(float(np.median(best - elbos)), 1),
        }
        for (weight, start, gain), elbos in found.items()
    ]
    save("start", rows)
    print(table(rows))


if __name__ == "__main__":
    main()
