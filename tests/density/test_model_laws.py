"""Laws over generated models, without training: the density is NumPyro's, whoever asks for it."""

from __future__ import annotations

import copy
import os
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr
from numpyro import handlers
from numpyro.infer.util import log_density

from asvi.density.numpy_backend import Tape
from asvi.density.traced_density import TracedDensity
from asvi.families import ConvexUpdate, Coupled, MeanField, StructuredNormal
from asvi.fitting.problem import Problem
from asvi.program import compiling
from asvi.program.traced import Traced
from asvi.results.posterior import Posterior
from tests.support.generated import generate
from tests.support.marks import every

#: Models in one run; ``python -m benchmarks.model_laws`` has thousands.
COUNT = int(os.environ.get("ASVI_LAWS", "260"))
BATCHES = 26


@contextmanager
def run_by_numpy():
    """Programs are run by NumPy where it knows how: the compiler takes a second for each."""
    compile_it = compiling._compiling

    def numpy_or_compiler(traced, once, pool, urgent):
        try:
            tape = Tape(ClosedJaxpr(traced.jaxpr, []))
        except (NotImplementedError, TypeError):
            return compile_it(traced, once, pool, urgent)
        found = compiling.Future()
        found.set_result(lambda consts, given: tape([*map(np.asarray, (*consts, *given))]))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "_compiling", numpy_or_compiler)
        compiling.forget_programs()
        yield
    compiling.forget_programs()


@pytest.fixture
def by_numpy():
    with run_by_numpy():
        yield


def numpyros(made, values):
    """NumPyro's own log density, run as NumPyro runs it."""
    args, kwargs = copy.deepcopy((made.args, made.kwargs))
    model = handlers.seed(made.model, jax.random.key(0))
    return log_density(model, args, kwargs, jax.tree.map(jnp.asarray, values))[0]


def numpyros_at(made, draws, count, as_it_runs):
    """The same at several draws: traced once and run by NumPy, unless ``as_it_runs``.

    JAX compiles each operation of a model by itself where nothing compiles the model.
    """
    some = [{name: x[k] for name, x in draws.items()} for k in range(count)]
    try:
        traced = None if as_it_runs else Traced(lambda values: numpyros(made, values), some[0])
        tape = Tape(ClosedJaxpr(traced.jaxpr, [])) if traced else None
    except (NotImplementedError, TypeError):
        tape = None
    if tape is None:
        return np.array([float(numpyros(made, one)) for one in some])
    consts = list(map(np.asarray, traced.consts))
    return np.array([float(tape([*consts, *jax.tree.leaves(one)])[0]) for one in some])


def density_differs(seed: int) -> str:
    """What differs in the model of this seed; nothing is an empty text."""
    made = generate(seed)
    problem = Problem(made.model, StructuredNormal(), made.args, made.kwargs, check=False)
    space = problem.noise_space
    rng, names = np.random.default_rng(seed), [s.name for s in problem.program.latent]
    guide = problem.guide
    start = {
        f"auto/{n}": np.asarray(begin(), np.float32) for n, (begin, _) in guide._leaves().items()
    }
    posterior = Posterior(problem, start)
    for double in (True, False)[seed % 2 :]:  # the search's precision, and the user's
        recorded = TracedDensity.build(space, {}, double)
        z, blank = rng.normal(size=(2, space.size)), np.zeros(space.size)
        found = [recorded.run(one, blank, blank, recorded.consts, {}) for one in z]
        draws = {
            n: np.stack([met[n][1] for _, _, met, _ in found]).astype(np.float32) for n in names
        }
        theirs = numpyros_at(made, draws, 2, as_it_runs=seed % 10 == 0)
        ours = np.asarray(posterior.model_log_prob(draws), float)
        if not np.allclose(ours, theirs, rtol=2e-5, atol=2e-4):
            return f"model_log_prob {ours}, log_density {theirs}: {made.made_of}"
        # log q of the guide at the prior's own numbers: the Jacobian is the density's difference
        own = np.asarray(posterior.log_prob(draws), float)
        noise = -0.5 * np.sum(z**2, -1) - 0.5 * space.size * np.log(2 * np.pi)
        said = np.array([float(density) for density, *_ in found])
        if not np.allclose(said - noise, ours - own, rtol=1e-3, atol=2e-3):
            return f"log p - log q {said - noise}, by the posterior {ours - own}: {made.made_of}"
    return ""


@pytest.mark.parametrize("batch", every(10, range(BATCHES)))
def test_densities_are_numpyros(batch, by_numpy):
    differs = [f"{k}: {said}" for k in range(batch, COUNT, BATCHES) if (said := density_differs(k))]
    assert not differs, "\n".join(differs)


@pytest.mark.parametrize("family", [ConvexUpdate(), MeanField(), Coupled(), StructuredNormal()])
@pytest.mark.parametrize("seed", every(3, range(1000, 1003)))
def test_draws_have_the_density_that_they_are_said_to_have(seed, family):
    made = generate(seed)
    problem = Problem(made.model, family, made.args, made.kwargs)
    start = problem.initial(jax.random.key(1))
    start = start + 0.05 * jax.random.normal(jax.random.key(2), start.shape)
    posterior = Posterior(problem, problem.params(start))
    draws, log_q = posterior.draw(jax.random.key(3), (6,))
    names = [s.name for s in problem.program.latent]
    assert np.all(np.isfinite(log_q))
    for name in names:
        flat = np.asarray(draws[name]).reshape(6, -1)
        assert len(np.unique(flat[:, 0])) == 6, name
    np.testing.assert_allclose(posterior.log_prob(draws), log_q, rtol=1e-3, atol=2e-3)
    ours = posterior.model_log_prob(draws)
    for k in range(6):
        theirs = numpyros(made, {n: np.asarray(draws[n][k]) for n in names})
        np.testing.assert_allclose(ours[k], theirs, rtol=2e-5, atol=2e-4)


#: Models with one latent number, whose evidence is an integral over a line.
ONE_NUMBER = {"alone", "scaled", "masked_data", "with_factor", "known_value", "conditioned"}
LINES = [k for k in range(2000, 2060) if generate(k).made_of["structure"] in ONE_NUMBER][:6]


@pytest.mark.parametrize("family", [ConvexUpdate(), MeanField()])
@pytest.mark.parametrize("seed", every(3, LINES))
def test_no_elbo_exceeds_the_evidence(seed, family):
    made = generate(seed)
    problem = Problem(made.model, StructuredNormal(), made.args, made.kwargs)
    recorded, blank = TracedDensity.build(problem.noise_space, {}, True), np.zeros(1)
    line = np.linspace(-12, 12, 601)
    density = [recorded.run(np.array([z]), blank, blank, recorded.consts, {})[0] for z in line]
    evidence = np.logaddexp.reduce(np.array(density)) + np.log(line[1] - line[0])
    problem = Problem(made.model, family, made.args, made.kwargs)
    start = problem.initial(jax.random.key(1))
    start = start + 0.3 * jax.random.normal(jax.random.key(2), start.shape)
    elbo, error = Posterior(problem, problem.params(start)).elbo(jax.random.key(3), num_samples=400)
    assert elbo < evidence + 4 * error + 1e-3
