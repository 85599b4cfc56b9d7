"""Discrete sites summed out: the sum is NumPyro's, over all configurations; draws are exact."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.contrib.control_flow import cond, scan
from numpyro.infer.util import log_density

import asvi
from asvi.density.enumeration import Enumerated, NotEnumerable
from asvi.families import StructuredNormal
from asvi.program import Program
from tests.support.marks import all_but

Y = jnp.array([-1.7, -2.2, 2.9, 2.1, 0.4])


def mixture(y):
    where = numpyro.sample("where", dist.Normal(jnp.array([-2.0, 2.0]), 2.0).to_event(1))
    with numpyro.plate("point", len(y)):
        which = numpyro.sample("which", dist.Categorical(jnp.array([0.3, 0.7])))
        numpyro.sample("y", dist.Normal(where[which], 1.0), obs=y)


def chain(y):
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones((3, 3))).to_event(1))
    where = numpyro.sample("where", dist.Normal(0.0, 3.0).expand([3]).to_event(1))

    def step(z, y):
        z = numpyro.sample("z", dist.Categorical(rows[z]))
        numpyro.sample("y", dist.Normal(where[z], 1.0), obs=y)
        return z, None

    scan(step, jnp.int32(0), y)


def second_order(y):
    """Each state hangs on two before it."""
    p = numpyro.sample("p", dist.Beta(jnp.ones((2, 2)), 1.0).to_event(2))

    def step(carry, y):
        a, b = carry
        z = numpyro.sample("z", dist.Bernoulli(p[a, b]))
        numpyro.sample("y", dist.Normal(3.0 * z, 1.0), obs=y)
        return (b, z), None

    scan(step, (jnp.int32(0), jnp.int32(1)), y)


def loop(y):
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))
    z = jnp.int32(0)
    for t in range(len(y)):
        z = numpyro.sample(f"z{t}", dist.Categorical(rows[z]))
        numpyro.sample(f"y{t}", dist.Normal(2.0 * z, 1.0), obs=y[t])


def layers(y):
    """A choice for all, one for each, and one below it."""
    g = numpyro.sample("g", dist.Bernoulli(0.3))
    s = numpyro.sample("s", dist.Exponential(1.0))
    with numpyro.plate("point", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.array([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]])[g]))
        w = numpyro.sample("w", dist.Bernoulli(jnp.array([0.2, 0.5, 0.9])[z]))
        numpyro.sample("y", dist.Normal(z + 2.0 * w, s), obs=y)


def change(y):
    rates = numpyro.sample("rates", dist.Exponential(1.0).expand([2]).to_event(1))
    at = numpyro.sample("at", dist.DiscreteUniform(0, len(y) - 1))
    late = (jnp.arange(len(y)) >= at).astype(int)
    with numpyro.plate("time", len(y)):
        numpyro.sample("y", dist.Normal(rates[late], 1.0), obs=y)


def partners(y):
    """A plate whose cells meet: each hangs on its neighbour, and one on their sum."""
    s = numpyro.sample("s", dist.Exponential(1.0))
    with numpyro.plate("point", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.Normal(z + 2.0 * jnp.roll(z, 1), s), obs=y)
    numpyro.sample("total", dist.Poisson(1.0 + z[:3].sum()), obs=2)


def crossed(y):
    """Persons and items, who answers what said by data; a weight counts the last answer twice."""
    ability = numpyro.sample("ability", dist.Beta(2.0, 1.0))
    with numpyro.plate("item", 3):
        truth = numpyro.sample("truth", dist.Bernoulli(0.5))
    item = np.array([0, 0, 1, 2, 1])
    right = jnp.where(truth[item] == (y > 0), ability, 1 - ability)
    weights = handlers.scale(scale=jnp.array([1.0, 1.0, 1.0, 1.0, 2.0]))
    with weights, numpyro.plate("answer", len(y)):
        numpyro.sample("right", dist.Bernoulli(right), obs=jnp.ones(len(y), int))


def spike(y):
    """A continuous latent whose prior a discrete one decides."""
    on = numpyro.sample("on", dist.Bernoulli(0.5))
    slope = numpyro.sample("slope", dist.Normal(0.0, jnp.where(on == 1, 2.0, 0.1)))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Normal(slope * jnp.arange(5.0), 2.0), obs=y)


def masked(y):
    where = numpyro.sample("where", dist.Normal(0.0, 2.0))
    with numpyro.plate("point", len(y)), handlers.mask(mask=jnp.arange(5) < 3):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Normal(where + 3.0 * z, 1.0), obs=y)


def nothing_else(y):
    with numpyro.plate("point", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.3, 0.7])))
        numpyro.sample("y", dist.Normal(4.0 * z - 2.0, 1.0), obs=y)


MODELS = [
    *(mixture, chain, second_order, loop, layers, change, partners, crossed, spike, masked),
    nothing_else,
]
DEAR = ("chain", "second_order", "layers", "crossed", "partners")
RUNS = {"mixture": 2, "chain": 9, "second_order": 8, "loop": 4, "layers": 6, "change": 5}


def _made(model):
    summing = Enumerated(Program.of(model, Y), model, (Y,), {})
    met = handlers.trace(handlers.seed(model, 1)).get_trace(Y)
    values = {site.name: met[site.name]["value"] for site in summing.continuous}
    return summing, values


def _numpyros(model, values):
    return log_density(handlers.seed(model, 0), (Y,), {}, values)[0]


@pytest.mark.parametrize("model", all_but(DEAR, MODELS), ids=lambda m: m.__name__)
def test_the_sum_is_numpyros_over_all_configurations(model):
    summing, values = _made(model)
    every = [summing._made(np.array(k)) for k in itertools.product(*map(range, summing.counts))]
    every = {n: jnp.asarray(np.stack([x[n] for x in every])) for n in every[0]}
    each = jax.jit(jax.vmap(lambda z: _numpyros(model, {**values, **z})))(every)
    found, kept = summing.summed(model, values, {}, (Y,), {})
    assert float(found) == pytest.approx(float(logsumexp(each)), abs=2e-4)
    shares = jax.vmap(lambda z: summing.log_prob(kept, z))(every)
    np.testing.assert_allclose(np.exp(shares), np.exp(each - logsumexp(each)), atol=2e-4)


@pytest.mark.parametrize("model", all_but(DEAR, MODELS), ids=lambda m: m.__name__)
def test_draws_have_the_probability_that_is_said(model):
    summing, values = _made(model)
    _, kept = summing.summed(model, values, {}, (Y,), {})
    uniform = jnp.asarray(np.random.default_rng(0).uniform(size=(4000, summing.size)))
    drawn, log_prob = jax.vmap(lambda u: summing.drawn(kept, u))(uniform)
    again = jax.vmap(lambda z: summing.log_prob(kept, z))(drawn)
    np.testing.assert_allclose(log_prob, again, atol=1e-5)
    rows = np.concatenate([np.reshape(x, (4000, -1)) for x in drawn.values()], 1)
    kinds, index, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
    share = np.exp(np.asarray(log_prob)[index])
    assert np.all(np.abs(counts / 4000 - share) < 5 * np.sqrt(share / 4000) + 1e-3)
    assert len(kinds) > 1 or share > 0.99


@pytest.mark.parametrize("model", MODELS[:6], ids=lambda m: m.__name__)
def test_it_takes_as_few_runs_as_elements_that_meet(model):
    assert len(_made(model)[0].grid) == RUNS[model.__name__]


def test_a_long_chain_is_the_forward_algorithms():
    y = jnp.asarray(np.random.default_rng(0).normal(size=100))
    summing = Enumerated(Program.of(chain, y), chain, (y,), {})
    rows, where = jnp.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]]), jnp.arange(3.0)
    values = {"rows": rows, "where": where}
    density = jax.value_and_grad(lambda v: summing.summed(chain, v, {}, (y,), {})[0])
    found, slope = jax.jit(density)(values)
    prior = handlers.trace(handlers.seed(handlers.condition(chain, values), 0)).get_trace(y)
    own = sum(prior[n]["fn"].log_prob(prior[n]["value"]) for n in values)

    def step(state, y):
        state = logsumexp(state[:, None] + jnp.log(rows), 0) + dist.Normal(where, 1.0).log_prob(y)
        return state, None

    begin = jnp.log(jnp.array([1.0, 0.0, 0.0]))
    end, _ = jax.lax.scan(step, begin, y)
    assert float(found) == pytest.approx(float(own + logsumexp(end)), rel=1e-5)
    assert all(np.isfinite(x).all() for x in slope.values())


@pytest.mark.parametrize("model", all_but(DEAR, MODELS), ids=lambda m: m.__name__)
def test_the_default_call_fits_them(model):
    result = asvi.fit(model, Y, progress_bar=False)
    assert result.correction is not None
    assert result.diagnose().verdict in ("good", "usable")
    draws = result.posterior.sample(jax.random.key(0), (500,))
    names = {site.name for site in Program.of(model, Y).latent}
    assert names <= set(draws)
    # The pool's densities are NumPyro's, of all sites together.
    pool = result.correction.pool
    some = {n: jnp.asarray(x[:20]) for n, x in pool.flat().items()}
    theirs = jax.vmap(lambda v: _numpyros(model, v))({n: some[n] for n in names})
    np.testing.assert_allclose(pool.log_p.ravel()[:20], theirs, atol=2e-3)
    guide = result.guide
    own = guide.sample(jax.random.key(1), (200,))
    ratios = guide.model_log_prob(own) - guide.log_prob(own)
    assert abs(float(jnp.mean(ratios)) - result.elbo) < 0.05 + 5 * float(jnp.std(ratios)) / 14


def test_the_evidence_and_the_probabilities_of_a_mixture():
    grid = np.linspace(-10, 10, 801)
    a, b = np.meshgrid(grid, grid, indexing="ij")

    def normal(x, loc, scale):
        return -0.5 * ((x - loc) / scale) ** 2 - np.log(scale * np.sqrt(2 * np.pi))

    logs = normal(a, -2, 2) + normal(b, 2, 2)
    both = [np.log([0.3, 0.7])[:, None, None] + normal(y, np.stack([a, b]), 1) for y in Y]
    logs = logs + sum(np.logaddexp(*x) for x in both)
    weights = np.exp(logs - logs.max())
    exact = np.log(weights.sum() * (grid[1] - grid[0]) ** 2) + logs.max()
    second = [np.sum(weights * np.exp(x[1] - np.logaddexp(*x))) / weights.sum() for x in both]
    result = asvi.fit(mixture, Y, progress_bar=False)
    assert abs(result.log_evidence - exact) < 0.02
    np.testing.assert_allclose(result.posterior.mean()["which"], second, atol=0.03)


def test_discrete_draws_are_stored_and_given_out(tmp_path):
    result = asvi.fit(mixture, Y, progress_bar=False)
    result.save(tmp_path / "fit.asvi")
    loaded = asvi.load(tmp_path / "fit.asvi", mixture)
    np.testing.assert_array_equal(
        loaded.posterior.mean()["which"], result.posterior.mean()["which"]
    )
    assert result.to_arviz(num_samples=100)["posterior"]["which"].dtype.kind == "i"
    assert len(result.refine(max_error=0.04).correction.pool) >= len(result.correction.pool)


def test_data_of_another_program_are_not_summed_by_the_first_ones_structure():
    """Which answers belong to an item is data: other arguments are looked at anew."""

    def model(y, item):
        with numpyro.plate("item", 2):
            truth = numpyro.sample("truth", dist.Bernoulli(0.5))
        p = numpyro.sample("p", dist.Beta(2.0, 1.0))
        with numpyro.plate("answer", len(y)):
            numpyro.sample("y", dist.Bernoulli(jnp.where(truth[item] == 1, p, 1 - p)), obs=y)

    y = jnp.array([1, 1, 0, 0])
    first, then = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    guide = asvi.fit(model, y, first, progress_bar=False, family=StructuredNormal()).guide
    drawn = guide.at(y, then).sample(0, 400)
    density = jax.vmap(lambda v: log_density(handlers.seed(model, 0), (y, then), {}, v)[0])(
        {n: drawn[n] for n in ("truth", "p")}
    )
    # Given p, the truth of each item is its own distribution: a ratio knows nothing of the truth.
    p = np.asarray(drawn["p"])
    own = {}
    for t in itertools.product((0, 1), repeat=2):
        own[t] = [
            float(np.mean(np.all(np.asarray(drawn["truth"]) == np.array(t), 1))),
            float(
                np.mean(
                    [
                        np.prod([(q if t[i] == x else 1 - q) for x, i in zip([1, 1, 0, 0], then)])
                        / ((q**2 * (1 - q) ** 2 * 0 + q * (1 - q) * 2) ** 2)
                        for q in p
                    ]
                )
            ),
        ]
    assert np.isfinite(density).all()
    for share, wanted in own.values():
        assert abs(share - wanted) < 0.1


class Moon(dist.Distribution):
    """Two arcs of a ring: a density and a support, and nothing else."""

    support = dist.constraints.real_vector

    def __init__(self):
        super().__init__((), (2,))

    def sample(self, key, sample_shape=()):
        raise NotImplementedError

    def log_prob(self, x):
        ring = 0.5 * ((jnp.linalg.norm(x, axis=-1) - 2.0) / 0.4) ** 2
        sides = -0.5 * ((x[..., :1] + jnp.array([-2.0, 2.0])) / 0.6) ** 2
        return logsumexp(sides, -1) - ring


def test_a_density_and_a_support_are_enough():
    def model():
        numpyro.sample("x", Moon())

    grid = np.linspace(-6, 6, 601)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    logs = np.asarray(Moon().log_prob(jnp.stack([a, b], -1)), float)
    exact = np.log(np.exp(logs).sum() * (grid[1] - grid[0]) ** 2)
    result = asvi.fit(model, progress_bar=False)
    assert "prior" not in result.to_arviz(num_samples=100)
    assert abs(result.log_evidence - exact) < 0.1
    assert result.correction.modes == 2
    draws = result.posterior.sample(jax.random.key(0), (4000,))["x"]
    assert abs(float(jnp.mean(draws[:, 0] > 0)) - 0.5) < 0.1
    spread = np.sqrt(np.sum(np.exp(logs) * b**2) / np.exp(logs).sum())
    assert float(jnp.std(draws[:, 1])) == pytest.approx(spread, rel=0.1)


def test_a_mixture_as_a_prior_is_drawn_from_both_sides():
    def model(y):
        parts = dist.Normal(jnp.array([-3.0, 3.0]), 1.0)
        x = numpyro.sample(
            "x", dist.MixtureSameFamily(dist.Categorical(jnp.array([0.3, 0.7])), parts)
        )
        numpyro.sample("y", dist.Normal(x, 4.0), obs=y)

    result = asvi.fit(model, 1.0, progress_bar=False)
    grid = np.linspace(-15, 15, 3001)
    density = 0.3 * np.exp(-0.5 * (grid + 3) ** 2) + 0.7 * np.exp(-0.5 * (grid - 3) ** 2)
    density = density * np.exp(-0.5 * ((1 - grid) / 4) ** 2)
    mean = np.sum(grid * density) / density.sum()
    assert abs(float(result.posterior.mean()["x"]) - mean) < 0.15
    assert result.diagnose().verdict == "good"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: numpyro.sample("n", dist.Poisson(3.0)), "infinitely many"),
        (lambda: _closely(12), "too closely|runs of the model"),
    ],
)
def test_what_cannot_be_summed_out_is_said(model, said):
    with pytest.raises(NotEnumerable, match=said):
        Enumerated(Program.of(model), model, (), {})


def _closely(count):
    with numpyro.plate("n", count):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(jnp.sum(z * jnp.arange(1.0, count + 1)), 1.0), obs=7.0)


def test_branches_are_left_to_guides():
    def model(y):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        cond(
            z == 1,
            lambda _: numpyro.sample("y", dist.Normal(x, 1.0), obs=y),
            lambda _: numpyro.sample("y", dist.Normal(2 * x, 1.0), obs=y),
            None,
        )

    with pytest.raises(asvi.errors.FamilyError, match="branches"):
        asvi.fit(model, 1.0, family=StructuredNormal(), progress_bar=False)
