"""Which cells of a plate meet: the ELBO and its gradient are those of all configurations."""

from __future__ import annotations

import itertools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to
from numpyro.infer.util import log_density

import asvi
from asvi.density.numpy_backend.tape import NumpyFunction
from asvi.errors import SiteError
from asvi.families import MeanField
from asvi.objective import elbo as objective
from asvi.objective.discrete_choice import choose_estimators
from asvi.objective.enumeration import enumerate_draw
from asvi.objective.settings import EstimatorSettings
from asvi.program.run_trace import trace_of
from tests.support.discrete_models import APART, IN_THE_PLATE, Case, model_of

# Which loss is in use.
pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning")

DATA = np.array([[1.3, -0.7, 2.1], [-0.4, 0.9, 0.2]])


class Setting:
    """A model, a guide with parameters somewhere, and all configurations of its sites."""

    def __init__(self, case: Case, seed: int):
        self.model, self.case = model_of(case), case
        self.args = (jnp.asarray(DATA[:, : case.n]),)
        self.guide = asvi.AutoASVI(self.model, family=case.family)
        self.guide._setup_prototype(*self.args, check_input=False)
        first = trace_of(self.guide, jax.random.key(0), {}, {}, self.args, {})
        params = {n: m for n, m in first.items() if m["type"] == "param"}
        self.drawn = {n: m for n, m in first.items() if m["type"] == "sample"}
        self.domains = {n: m["kwargs"]["constraint"] for n, m in params.items()}
        rng = np.random.default_rng(seed)
        self.free = {
            n: rng.normal(0.0, 0.7, biject_to(self.domains[n]).inverse_shape(m["value"].shape))
            for n, m in params.items()
        }
        self.supports = {n: np.arange(case.values_of(n)) for n in self.guide.program.values}

    def params(self, free):
        return {n: biject_to(self.domains[n])(x) for n, x in free.items()}

    def configurations(self, names):
        shapes = {n: self.guide.program.values[n].shape for n in names}
        each = [self.supports[n] for n in names for _ in range(int(np.prod(shapes[n], dtype=int)))]
        table = np.array(list(itertools.product(*each))).reshape(-1, len(each))
        found, begin = {}, 0
        for n in names:
            size = int(np.prod(shapes[n], dtype=int))
            part = table[:, begin : begin + size].reshape((-1, *shapes[n]))
            found[n] = jnp.asarray(part, self.guide.program.values[n].dtype)
            begin += size
        return found, len(table)

    def exact(self, free):
        """The ELBO, and the log evidence, by NumPyro's densities alone."""
        params = self.params(free)
        table, _ = self.configurations(sorted(self.supports))

        def one(values):
            log_p = log_density(self.model, self.args, {}, values)[0]
            log_q = log_density(self.guide, self.args, {}, {**params, **values})[0]
            return log_p, log_q

        log_p, log_q = jax.vmap(one)(table)
        return jnp.sum(jnp.exp(log_q) * (log_p - log_q)), jax.nn.logsumexp(log_p)

    def choice(self, wish, largest_joint=1):
        settings = EstimatorSettings(max_joint=largest_joint)
        return choose_estimators(
            self.guide.dependence, self.drawn, list(self.drawn), wish, settings
        )

    def expected(self, free, choice):
        """What the estimator gives on average; its gradient is the mean of the estimator's."""
        elbo, key, params = asvi.ELBO(), jax.random.key(1), self.params(free)
        if not choice.score:
            with mock.patch.object(objective, "choose_estimators", return_value=choice):
                return -elbo.loss(key, params, self.model, self.guide, *self.args)
        assert not choice.joint
        table, _ = self.configurations(choice.score)

        def one(drawn):
            def run(given):
                values = {**drawn, **given}
                return elbo.run(key, params, None, self.model, self.guide, self.args, {}, values)

            found = enumerate_draw(run, run({}), choice, self.guide.dependence)
            total, weight = sum(found.terms.values()), 0.0
            for log_q, cost in found.scores.values():
                still = jax.lax.stop_gradient(log_q)
                total = total + jnp.sum((log_q - still) * jax.lax.stop_gradient(cost))
                weight = weight + jnp.sum(still)
            return jnp.exp(weight) * total

        return jnp.sum(jax.vmap(one)(table))


def check(case: Case, seed: int):
    setting = Setting(case, seed)
    choices = {"joint": setting.choice("auto", 10_000), "score": setting.choice("score")}
    cells = setting.choice("auto")
    if cells.parallel:
        choices["cells"] = cells
    if len(setting.supports) > 1:
        choices["mixed"] = setting.choice({sorted(setting.supports)[0]: "score"})

    def values_of(free):
        exact, evidence = setting.exact(free)
        found = [setting.expected(free, choice) for choice in choices.values()]
        return jnp.stack([exact, *found]), evidence

    def both(free):
        values, pull, evidence = jax.vjp(values_of, free, has_aux=True)
        return values, evidence, jax.vmap(pull)(jnp.eye(len(values)))[0]

    values, evidence, slopes = NumpyFunction(both, setting.free)(setting.free)
    assert values[0] <= evidence + 1e-4
    for k, (way, choice) in enumerate(choices.items(), 1):
        told = f"{case}: {way}: {choice}"
        np.testing.assert_allclose(values[k], values[0], rtol=1e-4, atol=1e-4, err_msg=told)
        for name, slope in slopes.items():
            told_of = f"{told}: {name}"
            np.testing.assert_allclose(slope[k], slope[0], rtol=1e-3, atol=1e-3, err_msg=told_of)
    return choices


# Cells that meet and cells that do not, and each place of what depends on them.
SOME = [
    Case("alone", "same plate", naming="scope"),
    Case("table", "inner plate", naming="slash", n=2),
    Case("column", "plate again", besides="parent"),
    Case("in order", "masked", "categorical", naming="nested slash", n=2),
    Case("loop", "scaled", family=MeanField()),
    Case("alone", "factor in plate", besides="child", naming="nested slash", n=2),
    Case("alone", "other plate", besides="twin", n=2),
    Case("alone", "other axis"),
    Case("alone", "no plate", naming="scope"),
    Case("alone", "same plate", besides="no plate"),
    Case("alone", "same plate", besides="rows added", n=2),
    Case("alone", "factor outside", naming="slash"),
    Case("roll", "same plate", besides="child", n=2),
    Case("cumsum", "inner plate"),
    Case("pairs", "factor in plate"),
    Case("centred", "scaled"),
]


@pytest.mark.parametrize("case", SOME, ids=str)
def test_every_way_gives_what_all_configurations_give(case):
    choices = check(case, SOME.index(case))
    in_one = case.besides not in ("no plate", "rows", "rows added")
    apart = case.use in APART and case.place in IN_THE_PLATE and in_one
    assert ("cells" in choices) == apart


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_every_way_gives_what_all_configurations_give_of_any_model(seed):
    check(Case.drawn(seed), seed)


# --------------------------------------------------------------------------- by the public loss


@pytest.mark.parametrize("use", ["alone", "max", "next", "partner"])
@pytest.mark.parametrize("naming", ["plain", "scope"])
def test_more_cells_than_are_tried_jointly(use, naming):
    """Seven cells, 128 configurations: by itself the loss enumerates cell by cell, or not."""
    model = model_of(Case(use, "same plate", naming=naming, n=7))
    y = jnp.asarray(np.random.default_rng(0).normal(size=(2, 7)))
    guide = asvi.AutoASVI(model, family=MeanField())
    guide._setup_prototype(y, check_input=False)
    (site,) = guide.program.latent
    probs = jnp.linspace(0.2, 0.9, 7)
    params = {guide.parameter_name(site, "probs/data_term"): probs}

    def exact(y):
        table = jnp.asarray(list(itertools.product((0, 1), repeat=7)))
        log_q = jnp.sum(dist.Bernoulli(probs).log_prob(table), 1)
        log_p = jax.vmap(lambda z: log_density(model, (y,), {}, {site.name: z})[0])(table)
        return jnp.sum(jnp.exp(log_q) * (log_p - log_q))

    def found(y):
        loss = asvi.ELBO(discrete="enumerate")
        return -loss.loss(jax.random.key(0), params, model, guide, y)

    np.testing.assert_allclose(NumpyFunction(found, y)(y), NumpyFunction(exact, y)(y), rtol=1e-4)


def test_too_many_cells_that_meet_are_not_tried():
    model = model_of(Case("max", "same plate", n=40))
    guide, y = asvi.AutoASVI(model), jnp.zeros((2, 40))
    guide._setup_prototype(y, check_input=False)
    loss = asvi.ELBO(discrete="enumerate")
    with pytest.raises(SiteError, match="for they meet in 'y'") as raised:
        jax.eval_shape(lambda key: loss.loss(key, {}, model, guide, y), jax.random.key(0))
    assert 'discrete={"z": "score"}' in str(raised.value)


@pytest.mark.parametrize("between", ["own", "partner's", "all"])
def test_cells_meet_through_draws_too(between):
    """A continuous site between the discrete one and the data."""
    uses = {"own": lambda x: x, "partner's": lambda x: jnp.roll(x, 1), "all": jnp.sum}

    def model(y):
        with numpyro.plate("n", 50):
            z = numpyro.sample("z", dist.Bernoulli(0.3))
            x = numpyro.sample("x", dist.Gamma(1.0 + z, 1.0))
            numpyro.sample("y", dist.Normal(uses[between](x), 1.0), obs=y)

    guide = asvi.AutoASVI(model)
    guide._setup_prototype(jnp.zeros(50), check_input=False)
    reached = guide.dependence.reached("z")
    assert reached["x"] == {"n"}
    assert reached["y"] == ({"n"} if between == "own" else frozenset())
