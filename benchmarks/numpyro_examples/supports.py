"""Takes nothing; gives models with odd supports: truncated, ordered, censored, missing, a map."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from benchmarks.numpyro_examples.entry import Data, Example


def truncated(low: float, y: jax.Array | None = None):
    """Normal data that were cut off from below: mean and scale of the uncut."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(3.0))
    with numpyro.plate("point", 60 if y is None else len(y)):
        numpyro.sample("y", dist.TruncatedNormal(mu, sigma, low=low), obs=y)


def truncated_data() -> Data:
    y = np.random.default_rng(50).normal(0.5, 1.5, 200)
    return (0.0,), {"y": y[y > 0][:80]}


def cut_at_unknown(y: jax.Array | None = None):
    """Data that begin at an unknown place: a flat place below the smallest of them."""
    low = numpyro.sample("low", dist.Uniform(-1.0, jnp.min(y)))
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("point", len(y)):
        numpyro.sample("y", dist.Exponential(rate), obs=y - low)


def cut_at_unknown_data() -> Data:
    return (np.random.default_rng(51).exponential(0.8, 30) + 0.5,), {}


def ordinal(x: jax.Array, y: jax.Array | None = None):
    """Ordered answers on a predictor, with cut points that are ordered normals."""
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    ordered = dist.TransformedDistribution(
        dist.Normal(0.0, 1.0).expand([3]).to_event(1), dist.transforms.OrderedTransform()
    )
    cuts = numpyro.sample("cuts", ordered)
    with numpyro.plate("answer", len(x)):
        numpyro.sample("y", dist.OrderedLogistic(slope * x, cuts), obs=y)


def ordinal_flat(x: jax.Array, y: jax.Array | None = None):
    """Ordered answers on a predictor, with cut points that have a flat prior on ordered vectors."""
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    cuts = numpyro.sample("cuts", dist.ImproperUniform(constraints.ordered_vector, (), (3,)))
    with numpyro.plate("answer", len(x)):
        numpyro.sample("y", dist.OrderedLogistic(slope * x, cuts), obs=y)


def ordinal_data() -> Data:
    rng = np.random.default_rng(52)
    x = rng.normal(size=100)
    return (x,), {"y": np.digitize(1.2 * x + rng.logistic(size=100), [-1.5, 0.0, 1.5])}


def survival(x: jax.Array, seen: jax.Array, time: jax.Array):
    """Weibull times to an event on a predictor; of the rest it is known that they are later."""
    b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    shape = numpyro.sample("shape", dist.Exponential(1.0))
    law = dist.Weibull(jnp.exp(b[0] + b[1] * x), shape)
    survived = -((time / law.scale) ** shape)
    numpyro.factor("time", jnp.where(seen, law.log_prob(time), survived).sum())


def survival_data() -> Data:
    rng = np.random.default_rng(53)
    x = rng.normal(size=90)
    time, end = np.exp(0.8 - 0.5 * x) * rng.weibull(1.4, 90), rng.uniform(0.5, 5.0, 90)
    return (x, time < end, np.minimum(time, end)), {}


def imputation(age: jax.Array, fare: jax.Array, known: jax.Array, survived=None):
    """Survival on a ship, where some ages are not known: they are latent, the rest are data."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    gaps = np.flatnonzero(~np.asarray(known))
    missing = numpyro.sample("missing", dist.Normal(mean, spread).expand([len(gaps)]).to_event(1))
    whole = jnp.asarray(age).at[gaps].set(missing)
    numpyro.sample("age", dist.Normal(mean, spread).mask(known), obs=whole)
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("passenger", len(fare)):
        logits = b[0] + b[1] * whole + b[2] * fare
        numpyro.sample("survived", dist.Bernoulli(logits=logits), obs=survived)


def imputation_data() -> Data:
    rng = np.random.default_rng(54)
    age, fare, known = rng.normal(size=120), rng.normal(size=120), rng.uniform(size=120) < 0.85
    logits = -0.4 - 0.8 * age + 0.9 * fare
    y = rng.binomial(1, 1 / (1 + np.exp(-logits)))
    return (np.where(known, age, 0.0), fare, known), {"survived": y}


def item_response(person: jax.Array, item: jax.Array, right: jax.Array | None = None):
    """Answers to questions: abilities, difficulties, and how much each question tells."""
    with numpyro.plate("persons", 30):
        ability = numpyro.sample("ability", dist.Normal(0.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("items", 8):
        difficulty = numpyro.sample("difficulty", dist.Normal(0.0, spread))
        telling = numpyro.sample("telling", dist.LogNormal(0.0, 0.5))
    logits = telling[item] * (ability[person] - difficulty[item])
    with numpyro.plate("answer", len(person)):
        numpyro.sample("right", dist.Bernoulli(logits=logits), obs=right)


def item_response_data() -> Data:
    rng = np.random.default_rng(55)
    person, item = np.repeat(np.arange(30), 8), np.tile(np.arange(8), 30)
    ability, difficulty = rng.normal(size=30), rng.normal(size=8)
    chance = 1 / (1 + np.exp(-(ability[person] - difficulty[item])))
    return (person, item), {"right": rng.binomial(1, chance)}


def mortality(adjacent: jax.Array, expected: jax.Array, deaths: jax.Array | None = None):
    """Deaths in sixteen neighbouring districts: conditional autoregression on a map."""
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    near = numpyro.sample("near", dist.Beta(2.0, 2.0))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    effect = numpyro.sample("effect", dist.CAR(0.0, near, tau, adjacent))
    with numpyro.plate("district", len(expected)):
        numpyro.sample("deaths", dist.Poisson(expected * jnp.exp(level + effect)), obs=deaths)


def mortality_data() -> Data:
    rng = np.random.default_rng(56)
    row, column = np.divmod(np.arange(16), 4)
    apart = abs(row[:, None] - row) + abs(column[:, None] - column)
    expected = rng.uniform(5.0, 20.0, 16)
    rate = np.exp(0.2 + 0.3 * np.sin(row) + 0.2 * rng.normal(size=16))
    return ((apart == 1).astype(float), expected), {"deaths": rng.poisson(expected * rate)}


def stacking(density: jax.Array, x: jax.Array):
    """Weights of three models by their predictive densities, which move with a predictor."""
    spread = numpyro.sample("spread", dist.HalfNormal(1.0).expand([2]).to_event(1))
    with numpyro.plate("model", 2):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, spread))
    logits = jnp.column_stack([level + slope * x[:, None], jnp.zeros(len(x))])
    mixed = jax.nn.logsumexp(jax.nn.log_softmax(logits) + density, axis=-1)
    numpyro.factor("stacked", mixed.sum())


def stacking_data() -> Data:
    rng = np.random.default_rng(57)
    x = rng.normal(size=80)
    return (rng.normal(-1.0, 0.5, (80, 3)) + np.outer(x, [0.5, 0.0, -0.4]), x), {}


def ideal_points(speaker: jax.Array, counts: jax.Array, words: int):
    """Words of speakers whose frequencies move with an ideal point of each (Poisson factors)."""
    base = numpyro.sample("base", dist.Gamma(2.0, 1.0).expand([words]).to_event(1))
    lean = numpyro.sample("lean", dist.Normal(0.0, 0.5).expand([words]).to_event(1))
    with numpyro.plate("speakers", 10):
        place = numpyro.sample("place", dist.Normal(0.0, 1.0))
    rates = base * jnp.exp(place[speaker][:, None] * lean)
    numpyro.sample("counts", dist.Poisson(rates).to_event(2), obs=counts)


def ideal_points_data() -> Data:
    rng = np.random.default_rng(58)
    speaker, place, lean = np.repeat(np.arange(10), 3), rng.normal(size=10), rng.normal(0, 0.5, 12)
    rates = rng.gamma(2.0, 1.0, 12) * np.exp(np.outer(place[speaker], lean))
    return (speaker, rng.poisson(rates), 12), {}


ENTRIES = [
    Example("truncated-normal", truncated, truncated_data),
    Example("unknown-cut", cut_at_unknown, cut_at_unknown_data),
    Example("ordinal", ordinal, ordinal_data),
    Example("ordinal-flat", ordinal_flat, ordinal_data),
    Example("censored-survival", survival, survival_data),
    Example("imputed-ages", imputation, imputation_data),
    Example("item-response", item_response, item_response_data, target_accept=0.95),
    Example("mortality-car", mortality, mortality_data),
    Example("stacking", stacking, stacking_data, target_accept=0.95),
    # The sign of all leans and places is free.
    Example("ideal-points", ideal_points, ideal_points_data, compared=("base",)),
]
