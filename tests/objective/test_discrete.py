"""Discrete latents: gradients against brute force, the choice of estimator, fits, bad input."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.contrib.control_flow import cond
from numpyro.infer import SVI
from scipy import stats

import asvi
from asvi.errors import AsviError, SiteError
from asvi.objective.discrete_choice import choose_estimators
from asvi.program.run_trace import trace_of
from benchmarks.discrete.gradients import errors
from benchmarks.discrete.models import MODELS, TABLE, hmm, mixture, poisson

# Which loss is in use; and one worker, so that the fit that these tests share is made once.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
    pytest.mark.xdist_group("test_discrete"),
]


def chosen_for(name, wish="auto", model=None, args=None):
    model = MODELS[name].model if model is None else model
    args = MODELS[name].args if args is None else args
    guide = asvi.AutoASVI(model)
    drawn = trace_of(guide, jax.random.key(0), {}, {}, args, {})
    latent = {n: s for n, s in drawn.items() if s["type"] == "sample"}
    hard = [n for n, s in latent.items() if not s["fn"].has_rsample]
    return choose_estimators(guide.dependence, latent, hard, wish), guide


# ---------------------------------------------------------------------------------- gradients


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["mixture", pytest.param("hmm", marks=SLOW), "branch-discrete", "nested"]
)
def test_enumeration_is_exact(name):
    small = MODELS[name]._replace(ways=("enumerate",))
    (row,) = errors(name, small, draws=1000)
    assert row["relative error"] < 1e-4


@pytest.mark.parametrize(
    "name",
    [
        "hmm-with-plate",
        pytest.param("switching", marks=SLOW),
        pytest.param("branch-discrete", marks=SLOW),
        "back-into-the-plate",
        pytest.param("nested", marks=SLOW),
    ],
)
def test_the_score_function_is_unbiased(name):
    small = MODELS[name]._replace(ways=("score",))
    (row,) = errors(name, small, draws=8000)
    assert row["error along the gradient / se"] < 4
    assert row["rms of errors / se"] < 2
    assert row["relative error"] < 0.5  # a wrong cost would not be hidden by noise


def test_what_crosses_between_cells_is_found():
    small = MODELS["back-into-the-plate"]
    guide = asvi.AutoASVI(small.model)
    guide._setup_prototype(*small.args)
    assert guide.dependence.local[("z", "y")] == frozenset()
    assert guide.dependence.reached("z")["y"] == frozenset()
    plain = asvi.AutoASVI(MODELS["mixture"].model)
    plain._setup_prototype(*MODELS["mixture"].args)
    assert plain.dependence.local[("z", "y")] == {"n"}
    assert plain.dependence.reached("z")["y"] == {"n"}


def test_the_check_of_gradients_notices_a_cost_from_the_wrong_cells(monkeypatch):
    everywhere = {("z", "z"): frozenset({"n"}), ("z", "y"): frozenset({"n"})}
    monkeypatch.setattr("asvi.guide.set_up.find_plate_crossings", lambda *args: everywhere)
    small = MODELS["back-into-the-plate"]._replace(ways=("score",))
    (row,) = errors("back-into-the-plate", small, draws=8000)
    assert row["rms of errors / se"] > 10


def jumping(y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    x = cond(a > 0.5, lambda _: 2.0, lambda _: -2.0, None)
    numpyro.sample("y", dist.Normal(x, 1.5), obs=y)


def test_a_continuous_gate_has_the_gradient_of_its_jump():
    guide = asvi.AutoASVI(jumping)
    guide._setup_prototype(1.0)
    assert guide.score_sites == {"a"}
    names = [f"auto/a/{leaf}/{part}" for leaf in ("loc", "scale") for part in ("data_term",)]
    weights = {f"auto/a/{leaf}/prior_weight": 0.4 for leaf in ("loc", "scale")}

    def quadrature(loc, scale):
        grid = jnp.linspace(-12.0, 12.0, 40_001)
        q = dist.Normal(0.6 * loc, 0.4 + 0.6 * scale)
        likelihood = dist.Normal(jnp.where(grid > 0.5, 2.0, -2.0), 1.5).log_prob(1.0)
        gain = dist.Normal(0.0, 1.0).log_prob(grid) + likelihood - q.log_prob(grid)
        return jnp.sum(jnp.exp(q.log_prob(grid)) * gain) * (grid[1] - grid[0])

    exact = np.array(jax.grad(quadrature, (0, 1))(0.3, 0.8))

    def gradient(key):
        def loss(loc, scale):
            params = dict(zip(names, (loc, scale), strict=True)) | weights
            return -asvi.ELBO(num_particles=8).loss(key, params, jumping, guide, 1.0)

        return jnp.stack(jax.grad(loss, (0, 1))(0.3, 0.8))

    found = np.asarray(jax.jit(jax.vmap(gradient))(jax.random.split(jax.random.key(0), 5000)))
    error = found.std(0) / len(found) ** 0.5
    assert np.all(np.abs(found.mean(0) - exact) < 4 * error)
    assert np.all(error < 0.1 * np.abs(exact).max())


# ------------------------------------------------------------------------------------- choice


@pytest.mark.slow
def test_which_estimator_is_chosen():
    assert chosen_for("loop")[0].joint == ("z0", "z1", "z2")
    assert chosen_for("mixture", model=mixture, args=(jnp.zeros(50),))[0].parallel == ("z",)
    assert chosen_for("hmm")[0].joint == ("z",)
    assert chosen_for("hmm", args=(jnp.zeros(50),))[0].score == ("z",)
    assert chosen_for("poisson")[0].score == ("k",)
    assert chosen_for("mixture", {"z": "score"})[0].score == ("z",)
    # No site that is summed cell by cell may decide over another that is not.
    nested = chosen_for("nested", {"a": "enumerate", "b": "score"})[0]
    assert (nested.joint, nested.parallel, nested.score) == (("a",), (), ("b",))


def test_the_default_family_listens_to_discrete_sites():
    guide = asvi.AutoASVI(hmm, family=asvi.families.Coupled())
    drawn = trace_of(guide, jax.random.key(0), {}, {}, MODELS["hmm"].args, {})
    assert drawn["z"]["value"].shape == (4,)
    assert guide.dependence.reached("z").keys() == {"scan0/z", "scan0/y"}


# ---------------------------------------------------------------------------------------- fits


def hmm_truth(y):
    """Log evidence and smoothed probability of state 1, by brute force over all paths."""
    table = np.asarray(TABLE)
    paths = np.array(np.meshgrid(*[[0, 1]] * len(y))).reshape(len(y), -1).T
    weight = np.array(
        [
            np.prod([table[a, b] for a, b in zip([0, *path[:-1]], path, strict=True)])
            * np.prod(stats.norm.pdf(y, 2.0 * path, 1.0))
            for path in paths
        ]
    )
    return np.log(weight.sum()), weight @ paths / weight.sum()


@pytest.fixture(scope="module")
def hmm_fit():
    with warnings.catch_warnings(action="error", category=UserWarning):  # of the loss, above all
        return asvi.fit(
            hmm, *MODELS["hmm"].args, progress_bar=False, training=asvi.Training(num_steps=4000)
        )


def test_a_hidden_markov_model_is_fitted(hmm_fit):
    evidence, smoothed = hmm_truth(np.asarray(MODELS["hmm"].args[0]))
    assert hmm_fit.elbo < evidence + 1e-3
    assert evidence - hmm_fit.elbo < 0.05
    np.testing.assert_allclose(hmm_fit.posterior.mean()["z"], smoothed, atol=0.05)
    report = hmm_fit.diagnose()
    assert report.verdict == "good"
    assert np.isfinite(report.k_hat)


def test_a_discrete_posterior_is_drawn_shown_and_stored(hmm_fit, tmp_path):
    path = tmp_path / "fit.asvi"
    hmm_fit.save(path)
    draws = asvi.load(path, hmm).posterior.sample(jax.random.key(0), (500,))["z"]
    assert set(np.unique(draws)) <= {0, 1}
    data = hmm_fit.to_arviz(num_samples=50)
    assert data["posterior"]["z"].dtype.kind == "i"
    axes = asvi.plot.prior_posterior(hmm_fit)
    heights = [bar.get_height() for bar in axes[0].patches]
    assert sum(heights) == pytest.approx(2.0)  # probabilities, of the prior and of the posterior
    image = asvi.plot.probabilities(hmm_fit, "z").images[0].get_array()
    np.testing.assert_allclose(np.asarray(image).sum(0), 1.0, atol=1e-6)
    assert "z · exact, given the others" in str(hmm_fit.explain())
    with pytest.raises(SiteError, match="NUTS moves continuous sites alone"):
        hmm_fit.posterior.nuts_init()


@pytest.mark.slow
def test_scores_ask_for_more_draws():
    small = MODELS["poisson"]
    result = asvi.fit(
        poisson, *small.args, progress_bar=False, training=asvi.Training(num_steps=500)
    )
    assert result.run.draws_per_step == 64
    assert np.isfinite(result.elbo)


# ----------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("model", "data", "text"),
    [
        (poisson, 1.0, "infinitely many values"),
        (hmm, jnp.zeros(40), "1,099,511,627,776 joint configurations"),
    ],
    ids=["infinite", "too many"],
)
def test_what_cannot_be_enumerated(model, data, text):
    with pytest.raises(SiteError, match=text) as raised:
        asvi.fit(
            model,
            data,
            progress_bar=False,
            training=asvi.Training(num_steps=500),
            discrete="enumerate",
        )
    assert '"score"' in str(raised.value)


@pytest.mark.parametrize("wish", ["exact", {"z": "exact"}, {"w": "score"}])
def test_a_wish_that_is_not_known(wish):
    with pytest.raises(AsviError, match="discrete="):
        asvi.fit(
            hmm,
            jnp.zeros(4),
            progress_bar=False,
            training=asvi.Training(num_steps=500),
            discrete=wish,
        )


@pytest.mark.filterwarnings("default::UserWarning")
def test_one_draw_is_warned_of():
    guide = asvi.AutoASVI(poisson)
    svi = SVI(poisson, guide, optax.adam(0.1), asvi.ELBO())
    state = svi.init(jax.random.key(0), 1.0)
    with pytest.warns(UserWarning, match=r"num_particles=8"):
        svi.update(state, 1.0)


def test_a_python_if_on_a_discrete_latent():
    def model(y):
        gate = numpyro.sample("gate", dist.Bernoulli(0.4))
        if gate == 1:
            y = y + 1
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    with pytest.raises(SiteError, match="Python decides on its value") as raised:
        asvi.fit(model, 1.0, progress_bar=False)
    assert "cond(gate == 1" in str(raised.value)
