"""Import paths and names of 0.1: they lead to what they led to, and say where it is today."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import asvi
from asvi.errors import AsviError
from asvi.families.sampling import SamplingGuide
from asvi.results.old_names import ARGUMENTS, ATTRIBUTES, GONE_IN, MODULES, NAMES, OPTIONS
from tests.support.sources import ROOT

# In processes of their own: what is imported once is not looked for again.
BEFORE = """
import contextlib, importlib, sys, warnings
import asvi

@contextlib.contextmanager
def told(where):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FutureWarning)
        yield
    texts = [str(w.message) for w in caught if w.category is FutureWarning]
    assert texts == [] if where is None else len(texts) == 1 and where in texts[0], texts
    assert all("old_" not in w.filename for w in caught)
"""

PLOTS = """
assert "matplotlib" not in sys.modules
with told(None):
    assert asvi.plot.pairs and "matplotlib" in sys.modules
    import asvi.plot
    from asvi import plot
    from asvi.plot import pairs
from asvi.results import plot as today
assert asvi.plot is plot is today and pairs is today.pairs
"""

OLD_PATHS = """
with told("asvi.program.control_flow.interpretation"):
    from asvi.interpretation import Frame, Interpretation
assert Interpretation is asvi.Interpretation and Frame.__name__ == "Body"
with told("asvi.fitting.correction.pareto_smoothing"):
    assert asvi.psis.smooth is asvi.psis.pareto_smooth

from asvi.results.old_names import MODULES as PATHS
for name, moved in PATHS.items():
    again = moved.is_public or name in ("interpretation", "psis")
    with told(None if again else moved.to):
        old = importlib.import_module(f"asvi.{name}")
    today = importlib.import_module(moved.to)
    assert all(getattr(old, n) is getattr(today, n) for n in today.__all__)
    assert all(getattr(old, a) is getattr(today, b) for a, b in moved.renamed.items())
    assert getattr(asvi, name) is old
assert asvi.posterior.Posterior is asvi.Posterior and callable(asvi.fit)

for name in ("asvi.nothing", "asvi.families.posterior", "posterior"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(name)
"""


@pytest.mark.parametrize("checks", [PLOTS, OLD_PATHS], ids=["plots", "modules"])
def test_paths_of_0_1_lead_where_they_led(checks):
    command = [sys.executable, "-c", BEFORE + checks]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def model(y, batch=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    with numpyro.plate("row", len(y), subsample_size=batch) as rows:
        z = numpyro.sample("z", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=jnp.asarray(y)[rows])


Y = np.array([1.0, 2.0, 0.5], np.float32)


@pytest.fixture(scope="module")
def result():
    training = asvi.Training(num_steps=250, num_restarts=1)
    return asvi.fit(model, Y, family="MeanField", training=training)


def told(old, new):
    return pytest.warns(FutureWarning, match=f"`{old}` is now .*{new}.*goes in {GONE_IN}")


# ---------------------------------------------------------------------------------- from the table


VALUES = {
    "key": jax.random.key(2),
    "progress": False,
    "steps": 250,
    "draws": 3,
    "restarts": 1,
    "optimizer": optax.adam(0.05),
    "tolerance": 0.5,
    "amortize": "row",
}


def as_today(name):
    value = VALUES[name]
    if OPTIONS[name].startswith("Training("):
        return {"training": asvi.Training(**{OPTIONS[name][9:].partition("=")[0]: value})}
    if name == "amortize":
        return {"family": asvi.families.Amortized(plate=value)}
    return {OPTIONS[name]: value}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_a_fit(name, monkeypatch):
    asked, fine = [], SimpleNamespace(diagnose=lambda: SimpleNamespace(ok=True))
    monkeypatch.setattr("asvi.results.fit._climb", lambda r, **_: asked.append(r) or fine)
    with told(name, OPTIONS[name].partition("(")[0]):
        asvi.fit(model, Y, **{name: VALUES[name]})
    asvi.fit(model, Y, **as_today(name))
    before, today = (vars(request).copy() for request in asked)
    assert before.pop("started_at") <= today.pop("started_at")
    assert before == today


def test_old_options_of_today_and_of_then_do_not_mix():
    with told("key", "rng_key"), pytest.raises(AsviError, match="one option, and both"):
        asvi.fit(model, Y, key=1, rng_key=2)
    with told("amortize", "family"), pytest.raises(AsviError, match="no plate's name"):
        asvi.fit(model, Y, amortize=3)


CALLS = [(name, old) for name, table in ARGUMENTS.items() for old in table]


@pytest.mark.parametrize(("name", "old"), CALLS)
def test_arguments(name, old, result):
    owner, _, method = name.rpartition(".")
    new = ARGUMENTS[name][old]
    if owner == "plot":
        pytest.importorskip("matplotlib")
        assert new in inspect.signature(getattr(asvi.plot, method)).parameters
        return
    owners = {"Posterior": result.guide, "Fit": result, "AutoASVI": result.problem.guide}
    call = getattr(owners[owner], method)
    values = {"rng_key": 3, "sample_shape": (2,), "num_samples": 50, "num_proposals": 4000}
    parameters = inspect.signature(call).parameters
    needed = {"rng_key": 3} if "rng_key" in parameters else {}
    if owner == "AutoASVI":
        needed = {"params": result.params, "quantiles": [0.5]}
    needed.pop(new, None)
    with told(old, new):
        before = call(**needed, **{old: values[new]})
    today = call(**needed, **{new: values[new]})
    if method != "to_arviz":
        before, today = (x[0] if method == "importance" else x for x in (before, today))
        jax.tree.map(np.testing.assert_array_equal, before, today)
    with pytest.raises(AsviError, match="one argument, and both"):
        call(**needed, **{old: values[new], new: values[new]})


def test_draws_at_other_data(result):
    new = np.zeros(3, np.float32)
    for call, today in (
        (lambda p: p.sample(1, (3,), new), lambda p: p.at(new).sample(1, (3,))),
        (lambda p: p.sample(1, y=new), lambda p: p.at(y=new).sample(1)),
        (lambda p: p.elbo(1, new), lambda p: p.at(new).elbo(1)),
    ):
        with pytest.warns(FutureWarning, match=r"is now `at\(\*args\)"):
            before = call(result.guide)
        jax.tree.map(np.testing.assert_array_equal, before, today(result.guide))


def test_an_argument_that_the_model_has_is_its_own():
    def draws_many(draws=2):
        with numpyro.plate("row", draws):
            numpyro.sample("x", dist.Normal(0.0, 1.0), obs=None if draws > 2 else np.zeros(2))
        numpyro.sample("mu", dist.Normal(0.0, 1.0))

    found = asvi.fit(draws_many).posterior.predictive(0, draws=5)
    assert found["x"].shape == (1000, 5)


@pytest.mark.parametrize(
    ("path", "old"), [(path, old) for path, table in ATTRIBUTES.items() for old in table]
)
def test_attributes(path, old, result):
    has = {"Fit": result, "Report": result.diagnose()}[path.rpartition(".")[2]]
    new = ATTRIBUTES[path][old]
    today = has
    for name in new.split("."):
        today = getattr(today, name)
    with told(old, new):
        before = getattr(has, old)
    if old == "info":
        assert before == {**vars(today), "family": result.family_reason}
    else:
        assert before is today or before == today


@pytest.mark.parametrize(
    ("module", "old"), [(module, old) for module, table in NAMES.items() for old in table]
)
def test_names_of_modules(module, old):
    new = NAMES[module][old]
    path = new if new.startswith("asvi.") else f"{module}.{new}"
    where, _, last = path.rpartition(".")
    with told(f"{module}.{old}", path):
        found = getattr(importlib.import_module(module), old)
    assert found is getattr(importlib.import_module(where), last)
    assert old not in dir(importlib.import_module(module))


def test_what_there_never_was():
    assert not hasattr(asvi, "nothing")
    assert not hasattr(asvi.families, "nothing")
    assert issubclass(asvi.AutoASVI, SamplingGuide)


def test_resume_goes_on_from_a_checkpoint(tmp_path, result):
    path = tmp_path / "run.ckpt"
    training = asvi.Training(num_steps=250, num_restarts=1)
    asvi.fit(model, Y, family="MeanField", training=training, checkpoint=path)
    with pytest.warns(FutureWarning, match="resume"):
        again = asvi.resume(path, model, Y, family="MeanField")
    assert again.elbo == result.elbo


def test_public_paths_are_no_old_ones():
    assert [name for name, moved in MODULES.items() if moved.is_public] == ["plot"]
