"""Laws that hold for every distribution that `asvi` supports; the list comes from the registry."""

from __future__ import annotations

import inspect
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro.distributions import biject_to

from asvi.distributions.domains import inside, mix, prior_weight_shape
from asvi.distributions.quantile_transform import QuantileTransform
from asvi.distributions.registry import Leaf, decompose, is_registered
from asvi.errors import SiteError
from tests.distributions.instances import INSTANCES, WITHOUT_LEAVES, Draw

CLASSES = sorted(
    (
        getattr(dist, name)
        for name in dist.__all__
        if inspect.isclass(getattr(dist, name))
        and issubclass(getattr(dist, name), dist.Distribution)
    ),
    key=lambda cls: cls.__name__,
)
SUPPORTED = [c for c in CLASSES if is_registered(c) == "supported" and c not in WITHOUT_LEAVES]
REFUSED = [c for c in CLASSES if is_registered(c) == "refused"]
# One of each kind in every run; `make test-all` has them all. The compiler takes most of the time.
ALWAYS = {
    "Normal",
    "Gamma",
    "Beta",
    "Dirichlet",
    "HalfNormal",
    "Uniform",
    "StudentT",
    "LKJCholesky",
}
ALWAYS |= {"MultivariateNormal", "LogNormal", "TruncatedNormal", "GaussianRandomWalk", "Weibull"}
ALWAYS |= {"BernoulliProbs", "CategoricalProbs", "Poisson", "MixtureSameFamily", "Independent"}


def each_of(classes):
    return pytest.mark.parametrize(
        "cls",
        [
            pytest.param(c, id=c.__name__, marks=[] if c.__name__ in ALWAYS else pytest.mark.slow)
            for c in classes
        ],
    )


each_supported = each_of(SUPPORTED)

batches = st.sampled_from([(), (2, 1)])
seeds = st.integers(0, 10_000)
weights = st.floats(0.02, 0.98)


def make(cls, seed, batch=()):
    return INSTANCES[cls](Draw(seed, batch))


def random_data_terms(parts, key):
    """A point well inside each leaf's domain."""
    terms = {}
    for name, leaf in parts.leaves.items():
        key, sub = jax.random.split(key)
        transform = biject_to(leaf.constraint)
        shape = transform.inverse_shape(leaf.value.shape)
        free = transform.inv(inside(leaf.value, leaf.constraint))
        terms[name] = transform(free + 0.3 * jax.random.normal(sub, shape))
    return terms


def updated(prior, weight, terms):
    parts = decompose(prior)
    values = {}
    for name, leaf in parts.leaves.items():
        shape = prior_weight_shape(leaf.constraint, leaf.value.shape)
        values[name] = mix(jnp.full(shape, weight), leaf, terms[name])
    return parts.rebuild(values), values


def test_every_distribution_of_numpyro_is_classified():
    unknown = [
        c.__name__ for c in CLASSES if is_registered(c) is None and c is not dist.Distribution
    ]
    assert unknown == []


def test_every_supported_distribution_has_an_instance_here():
    assert [c.__name__ for c in SUPPORTED if c not in INSTANCES] == []


@cache
def laws(cls):
    """All laws of one class as one compiled function of seed and weight."""

    def check(seed, weight):
        key = jax.random.key(seed)
        here, elsewhere = jax.random.split(key)

        def prior_at(key):
            draw = Draw(0, (2,))
            draw.key = key
            return INSTANCES[cls](draw)

        terms = random_data_terms(decompose(prior_at(here)), key)
        draws = updated(prior_at(here), weight, terms)[0].sample(key, (6,))

        # All cases as one batch: the compiler's time is most of this test's.
        def look(key, weight):
            prior = prior_at(key)
            surrogate, values = updated(prior, weight, terms)
            leaves = decompose(prior).leaves
            in_domain = {n: jnp.all(leaf.constraint(values[n])) for n, leaf in leaves.items()}
            return surrogate.log_prob(draws), prior.log_prob(draws), in_domain

        keys = jnp.stack([here, here, here, elsewhere])
        found = jax.vmap(look)(keys, jnp.stack([1.0, weight, 0.0, 0.0]))
        surrogates, priors, in_domain = found
        support = prior_at(here).support
        if isinstance(support, type(dist.constraints.sphere)):  # its own check is exact
            in_support = jnp.abs(jnp.linalg.norm(draws, axis=-1) - 1) < 1e-5
        else:
            in_support = support(draws)
        return {
            "weight one": (surrogates[0], priors[0]),
            "weight zero": (surrogates[2], surrogates[3]),
            "in domain": in_domain,
            "in support": jnp.all(in_support),
            "finite": jnp.isfinite(surrogates[1]),
            "covered": jnp.isfinite(priors[0]),
        }

    return jax.jit(check)


@each_supported
@given(seed=seeds, weight=weights)
def test_update_laws(cls, seed, weight):
    """λ=1 is the prior; λ=0 ignores the parents; any λ stays in the domains and the support."""
    found = laws(cls)(seed, weight)
    # What stands in for these is the prior nearly: see `asvi.distributions.student_t`.
    nearly = cls in (dist.Cauchy, dist.StudentT, dist.TransformedDistribution)  # of a StudentT
    off = {"rtol": 0.03, "atol": 0.1} if nearly else {"rtol": 2e-3, "atol": 2e-3}
    np.testing.assert_allclose(*found["weight one"], **off)
    np.testing.assert_allclose(*found["weight zero"], rtol=1e-4, atol=1e-4)
    assert all(bool(x.all()) for x in found["in domain"].values()), found["in domain"]
    assert bool(found["in support"])
    assert bool(found["finite"].all())
    assert bool(found["covered"].all())


@each_supported
@settings(max_examples=3)
@given(batch=batches, plates=st.lists(st.integers(1, 4), max_size=2), event=st.integers(0, 1))
def test_shapes_follow_plates_and_events(cls, batch, plates, event):
    """Under plates, and with batch axes turned into event axes, every shape is the prior's."""
    batch = (*batch, 2)  # an axis for `event` to take

    def rebuilt():
        prior = make(cls, 0, batch)
        prior = prior.expand((*plates, *prior.batch_shape)).to_event(event)
        parts = decompose(prior)
        made = parts.rebuild({name: leaf.value for name, leaf in parts.leaves.items()})
        assert made.batch_shape == prior.batch_shape
        assert made.event_shape == prior.event_shape
        for leaf in parts.leaves.values():
            assert leaf.value.shape[: len(plates)] == tuple(plates)
        return made.sample(jax.random.key(0), (3,)), prior.shape((3,))

    expected = []

    def drawn():
        draws, shape = rebuilt()
        expected.append(shape)
        return draws

    assert jax.eval_shape(drawn).shape == expected[0]


@each_supported
def test_as_many_prior_weights_as_free_numbers(cls):
    domains = {}

    def values():
        leaves = decompose(make(cls, 0, (2,))).leaves
        domains.update({name: leaf.constraint for name, leaf in leaves.items()})
        return {name: leaf.value for name, leaf in leaves.items()}

    for name, value in jax.eval_shape(values).items():
        free = biject_to(domains[name]).inverse_shape(value.shape)
        shape = prior_weight_shape(domains[name], value.shape)
        bare = domains[name]
        while isinstance(bare, dist.constraints.independent):
            bare = bare.base_constraint
        if bare.event_dim and not isinstance(bare, type(dist.constraints.lower_cholesky)):
            assert shape == value.shape[: -bare.event_dim]  # one per event
        else:
            assert np.prod(shape) == np.prod(free)


def _has_rsample(cls) -> bool:
    def rebuilt():
        parts = decompose(make(cls, 0))
        return parts.rebuild({name: leaf.value for name, leaf in parts.leaves.items()})

    return jax.eval_shape(rebuilt).has_rsample


REPARAMETERIZED = [cls for cls in SUPPORTED if _has_rsample(cls)]


@each_of(REPARAMETERIZED)
def test_path_gradients_agree_with_the_score_function(cls, seed):
    """E[f] differentiated along the draws and through the density must agree, leaf by leaf."""

    def estimates(key):
        prior = make(cls, seed)
        parts = decompose(prior)
        to_domain = {n: biject_to(leaf.constraint) for n, leaf in parts.leaves.items()}
        start = {
            n: to_domain[n].inv(inside(leaf.value, leaf.constraint))
            for n, leaf in parts.leaves.items()
        }
        direction = jax.random.normal(jax.random.key(seed), prior.shape())

        def f(x):  # bounded, so that both estimators have finite variance
            return jnp.tanh(jnp.sum(direction * x) / 2)

        def along_the_draw(free):
            d = parts.rebuild({n: to_domain[n](x) for n, x in free.items()})
            x = d.rsample(key)
            return f(x), x

        def through_the_density(free, x):
            d = parts.rebuild({n: to_domain[n](x) for n, x in free.items()})
            return f(x) * jnp.sum(d.log_prob(x))

        path, x = jax.grad(along_the_draw, has_aux=True)(start)
        score = jax.grad(through_the_density)(start, jax.lax.stop_gradient(x))
        return path, score

    keys = jax.random.split(jax.random.key(seed), 3000)
    path, score = jax.jit(jax.vmap(estimates))(keys)
    assert path
    for name in path:
        a, b = np.array(path[name], float), np.array(score[name], float)
        spread = np.sqrt((a.var(0) + b.var(0)) / len(keys))
        assert np.all(np.abs(a.mean(0) - b.mean(0)) < 5 * spread + 1e-4), name


@pytest.mark.parametrize("cls", REFUSED, ids=lambda c: c.__name__)
def test_a_refused_distribution_is_named_with_what_to_write_instead(cls):
    with pytest.raises(SiteError, match=rf"site 'here': {cls.__name__} (?s:.*)Write instead"):
        decompose(cls.__new__(cls), (), site="here")


def test_an_unknown_distribution_shows_its_registration():
    class Mine(dist.Normal):
        pass

    with pytest.raises(SiteError, match=r'register_parameters\(Mine, \{"loc": constraints.real'):
        decompose(Mine(0.0, 1.0), site="here")


def test_mixing_a_simplex_entry_by_entry_would_leave_it():
    """Why one weight per event: the sum of an elementwise mixture is not 1."""
    theta, alpha = jnp.array([0.7, 0.2, 0.1]), jnp.array([0.1, 0.1, 0.8])
    elementwise = jnp.array([0.9, 0.5, 0.1])
    assert abs(float(jnp.sum(elementwise * theta + (1 - elementwise) * alpha)) - 1) > 0.1
    mixed = mix(jnp.array(0.3), Leaf(theta, dist.constraints.simplex), alpha)
    assert float(mixed.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["half_normal", "half_cauchy", "exponential", "uniform"])
def test_slopes_of_quantiles_are_those_of_their_numbers(kind, float64):
    """The derivatives are given by hand: against differences, both ways, and twice."""
    transform = QuantileTransform(kind, 2.0)
    step = 1e-5
    for z in (-4.0, -0.5, 0.3, 4.0):
        u = transform(z)
        by_difference = (transform(z + step) - transform(z - step)) / (2 * step)
        slope = jax.grad(transform)(z)
        np.testing.assert_allclose(slope, by_difference, rtol=1e-6)
        np.testing.assert_allclose(jax.grad(transform.inv)(u), 1 / by_difference, rtol=1e-6)
        np.testing.assert_allclose(
            jnp.log(slope), transform.log_abs_det_jacobian(z, u), rtol=1e-6, atol=1e-9
        )
        slopes = [jax.grad(transform)(z + s) for s in (step, -step)]
        bend = (slopes[0] - slopes[1]) / (2 * step)
        np.testing.assert_allclose(jax.grad(jax.grad(transform))(z), bend, rtol=1e-5, atol=1e-9)
