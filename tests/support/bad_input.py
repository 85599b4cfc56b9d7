"""Ways to ask for what is refused, and models to spoil."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.contrib.control_flow import cond, scan
from numpyro.infer import (
    SVI,
)
from numpyro.primitives import _PYRO_STACK

import asvi
from asvi import AsviError, AutoASVI, SiteError

KEY = jax.random.key(0)
Y = jnp.array([1.0, 2.0, 3.0])
Y_NAN = jnp.array([1.0, jnp.nan, 3.0])


def make_svi(model: Callable, loss: Any = None, family: Any = None) -> SVI:
    return SVI(model, AutoASVI(model, family=family), optax.adam(1e-2), loss or asvi.ELBO())


def start(model: Callable, *args: Any, loss: Any = None, family: Any = None) -> Any:
    return make_svi(model, loss, family).init(KEY, *args)


def run(model: Callable, *args: Any, loss: Any = None) -> Any:
    return make_svi(model, loss).run(KEY, 2, *args, progress_bar=False)


def untrained(model: Callable, *args: Any) -> dict[str, Any]:
    svi = make_svi(model)
    return svi.get_params(svi.init(KEY, *args))


@contextmanager
def refused(kind: type[AsviError], *words: str) -> Iterator[None]:
    """What is inside raises this kind of error, with these words, and cleans up behind itself."""
    with pytest.raises(AsviError) as caught:
        yield
    assert type(caught.value) is kind
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert _PYRO_STACK == []


@contextmanager
def site_refused(site: str, problem: str, mended: str, kind=SiteError) -> Iterator[None]:
    """As ``refused``, with a text of the form ``site 'name': problem. Write instead: code``."""
    with pytest.raises(AsviError) as caught:
        yield
    assert type(caught.value) is kind
    where, _, code = str(caught.value).partition("\nWrite instead:\n    ")
    assert where.startswith(f"site {site!r}: "), where
    assert problem in where
    assert mended in code
    assert _PYRO_STACK == []


def warnings_of(action: Callable[[], Any]) -> list[warnings.WarningMessage]:
    """The warnings of ours that an action gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [warning for warning in caught if "site" in str(warning.message)]


def normal(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    with numpyro.plate("n", len(y)):
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def groups(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("n", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def walk(y, noise=1.0, reverse=False):
    def step(x, y_t):
        x = numpyro.sample("x", dist.Normal(x, 1.0))
        numpyro.sample("y", dist.Normal(x, noise), obs=y_t)
        return x, None

    scan(step, 0.0, y, reverse=reverse)


def switch(y):
    def branch(loc):
        return numpyro.sample("z", dist.Normal(loc, 1.0))

    z = cond(y[0] > 0, lambda _: branch(0.0), lambda _: branch(1.0), None)
    numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def angle(y):
    z = numpyro.sample("z", dist.VonMises(0.0, 1.0))
    with numpyro.plate("n", len(y)):
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def with_likelihood(make: Callable[[jax.Array], dist.Distribution]) -> Callable:
    """A model of one latent ``x`` whose data ``y`` have the distribution ``make(x)``."""

    def model(y):
        x = numpyro.sample("x", dist.Normal(2.0, 1.0))
        numpyro.sample("y", make(x), obs=y)

    return model


def with_prior(make: Callable[[], dist.Distribution]) -> Callable:
    """A model of one latent ``x`` without data."""
    return lambda: numpyro.sample("x", make())
