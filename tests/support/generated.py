"""Takes a seed; gives a small model with its arguments: features × distributions × forms of data.

Every model has a latent ``z`` of some distribution and structure, and data whose mean follows it.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam

__all__ = ["Generated", "generate"]

N = 4  # rows


@dataclasses.dataclass
class Generated:
    """A model, what it is called with, and what it is made of."""

    model: Callable
    args: tuple
    kwargs: dict[str, Any]
    made_of: dict[str, str]


# ------------------------------------------------------------------- distributions of one number

PRIORS: dict[str, Callable[[Any], Any]] = {
    "normal": lambda m: dist.Normal(m, 2.0),
    "wide normal": lambda m: dist.Normal(m, 1e4),
    "log-normal": lambda m: dist.LogNormal(0.1 * m, 0.5),
    "gamma": lambda m: dist.Gamma(2.0 + m**2, 1.5),
    "inverse gamma": lambda m: dist.InverseGamma(3.0, 2.0 + m**2),
    "beta": lambda m: dist.Beta(2.0 + m**2, 3.0),
    "half-normal": lambda m: dist.HalfNormal(1.0 + m**2),
    "half-cauchy": lambda m: dist.HalfCauchy(1.0 + m**2),
    "exponential": lambda m: dist.Exponential(0.5 + m**2),
    "uniform": lambda m: dist.Uniform(-1.0, 2.0 + m**2),
    "t": lambda m: dist.StudentT(4.0, m, 1.5),
    "cauchy": lambda m: dist.Cauchy(m, 1.0),
    "laplace": lambda m: dist.Laplace(m, 1.0),
    "gumbel": lambda m: dist.Gumbel(m, 1.0),
    "logistic": lambda m: dist.Logistic(m, 1.0),
    "weibull": lambda m: dist.Weibull(1.0 + m**2, 2.0),
    "truncated": lambda m: dist.TruncatedNormal(m, 2.0, low=-1.0),
    "chi-squared": lambda m: dist.Chi2(3.0 + m**2),
    "affine": lambda m: dist.TransformedDistribution(
        dist.Normal(m, 1.0), dist.transforms.AffineTransform(1.0, 3.0)
    ),
}

LIKELIHOODS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "normal": (lambda eta: dist.Normal(eta, 1.3), "real"),
    "t": (lambda eta: dist.StudentT(3.0, eta, 1.0), "real"),
    "poisson": (lambda eta: dist.Poisson(jnp.exp(eta)), "count"),
    "bernoulli": (lambda eta: dist.Bernoulli(logits=eta), "bit"),
    "negative binomial": (lambda eta: dist.NegativeBinomial2(jnp.exp(eta), 3.0), "count"),
    "gamma": (lambda eta: dist.Gamma(2.0, jnp.exp(-eta)), "positive"),
}


# ------------------------------------------------------------------------- structures of latents


def alone(prior, m):
    return numpyro.sample("z", prior(m))


def expanded(prior, m):
    return jnp.sum(jnp.tanh(numpyro.sample("z", prior(m).expand([3]).to_event(1))))


def in_plate(prior, m):
    with numpyro.plate("group", N):
        return numpyro.sample("z", prior(m))


def in_plates(prior, m):
    with numpyro.plate("outer", 2, dim=-2), numpyro.plate("group", N):
        z = numpyro.sample("z", prior(m))
    return jnp.sum(jnp.tanh(z), 0)


def hierarchy(prior, m):
    scale = numpyro.sample("tau", dist.HalfNormal(1.0))
    loc = numpyro.sample("loc", prior(m))
    with numpyro.plate("group", N):
        return numpyro.sample("z", dist.Normal(loc, scale))


def reparametrised(prior, m):
    loc = numpyro.sample("loc", prior(m))
    with (
        numpyro.plate("group", N),
        handlers.reparam(config={"z": LocScaleReparam(0.3)}),
    ):
        return numpyro.sample("z", dist.Normal(loc, 0.7))


def looped(prior, m):
    z = 0.0
    for k in range(3):
        z = z + jnp.tanh(numpyro.sample(f"z{k}", prior(m * 0.1)))
    return z


def scanned(prior, m):
    def step(x, _):
        x = numpyro.sample("z", dist.Normal(0.7 * x, 0.5))
        return x, x

    first = numpyro.sample("first", prior(m))
    return scan(step, jnp.tanh(first), None, length=N)[1]


def simplex(prior, m):
    weight = numpyro.sample("w", prior(m))
    p = numpyro.sample("z", dist.Dirichlet(jnp.array([1.5, 2.0, 3.0])))
    return p[0] * jnp.tanh(weight)


def correlated(prior, m):
    scale = jnp.array([[1.0, 0.0], [0.8, 0.5]])
    z = numpyro.sample("z", dist.MultivariateNormal(jnp.zeros(2) + m, scale_tril=scale))
    return jnp.tanh(z[0]) + numpyro.deterministic("twice", 2 * z[1])


def scaled(prior, m):
    z = numpyro.sample("z", prior(m))
    with handlers.scale(scale=0.3):
        numpyro.sample("seen", dist.Normal(jnp.tanh(z), 1.0), obs=0.5)
    return z


def masked_data(prior, m):
    z = numpyro.sample("z", prior(m))
    with numpyro.plate("seen_rows", 3), handlers.mask(mask=jnp.array([True, False, True])):
        numpyro.sample("seen", dist.Normal(jnp.tanh(z), 1.0), obs=jnp.array([0.1, 9.0, 0.3]))
    return z


def with_factor(prior, m):
    z = numpyro.sample("z", prior(m))
    numpyro.factor("extra", -0.5 * jnp.tanh(z) ** 2)
    return z


def with_random_features(prior, m):
    z = numpyro.sample("z", prior(m))
    return z * jax.random.normal(jax.random.key(3), (N,))


def conditioned(prior, m):
    def inner():
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        return numpyro.sample("z", prior(m)) * scale

    return handlers.condition(inner, data={"scale": 0.5})()


def known_value(prior, m):
    numpyro.sample("known", dist.Normal(m, 1.0), obs=jnp.float32(0.3))
    return numpyro.sample("z", prior(m)) + numpyro.deterministic("moved", 0.1 * m)


STRUCTURES = [
    alone, expanded, in_plate, in_plates, hierarchy, reparametrised, looped, scanned, simplex,
    correlated, scaled, masked_data, with_factor, with_random_features, conditioned, known_value,
]  # fmt: skip


# ----------------------------------------------------------------------------- forms of arguments

Pair = namedtuple("Pair", ["y", "x"])


@dataclasses.dataclass
class Rows:
    y: Any
    x: Any


FORMS: dict[str, tuple[Callable, Callable]] = {
    # how the data are given, and how the model reads them
    "positional": (lambda x, y: ((x, y), {}), lambda x, y: (x, y)),
    "keywords": (lambda x, y: ((), {"y": y, "x": x}), lambda *, y, x: (x, y)),
    "any keywords": (
        lambda x, y: ((), {"zeta": x, "alpha": y}),
        lambda **columns: tuple(columns.values()),
    ),
    "dict": (lambda x, y: (({"zeta": x, "alpha": y},), {}), lambda d: tuple(d.values())),
    "keys of several types": (lambda x, y: (({"x": x, 7: y},), {}), lambda d: (d["x"], d[7])),
    "named tuple": (lambda x, y: ((Pair(y, x),), {}), lambda p: (p.x, p.y)),
    "dataclass": (lambda x, y: ((Rows(y, x),), {}), lambda r: (r.x, r.y)),
    "data frame": (
        lambda x, y: ((pandas.DataFrame({"x": np.asarray(x), "y": np.asarray(y)}),), {}),
        lambda frame: (frame["x"].values, frame["y"].values),
    ),
    "series": (
        lambda x, y: ((pandas.Series(np.asarray(x)), pandas.Series(np.asarray(y))), {}),
        lambda x, y: (x.to_numpy(), y.to_numpy()),
    ),
    "nested": (lambda x, y: (([x, {"y": (y,)}],), {}), lambda nest: (nest[0], nest[1]["y"][0])),
    "lists": (
        lambda x, y: ((np.asarray(x).tolist(), np.asarray(y).tolist()), {}),
        lambda x, y: (np.asarray(x), np.asarray(y)),
    ),
    "flag": (lambda x, y: ((x, y, True), {}), lambda x, y, up: (x, y) if up is True else (-x, y)),
    "edits in place": (lambda x, y: ((np.array(x), y), {}), None),
}


def _in_place(x, y):
    x *= 2
    return x, y


TYPES = ["float64", "float32", "float16", "int64", "int32", "int8", "uint8"]


def generate(seed: int) -> Generated:
    """The model of this seed."""
    rng = np.random.default_rng(seed)
    prior_name, structure = rng.choice(list(PRIORS)), STRUCTURES[rng.integers(len(STRUCTURES))]
    likelihood_name, form = rng.choice(list(LIKELIHOODS)), str(rng.choice(list(FORMS)))
    dtype, in_jax = str(rng.choice(TYPES)), bool(rng.integers(2))
    prior, (likelihood, kind) = PRIORS[prior_name], LIKELIHOODS[likelihood_name]
    x = rng.normal(size=N) if dtype.startswith("float") else rng.integers(0, 4, N)
    y = {
        "real": rng.normal(size=N),
        "count": rng.poisson(2.0, N),
        "bit": rng.integers(0, 2, N),
        "positive": rng.gamma(2.0, size=N),
    }[kind]
    make, read = FORMS[form]
    read = _in_place if read is None else read
    x = np.asarray(x, dtype)
    in_jax = in_jax and form != "edits in place"
    args, kwargs = make(jnp.asarray(x) if in_jax else x, y)
    centre = 0.2 * float(rng.normal())
    wrap = str(rng.choice(["bare", "scope", "slash", "instance"]))
    if structure is scanned and wrap != "bare":  # NumPyro's values do not reach a scan in a scope
        wrap = "instance"

    def model(*args, **kwargs):
        x, y = read(*args, **kwargs)
        x = x * 0.1
        z = structure(prior, centre)
        eta = 0.5 * jnp.tanh(z) + 0.1 * (x - x.mean())
        eta = jnp.broadcast_to(eta, (N,))
        if rng_plate:
            with numpyro.plate("row", N):
                numpyro.sample("y", likelihood(eta), obs=y)
        else:
            numpyro.sample("y", likelihood(eta).to_event(1), obs=y)

    rng_plate = bool(rng.integers(2))
    given: Callable = model
    if wrap == "scope":
        given = handlers.scope(model, prefix="a")
    elif wrap == "slash":
        given = handlers.scope(model, prefix="a/b", divider=".")
    elif wrap == "instance":
        given = type("Model", (), {"__call__": lambda self, *a, **k: model(*a, **k)})()
    about = {"prior": prior_name, "structure": structure.__name__, "likelihood": likelihood_name}
    about |= {"form": form, "dtype": dtype, "jax": str(in_jax), "wrap": wrap}
    return Generated(given, args, kwargs, about)
