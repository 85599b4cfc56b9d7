"""Small models with discrete sites in plates, made from a number: every way in which cells meet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

from asvi.families import ConvexUpdate, MeanField

#: What the likelihood makes of the cells z (n,), in floats.
USES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "alone": lambda z: 2.0 * z - 1.0,
    "table": lambda z: jnp.array([-1.0, 0.5, 2.0])[z.astype(int)],
    "in order": lambda z: z[jnp.arange(len(z))],
    "column": lambda z: jnp.stack([z, 1.0 - z], 1)[:, 0],
    "loop": lambda z: jax.lax.fori_loop(0, 2, lambda _, x: 0.5 * x + z, z),
    "max": lambda z: jnp.max(z) + 0.0 * z,
    "sum": lambda z: jnp.sum(z) - 0.5 * z,
    "centred": lambda z: z - jnp.mean(z),
    "roll": lambda z: 2.0 * jnp.roll(z, 1),
    "next": lambda z: 2.0 * jnp.concatenate([z[1:], jnp.zeros(1)]),
    "partner": lambda z: z + z[np.arange(len(z))[::-1]],
    "matmul": lambda z: jnp.tri(len(z)) @ z,
    "cumsum": lambda z: jnp.cumsum(z),
    "extremes": lambda z: jnp.where(z == jnp.max(z), 2.0, jnp.min(z)),
    "scan": lambda z: jax.lax.scan(lambda c, x: (c + x, c), 0.0, z)[1],
    "scatter": lambda z: jnp.zeros(len(z)).at[np.arange(len(z))[::-1]].set(z),
    "pairs": lambda z: jnp.sum(z[:, None] * z[None, :], 1),
}

#: Those in which no two cells meet; and the places in which what depends on z is in its plate.
APART = ("alone", "table", "in order", "column", "loop")
IN_THE_PLATE = ("same plate", "plate again", "inner plate", "factor in plate", "scaled", "masked")

PRIORS = {
    "bernoulli": lambda lean, n: dist.Bernoulli(logits=lean + 0.4 * jnp.arange(n) - 0.3),
    "categorical": lambda lean, n: dist.Categorical(
        logits=jnp.stack([jnp.zeros(n), 0.3 * jnp.arange(n) + lean, -0.5 * jnp.ones(n)], 1)
    ),
    "binomial": lambda lean, n: dist.Binomial(2, logits=jnp.full(n, lean - 0.2)),
}

PLACES = (
    "same plate",
    "plate again",
    "other plate",
    "other axis",
    "no plate",
    "event",
    "inner plate",
    "factor in plate",
    "factor outside",
    "scaled",
    "masked",
)
BESIDES = ("nothing", "parent", "child", "twin", "no plate", "rows", "rows added")
NAMES = ("plain", "scope", "slash", "nested slash")


class Case(NamedTuple):
    """What one model is made of."""

    use: str
    place: str
    prior: str = "bernoulli"
    besides: str = "nothing"
    naming: str = "plain"
    n: int = 3
    family: Any = None

    @classmethod
    def drawn(cls, seed: int) -> Case:
        rng = np.random.default_rng(seed)

        def one(of):
            return list(of)[rng.integers(len(of))]

        prior, besides = one(PRIORS), one(BESIDES)
        few = prior != "bernoulli" or besides not in ("nothing", "parent", "no plate")
        family = one((None, ConvexUpdate(), MeanField()))
        n = 2 if few else int(rng.integers(2, 4))
        return cls(one(USES), one(PLACES), prior, besides, one(NAMES), n, family)

    def values_of(self, site: str) -> int:
        """How many values an element of this site has."""
        own = site.split("/")[-1] in ("z", "twin")
        return 3 if own and self.prior != "bernoulli" else 2

    def __str__(self) -> str:
        return f"{self.use}, {self.place}, {self.prior}, {self.besides}, {self.naming}, {self.n}"


def model_of(case: Case) -> Callable:
    """The model; its data are (2, n)."""
    n = case.n
    prefix = {"slash": "a/", "nested slash": "z/"}.get(case.naming, "")

    def model(y):
        lean = 0.2
        if case.besides == "parent":
            lean = lean + 0.8 * numpyro.sample(f"{prefix}g", dist.Bernoulli(0.4))
        with numpyro.plate("n", n) if case.besides != "no plate" else nullcontext():
            with numpyro.plate("row", 2, dim=-2) if "rows" in case.besides else nullcontext():
                z = numpyro.sample(f"{prefix}z", PRIORS[case.prior](lean, n)).astype(float)
            if case.besides == "rows":
                z = z[0]
            if case.besides == "rows added":
                z = jnp.sum(z, 0)
        with numpyro.plate("n", n):
            if case.besides == "twin":
                z = z - numpyro.sample(f"{prefix}twin", PRIORS[case.prior](-lean, n))
            if case.besides == "child":
                logits = 1.5 * USES[case.use](z) - 1.0
                z = z + numpyro.sample(f"{prefix}z/w", dist.Bernoulli(logits=logits))
            loc = USES[case.use](z)
            if case.place == "same plate":
                numpyro.sample(f"{prefix}y", dist.Normal(loc, 1.0), obs=y[0])
            if case.place == "inner plate":
                with numpyro.plate("row", 2, dim=-2):
                    numpyro.sample(f"{prefix}y", dist.Normal(loc, 1.0), obs=y)
            if case.place == "factor in plate":
                numpyro.factor(f"{prefix}f", -0.5 * (y[0] - loc) ** 2)
        if case.place == "plate again":
            with numpyro.plate("n", n):
                numpyro.sample(f"{prefix}y", dist.Normal(loc, 1.0), obs=y[0])
        if case.place == "other plate":
            with numpyro.plate("m", n):
                numpyro.sample(f"{prefix}y", dist.Normal(loc, 1.0), obs=y[0])
        if case.place == "other axis":
            with numpyro.plate("m", n, dim=-2):
                numpyro.sample(f"{prefix}y", dist.Normal(loc[:, None], 1.0), obs=y[0][:, None])
        if case.place == "no plate":
            numpyro.sample(f"{prefix}y", dist.Normal(loc, 1.0), obs=y[0])
        if case.place == "event":
            numpyro.sample(f"{prefix}y", dist.Normal(loc, 1.0).to_event(1), obs=y[0])
        if case.place == "factor outside":
            numpyro.factor(f"{prefix}f", -0.5 * jnp.sum((y[0] - loc) ** 2))
        if case.place == "scaled":
            with numpyro.plate("n", n), handlers.scale(scale=jnp.exp(0.3 * loc)):
                numpyro.sample(f"{prefix}y", dist.Normal(0.0, 1.0), obs=y[0])
        if case.place == "masked":
            with numpyro.plate("n", n), handlers.mask(mask=loc > 0.5):
                numpyro.sample(f"{prefix}y", dist.Normal(0.0, 1.0), obs=y[0])

    def scoped(y):
        with handlers.scope(prefix="a") if case.naming == "scope" else nullcontext():
            model(y)

    return scoped
