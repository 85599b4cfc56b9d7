"""Scans whose values NumPyro's own ``log_density`` does not reach: ours are judged without it."""

from __future__ import annotations

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan

import asvi
from asvi.families import StructuredNormal

Y = np.array([4.0, 5.0, 6.0], np.float32)


def walk(y):
    def step(x, y):
        x = numpyro.sample("x", dist.Normal(x, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
        return x, None

    scan(step, 0.0, y)


def walk_by_hand(y):
    x = 0.0
    for t in range(3):
        x = numpyro.sample(f"x{t}", dist.Normal(x, 1.0))
        numpyro.sample(f"y{t}", dist.Normal(x, 1.0), obs=y[t])


def nested(y):
    def inner(b, _):
        b = numpyro.sample("b", dist.Normal(b, 1.0))
        return b, b

    def step(a, y):
        a = numpyro.sample("a", dist.Normal(a, 1.0))
        numpyro.sample("y", dist.Normal(scan(inner, a, None, length=2)[1].sum(), 1.0), obs=y)
        return a, None

    scan(step, 0.0, y)


def nested_by_hand(y):
    a = 0.0
    for t in range(3):
        a = numpyro.sample(f"a{t}", dist.Normal(a, 1.0))
        b = numpyro.sample(f"b{t}", dist.Normal(a, 1.0))
        c = numpyro.sample(f"c{t}", dist.Normal(b, 1.0))
        numpyro.sample(f"y{t}", dist.Normal(b + c, 1.0), obs=y[t])


@pytest.mark.parametrize(
    ("model", "by_hand"),
    [
        (nested, nested_by_hand),
        (handlers.scope(walk, prefix="a"), walk_by_hand),
        (handlers.scope(nested, prefix="a"), nested_by_hand),
    ],
)
def test_a_scan_is_a_loop(model, by_hand):
    found, wanted = (
        asvi.fit(m, Y, family=StructuredNormal(), progress_bar=False) for m in (model, by_hand)
    )
    assert abs(found.elbo - wanted.elbo) < 1e-3  # both exact, for a Gaussian model
    assert found.diagnose().verdict == "good"
