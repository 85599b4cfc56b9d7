"""Names are the user's: nothing is told by their text, and no two things share one."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import cond, scan

import asvi
from asvi.errors import SiteError
from asvi.families import ConvexUpdate, Coupled, MeanField
from asvi.fitting.archive import read_file, write_file
from asvi.fitting.problem import Problem
from asvi.fitting.training.far_starts import start_half_mean_field
from asvi.fitting.training.step_sizes import named_step_sizes, upper_limits
from asvi.guide.edges import build_edge_mask
from asvi.program import Program
from asvi.program.run_trace import trace_of
from asvi.results.explanation import explain


def walk(name, inside):
    """A site outside of a scan, and one inside."""

    def model(y):
        first = numpyro.sample(name, dist.Normal(0.0, 1.0))

        def step(x, _):
            x = numpyro.sample(inside, dist.Normal(x, 1.0))
            return x, x

        _, path = scan(step, first, None, length=3)
        numpyro.sample("y", dist.Normal(path, 1.0), obs=y)

    return model


@pytest.mark.parametrize("family", [ConvexUpdate(), Coupled()])
def test_a_site_may_be_called_as_another_s_address(family):
    model, y = walk("scan0/x", "x"), jnp.zeros(3)
    program = Program.of(model, y)
    assert len(set(program.addresses)) == 3
    assert [program[site.name].name for site in program.sites] == ["scan0/x", "x", "y"]
    assert program["x"].parents == ("scan0/x", "x")
    guide = asvi.AutoASVI(model, family=family)
    drawn = trace_of(guide, jax.random.key(0), {}, {}, (y,), {})
    assert {n: jnp.shape(m["value"]) for n, m in drawn.items() if m["type"] == "sample"} == {
        "scan0/x": (),
        "x": (3,),
    }


def test_a_site_may_be_called_as_a_block():
    def model(y):
        gate = numpyro.sample("gate", dist.Normal(0.0, 1.0))
        other = numpyro.sample("cond0", dist.Normal(0.0, 1.0))
        x = cond(gate > 0, lambda _: 1.0, lambda _: -1.0, None)
        numpyro.sample("y", dist.Normal(x + other, 1.0), obs=y)

    program = Program.of(model, 0.0)
    assert program["cond0"].parents == ()
    assert program.deciding(("cond0",)) == ("gate",)
    guide = asvi.AutoASVI(model)
    guide._setup_prototype(0.0)
    assert guide.score_sites == {"gate"}


@pytest.mark.parametrize("name", ["a|b", "a/b", "a~1b", "scan0/q", "a[0]"])
def test_who_listens_to_whom_whatever_the_names(name):
    def model(y):
        a = numpyro.sample(name, dist.Normal(jnp.zeros(2), 1.0).to_event(1))
        b = numpyro.sample(f"{name}/c", dist.Normal(a[0], 1.0))
        numpyro.sample("y", dist.Normal(a[1] + b, 1.0), obs=y)

    problem = Problem(model, Coupled(), (1.0,), {})
    space = problem.noise_space
    edge_mask = build_edge_mask(space, problem.guide.edges(space)).core
    np.testing.assert_array_equal(edge_mask, np.tril(np.ones((3, 3), bool)))


def nested(y):
    """One site's name begins with another's, and a slash."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    with numpyro.plate("n", 3):
        b = numpyro.sample("a/b", dist.Normal(a, 1.0))
        numpyro.sample("y", dist.Normal(b, 1.0), obs=y)


def test_a_name_may_begin_with_another_s():
    problem = Problem(nested, ConvexUpdate(), (jnp.zeros(3),), {})
    values = {"auto/a/loc": 0.25, "auto/a/scale": 0.5, "auto/a/b/loc": 0.75, "auto/a/b/scale": 0.6}
    start = problem.params(problem.initial(jax.random.key(0)))
    params = {n: jnp.broadcast_to(values[n.rpartition("/")[0]], x.shape) for n, x in start.items()}
    found = explain(SimpleNamespace(problem=problem, params=params))
    assert [row.prior_weights for row in found.rows] == [
        pytest.approx({"loc": 0.25, "scale": 0.5}),
        pytest.approx({"loc": 0.75, "scale": 0.6}),
    ]


def test_a_chain_s_weights_stay_where_a_hierarchy_s_are_halved():
    def model(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        c = numpyro.sample("a/c", dist.Normal(a, 1.0))  # of a's shape: a step of a chain
        with numpyro.plate("n", 3):
            numpyro.sample("y", dist.Normal(c, 1.0), obs=y)

    problem = Problem(model, ConvexUpdate(), (jnp.zeros(3),), {})
    start = problem.initial(jax.random.key(0))
    before, after = problem.params(start), problem.params(start_half_mean_field(problem, start))
    assert float(after["auto/a/loc/prior_weight"]) == 0.5
    for name in ("loc", "scale"):
        name = f"auto/a/c/{name}/prior_weight"
        assert float(after[name]) == float(before[name])


def test_units_are_told_by_what_a_parameter_is():
    def model(y):
        own = numpyro.param("x_coupling", 1.0) + numpyro.param("auto/own/prior_weight", 0.0)
        x = numpyro.sample("encoder", dist.Normal(jnp.zeros(3), 10.0).to_event(1))
        z = numpyro.sample("x/coupling/within", dist.Normal(x[0] + own, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    problem = Problem(model, MeanField(), (1.0,), {})
    found = named_step_sizes(problem)
    np.testing.assert_allclose(found["auto/encoder/loc/data_term"], 10.0)
    np.testing.assert_allclose(found["auto/encoder/scale/data_term"], 1.0)
    assert float(found["x_coupling"]) == 1.0
    assert np.isinf(upper_limits(problem)).all()


def test_in_units_asks_the_guide():
    def model():
        numpyro.param("a/coupling/within", jnp.zeros(4))
        numpyro.sample("x", dist.Normal(jnp.zeros(4), 1.0).to_event(1))

    guide = asvi.AutoASVI(model, family=Coupled())
    first = trace_of(guide, jax.random.key(0), {}, {}, (), {})
    params = {n: m["value"] for n, m in first.items() if m["type"] == "param"}
    params |= {"a/coupling/within": jnp.zeros(4), "x_coupling": jnp.zeros(())}

    def moved(step):
        change, _ = step.update(jax.tree.map(jnp.ones_like, params), step.init(params), params)
        return {n: float(jnp.min(x)) for n, x in change.items()}

    found = moved(asvi.natural_units(optax.sgd(1.0), guide))
    assert found["auto/x/coupling/within"] == -0.5
    assert found["a/coupling/within"] == found["x_coupling"] == -1.0
    with pytest.warns(DeprecationWarning, match="natural_units"):
        guessing = asvi.natural_units(optax.sgd(1.0))
    assert moved(guessing)["auto/x/coupling/within"] == -0.5


def of_the_model(y):
    numpyro.param("auto/x/loc/data_term", 1.0)
    numpyro.sample("y", dist.Normal(numpyro.sample("x", dist.Normal(0.0, 1.0)), 1.0), obs=y)


def of_a_branch(y):
    a = numpyro.sample("x[true]", dist.Normal(0.0, 1.0))

    def branch(_):
        return numpyro.sample("x", dist.Normal(0.0, 1.0))

    numpyro.sample("y", dist.Normal(a + cond(True, branch, branch, None), 1.0), obs=y)


@pytest.mark.parametrize("model", [of_the_model, of_a_branch])
def test_two_parameters_of_one_name(model):
    with pytest.raises(SiteError, match="would have the name of"):
        asvi.AutoASVI(model)._setup_prototype(1.0)


def test_a_pattern_may_be_a_name_with_brackets():
    def model(y):
        x = numpyro.sample("x[0]", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    guide = asvi.AutoASVI(model, family={"x[0]": MeanField()})
    guide._setup_prototype(1.0)
    assert isinstance(guide.family_of(guide.program["x[0]"]), MeanField)


def test_names_come_back_from_a_file(tmp_path):
    names = ["a/b", "a|b", "a%7Cb", "a%b", "a~1b"]
    write_file(tmp_path / "f", {"kind": "k"}, {n: np.full(2, i) for i, n in enumerate(names)})
    found = read_file(tmp_path / "f", "k")[1]
    assert {n: int(x[0]) for n, x in found.items()} == {n: i for i, n in enumerate(names)}


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_scoped_mixture_is_fitted():
    """Enumerated cell by cell under a scope: the ELBO is the log evidence, which it once passed."""
    y = np.random.default_rng(0).normal(2.0, 1.0, 8)

    def model(y):
        with handlers.scope(prefix="a"), numpyro.plate("n", 8):
            z = numpyro.sample("z", dist.Bernoulli(0.4))
            numpyro.sample("y", dist.Normal(2.0 * z, 1.0), obs=y)

    result = asvi.fit(
        model, y, family=MeanField(), progress_bar=False, training=asvi.Training(num_steps=2000)
    )
    p = np.exp(-0.5 * (y[:, None] - np.array([0.0, 2.0])) ** 2) / np.sqrt(2 * np.pi)
    evidence = np.sum(np.log(p @ np.array([0.6, 0.4])))
    assert abs(result.elbo - evidence) < 0.02
    after = 0.4 * p[:, 1] / (p @ np.array([0.6, 0.4]))
    np.testing.assert_allclose(result.posterior.mean()["a/z"], after, atol=0.05)
