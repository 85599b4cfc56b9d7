"""Program: sites in order, parents, plates, blocks; provenance through loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import cond, scan
from numpyro.handlers import reparam, scope
from numpyro.infer.reparam import LocScaleReparam

import asvi
from asvi import Program
from asvi.program.addresses import BodyKey
from asvi.program.dependence.provenance import provenance


def test_sites_plates_parents_and_kinds():
    def model(x, y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.HalfNormal(1.0))
        with numpyro.plate("row", 10, subsample_size=4) as rows:
            w = numpyro.sample("w", dist.Normal(a, 1.0))
            eta = numpyro.deterministic("eta", w * x[rows])
            numpyro.sample("y", dist.Normal(eta, b), obs=y[rows])
        numpyro.factor("f", -(a**2))

    program = Program.of(model, jnp.ones(10), jnp.zeros(10))
    assert [s.name for s in program.sites] == ["a", "b", "w", "y", "f"]
    assert [s.kind for s in program.sites] == ["latent", "latent", "latent", "observed", "factor"]
    assert program["w"].parents == ("a",)
    assert program["y"].parents == ("b", "w")
    assert program["f"].parents == ("a",)
    (plate,) = program["w"].plates
    assert (plate.name, plate.size, plate.subsample_size, plate.dim) == ("row", 10, 4, -1)
    assert program["w"].batch_shape == (4,)
    assert program["w"].full_batch_shape == (10,)


def test_control_flow_blocks_and_parents_through_carries():
    def model(y):
        drift = numpyro.sample("drift", dist.Normal(0.0, 1.0))

        def step(carry, y_t):
            x, _ = carry
            x = numpyro.sample("x", dist.Normal(x + drift, 1.0))
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y_t)
            return (x, z), None

        (last, _), _ = scan(step, (0.0, 0.0), y)
        flag = cond(
            y[0] > 0,
            lambda _: numpyro.sample("b", dist.Normal(last, 1.0)),
            lambda _: numpyro.sample("b", dist.Laplace(drift, 1.0)),
            None,
        )
        numpyro.sample("end", dist.Normal(flag, 1.0), obs=0.0)

    program = Program.of(model, jnp.zeros(7))
    assert program["x"].bodies == (BodyKey("scan", 0),)
    with pytest.warns(DeprecationWarning, match="bodies"):
        assert program["x"].block == ("scan0",)
    assert program["x"].steps == (7,)
    assert program["x"].parents == ("drift", "x")
    assert program["z"].parents == ()
    assert program["y"].parents == ("z",)
    assert program["cond1/true/b"].parents == ("x",)
    assert program["cond1/false/b"].parents == ("drift",)
    assert type(program["cond1/false/b"].distribution).__name__ == "Laplace"
    assert program["end"].parents == ("b",)


def test_handlers_of_the_model_are_seen():
    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with reparam(config={"x": LocScaleReparam(0.0)}):
            x = numpyro.sample("x", dist.Normal(mu, 2.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=0.0)

    program = Program.of(scope(model, prefix="m"))
    assert [s.name for s in program.latent] == ["m/mu", "m/x_decentered"]
    assert program["m/y"].parents == ("m/mu", "m/x_decentered")


def test_an_unknown_site_lists_the_known_ones():
    program = Program.of(lambda: numpyro.sample("x", dist.Normal(0.0, 1.0)))
    with pytest.raises(KeyError, match="the sites are x"):
        program["nope"]


def test_nothing_is_computed_to_look_at_a_program():
    seen = []

    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        seen.append(isinstance(x, jax.core.Tracer))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    Program.of(model, 0.0)
    assert seen
    assert all(seen)


def test_provenance_through_while_cond_and_calls():
    def function(v):
        looped = jax.lax.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * v["b"]), (0, v["a"])
        )
        chosen = jax.lax.cond(v["c"] > 0, lambda: v["a"], lambda: 0.0)
        return {
            "while": looped[1],
            "cond": chosen,
            "call": jax.jit(lambda p, q: (p, q))(v["a"], v["b"])[0],
            "custom": jax.nn.relu(v["c"]),
        }

    found = provenance(function, {"a": 1.0, "b": 2.0, "c": 3.0})
    assert {k: "".join(sorted(v)) for k, v in found.items()} == {
        "while": "ab",
        "cond": "ac",
        "call": "a",
        "custom": "c",
    }


def test_counts_of_a_multinomial_are_no_change_of_the_program():
    """They are arrays among what tells a distribution's tree from others."""

    def model(counts):
        with numpyro.plate("row", 2):
            p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
            numpyro.sample("counts", dist.Multinomial(counts.sum(-1), probs=p), obs=counts)

    counts = np.array([[3, 2, 1], [4, 4, 1]])
    assert Program.of(model, counts).differs(Program.of(model, counts)) is None
    assert Program.of(model, counts).parents["counts"] == ("p",)
    result = asvi.fit(model, counts, progress_bar=False)
    exact = (counts + 1) / (counts + 1).sum(-1, keepdims=True)
    np.testing.assert_allclose(result.posterior.mean()["p"], exact, atol=0.02)
