"""Takes a small model and a plate of growing size; gives agreement and memory of amortised fits.

``python -m benchmarks.amortised``: (a) a local Gaussian latent per point under a global mean, where
the evidence is known, and a model that is not Gaussian: the convex update with parameters per
point and amortised, each trained long; (b) plates of 10⁴, 10⁵ and 10⁶ points trained from a stream
of minibatches, each in a process of its own whose peak memory is measured. ``agreement`` or
``memory`` as argument runs one of them.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI

import asvi
from asvi.families import Amortized, ConvexUpdate, SetEncoder
from benchmarks.harness import RESULTS, save, table, train

POINTS, STEPS = 50, 6000
SIZES, BATCH, LARGE_STEPS = (10**4, 10**5, 10**6), 200, 5000


def local_gaussian(y: jax.Array) -> None:
    """A latent per point around a global mean, each seen once."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    with numpyro.plate("point", len(y)):
        z = numpyro.sample("z", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Normal(z, 0.5), obs=y)


def local_scales(y: jax.Array) -> None:
    """A latent scale per point under a global one, each point seen ten times: not Gaussian."""
    tau = numpyro.sample("tau", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("point", y.shape[-1], dim=-1):
        sigma = numpyro.sample("sigma", dist.LogNormal(jnp.log(tau), 0.5))
        with numpyro.plate("time", y.shape[0], dim=-2):
            numpyro.sample("y", dist.Normal(0.0, sigma), obs=y)


def agreement() -> list[dict]:
    """ELBOs of amortised and per-point fits of the same model."""
    key = jax.random.key(0)
    y = 2.0 + 1.25**0.5 * jax.random.normal(key, (POINTS,))
    covariance = 9.0 * jnp.ones((POINTS, POINTS)) + 1.25 * jnp.eye(POINTS)
    evidence = float(dist.MultivariateNormal(jnp.zeros(POINTS), covariance).log_prob(y))
    scale = jnp.exp(0.5 * jax.random.normal(key, (POINTS,)))
    series = scale * jax.random.normal(jax.random.key(1), (10, POINTS))
    rows = []
    for model, data, exact in ((local_gaussian, y, evidence), (local_scales, series, None)):
        elbos = {}
        for name, family in (
            ("parameters per point", ConvexUpdate(initial_prior_weight=0.5)),
            ("amortised", Amortized(SetEncoder(width=32), plate="point")),
        ):
            guide = asvi.AutoASVI(model, family=family)
            guide._setup_prototype(data)
            found = train(
                model,
                guide,
                (data,),
                keys=jax.random.split(key, 2),
                steps=STEPS,
                loss=asvi.ELBO(num_particles=4, estimator="path"),
            )
            elbos[name] = float(jnp.max(found["elbo"]))
        rows.append(
            {
                "model": model.__name__,
                "points": POINTS,
                "log evidence": "not known" if exact is None else round(exact, 3),
                **{f"ELBO, {name}": round(elbo, 3) for name, elbo in elbos.items()},
                "difference per point [nat]": round(
                    abs(elbos["parameters per point"] - elbos["amortised"]) / POINTS, 5
                ),
            }
        )
    return rows


def large(size: int) -> dict:
    """Train a plate of ``size`` points from a stream of minibatches; peak memory of the process."""

    def model(batch):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
        with numpyro.plate("point", size, subsample_size=len(batch)):
            z = numpyro.sample("z", dist.Normal(mu, 1.0))
            numpyro.sample("y", dist.Normal(z, 0.5), obs=batch)

    def stream():
        """All points in minibatches, epoch after epoch; no more than one is ever held.

        A minibatch is made from its number: the same points come again in every epoch.
        """
        while True:
            for number in range(size // BATCH):
                draw = np.random.default_rng((size, number))
                yield jnp.asarray(2.0 + 1.25**0.5 * draw.standard_normal(BATCH), jnp.float32)

    guide = asvi.AutoASVI(model, family=Amortized(SetEncoder(width=32), plate="point"))
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-2, LARGE_STEPS))
    svi = SVI(model, guide, optimizer, asvi.ELBO())
    batches = stream()
    state = svi.init(jax.random.key(0), next(batches))
    update = jax.jit(svi.update, donate_argnums=0)
    before = _peak()
    losses = []
    for _ in range(LARGE_STEPS):
        state, loss = update(state, next(batches))
        losses.append(float(loss))
    params = svi.get_params(state)
    held_out = jnp.asarray(2.0 + 1.25**0.5 * np.random.default_rng(1).standard_normal(BATCH))
    # Compiled, the rows that the plate draws and nobody reads are never made.
    judge = jax.jit(
        lambda params: asvi.ELBO(num_particles=100).loss(
            jax.random.key(1), params, model, guide, held_out
        )
    )
    elbo = -float(judge(params)) / size
    return {
        "points": size,
        "parameters of the guide": sum(int(x.size) for x in params.values()),
        "minibatch": BATCH,
        "epochs": LARGE_STEPS * BATCH // size,
        "held-out ELBO per point": round(elbo, 4),
        "log evidence per point at the true mean": round(
            float(dist.Normal(2.0, 1.25**0.5).log_prob(held_out).mean()), 4
        ),
        "peak memory [MB]": round(_peak(), 1),
        "of it after the first call [MB]": round(_peak() - before, 1),
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--points":
        print(json.dumps(large(int(sys.argv[2]))))
        return
    path = RESULTS / "amortised.json"
    found = json.loads(path.read_text())["rows"] if path.exists() else {}
    parts = {"memory": memory, "agreement": agreement}
    for name in sys.argv[1:] or parts:
        found[name] = parts[name]()
        print(table(found[name]), flush=True)
    save("amortised", found)


def memory() -> list[dict]:
    """Each size in a process of its own."""
    rows = []
    for size in SIZES:
        command = [sys.executable, "-m", "benchmarks.amortised", "--points", str(size)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(answer.stdout.splitlines()[-1]))
    return rows


if __name__ == "__main__":
    main()
