"""posteriordb's models: they trace, name what posteriordb names, and agree with its draws.

Nothing here needs the database: a small one with made-up numbers takes its place.
"""

from __future__ import annotations

import itertools
import json
import sys
import zipfile

import jax
import numpy as np
import numpyro.handlers as handlers
import pytest
from numpyro.infer import init_to_uniform
from numpyro.infer.util import log_density
from scipy import stats

from benchmarks.posteriordb import hidden_markov, nuts, odes, series
from benchmarks.posteriordb.__main__ import stored, table
from benchmarks.posteriordb.database import VARIABLES, DatabaseNotFound, source
from benchmarks.posteriordb.suite import POSTERIORS, by_number, get

RESULTS = stored()
ROWS = 12
CENTRED, NONCENTRED = (f"eight_schools-eight_schools_{k}" for k in ("centered", "noncentered"))


def made_up_data() -> dict[str, dict]:
    """Data blocks by the name of the data set: right names and widths, few rows, any numbers."""
    rng = np.random.default_rng(0)

    def columns(*names: str, rows: int = ROWS) -> dict[str, list]:
        return {name: rng.uniform(1.0, 2.0, rows).tolist() for name in names}

    def matrix(rows: int, width: int) -> list:
        return rng.uniform(1.0, 2.0, (rows, width)).tolist()

    groups = (1 + np.arange(ROWS) % 4).tolist()
    person = columns("partyid7", "real_ideo", "race_adj", "educ1", "gender", "income")
    kid = columns("kid_score", "mom_hs", "mom_iq")
    drive = {"alpha": [[4.0, 1.0], [1.0, 4.0]], **columns("u", "v")}
    bush = ("weight", "diam1", "diam2", "canopy_height", "total_height", "density", "group")
    simulated = {"X": matrix(ROWS, 5), **columns("y")}
    years = range(1972, 2001, 4)
    return {
        "arK": {"K": 5, **columns("y")},
        "arma": columns("y"),
        "garch": {"sigma1": 0.5, **columns("y")},
        "bball_drive_event_0": drive,
        "bball_drive_event_1": {**drive, "tau": 0.1, "rho": 0.1},
        "hmm_example": columns("y"),
        "low_dim_gauss_mix": columns("y"),
        "diamonds": {"X": matrix(ROWS, 25), **columns("Y")},
        "earnings": columns("earn", "height", "male"),
        "eight_schools": columns("y", "sigma", rows=8),
        "gp_pois_regr": {**columns("y", rows=11), "x": list(range(11)), "k": list(range(11))},
        "hudson_lynx_hare": {"ts": [1, 2], "y_init": [30, 4], "y": matrix(2, 2)},
        "kidiq": kid,
        "kidiq_with_mom_work": {**kid, "mom_work": groups},
        "mesquite": columns(*bush),
        "kilpisjarvi_mod": {
            **columns("x", "y"),
            **{"pmualpha": 9.0, "psalpha": 100.0, "pmubeta": 0.0, "psbeta": 0.03},
        },
        **{f"nes{year}": {**person, "age_discrete": groups} for year in years},
        "one_comp_mm_elim_abs": {
            **{"t0": 0, "D": 30, "V": 2, "times": [0.5, 1.0]},
            **columns("C_hat", rows=2),
        },
        "sblrc": simulated,
        "sblri": simulated,
    }


def write_zip(path, content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as folder:
        folder.writestr(path.name.removesuffix(".zip"), json.dumps(content))


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A folder laid out as posteriordb's, whose numbers are made up."""
    root = tmp_path_factory.mktemp("posteriordb") / "posterior_database"
    (root / "posteriors").mkdir(parents=True)
    for name, data in made_up_data().items():
        write_zip(root / "data" / "data" / f"{name}.json.zip", data)
    for name, result in RESULTS.items():
        names = [n.removeprefix("log ") for n in result["differences"]]
        parameters = [n.split("[")[0] for n in names]
        reference = NONCENTRED if name == CENTRED else name
        info = {
            "data_name": name.split("-")[0],
            "reference_posterior_name": reference,
            "dimensions": {p: parameters.count(p) for p in dict.fromkeys(parameters)},
        }
        (root / "posteriors" / f"{name}.json").write_text(json.dumps(info))
        chains = [{n: [1.0 + c, 2.0 + c] for n in names} for c in range(3)]
        draws = root / "reference_posteriors" / "draws" / "draws"
        write_zip(draws / f"{reference}.json.zip", chains)
    return root


def traced(problem, key) -> dict[str, jax.Array]:
    """Values of latent and deterministic sites at a random place, and the log density there."""
    model = handlers.substitute(handlers.seed(problem.model, key), substitute_fn=init_to_uniform)
    trace = handlers.trace(model).get_trace(*problem.args, **problem.kwargs)
    kinds = ("sample", "deterministic")
    sites = {
        name: site["value"]
        for name, site in trace.items()
        if site["type"] in kinds and not site.get("is_observed")
    }
    return {
        **sites,
        "log density": log_density(problem.model, problem.args, problem.kwargs, sites)[0],
    }


@pytest.mark.parametrize("name", POSTERIORS)
def test_every_model_traces_and_gives_the_reference_numbers(name, database, key):
    problem = get(name, database)
    shapes = jax.eval_shape(lambda key: traced(problem, key), key)
    assert shapes.pop("log density").shape == ()
    draws = {site: np.ones((4, *x.shape)) for site, x in shapes.items()}
    numbers = problem.quantities(draws)
    assert list(numbers) == list(problem.reference)
    assert all(x.shape == (4,) for x in numbers.values())


def test_all_46_translations_agree_with_the_reference_draws():
    assert list(RESULTS) == list(POSTERIORS)
    assert len(RESULTS) == 46
    for name, result in RESULTS.items():
        assert abs(result["worst mean"]["difference"]) <= nuts.LARGEST_MEAN_DIFFERENCE, name
        assert abs(result["worst sd"]["difference"]) <= nuts.LARGEST_SD_DIFFERENCE, name
        assert result["numbers"] == result["numbers in posteriordb"]
        assert result["agrees"]
    assert "46 of 46 agree" in table(RESULTS)


def test_reference_moments_are_those_of_all_chains(database):
    problem = get("kidiq-kidscore_momiq", database)
    draws = np.array([1.0, 2.0, 2.0, 3.0, 3.0, 4.0])
    assert problem.reference["beta[2]"] == pytest.approx((draws.mean(), draws.std(ddof=1)))
    assert get("one_comp_mm_elim_abs-one_comp_mm_elim_abs", database).reference[
        "log K_m"
    ] == pytest.approx((np.log(draws).mean(), np.log(draws).std(ddof=1)))


def test_deterministic_parameters_are_found_from_the_others(database, key):
    problem = get(NONCENTRED, database)
    draws = {
        "mu": np.array([1.0, 2.0]),
        "tau": np.array([3.0, 4.0]),
        "theta_trans": np.ones((2, 8)),
    }
    found = problem.quantities(draws)
    np.testing.assert_allclose(found["theta[3]"], [4.0, 6.0], rtol=1e-6)


def test_numbers_have_stans_names():
    assert list(by_number("sigma", np.ones(3))) == ["sigma"]
    assert list(by_number("z", np.ones((3, 1, 2)))) == ["z[1,1]", "z[1,2]"]


def test_the_error_tells_both_ways_to_the_database(tmp_path, monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setitem(sys.modules, "posteriordb", None)
    with pytest.raises(DatabaseNotFound, match=r"(?s)git clone.*pip install posteriordb"):
        source()
    with pytest.raises(DatabaseNotFound, match="no folder 'posteriors'"):
        source(tmp_path)
    with pytest.raises(KeyError, match="arK-arK"):
        get("arK", tmp_path)


def test_the_environment_leads_to_the_database(database, monkeypatch):
    monkeypatch.setenv(VARIABLES[0], str(database.parent))
    assert get("sblrc-blr").args[0].shape == (ROWS, 5)


def test_the_forward_algorithm_sums_over_all_paths(float64):
    rng = np.random.default_rng(0)
    log_theta = np.log(rng.dirichlet(np.ones(2), 2))
    log_likelihood = rng.normal(size=(4, 2))
    paths = [
        sum(log_likelihood[t, s] for t, s in enumerate(path))
        + sum(log_theta[a, b] for a, b in itertools.pairwise(path))
        for path in itertools.product(range(2), repeat=4)
    ]
    found = jax.jit(hidden_markov.forward)(log_theta, log_likelihood)
    assert float(found) == pytest.approx(np.logaddexp.reduce(paths))


def test_the_solver_meets_the_times_of_measurement(float64):
    times = np.array([0.5, 1.0, 2.0])
    knots = jax.jit(lambda times: odes.split(times, 10, first=2.0))(times)
    solve = jax.jit(lambda knots: odes.solve(lambda t, x: t - x, 1.0, knots))
    found = solve(knots)[9::10]
    np.testing.assert_allclose(knots[10::10], times, rtol=1e-12)
    np.testing.assert_allclose(found, 2 * np.exp(-times) + times - 1, rtol=1e-6)


def test_the_prior_of_garch_is_flat_on_the_triangle(float64):
    y = np.array([1.0, 2.0, 1.5])
    joint = jax.jit(lambda values: log_density(series.garch11, (y, 0.5), {}, values)[0])

    def prior(alpha1: float, beta1: float) -> float:
        variance = [0.25]
        for y_t in y[:-1]:
            variance.append(1.0 + alpha1 * (y_t - 1.0) ** 2 + beta1 * variance[-1])
        data = stats.norm.logpdf(y, 1.0, np.sqrt(variance)).sum()
        values = {"mu": 1.0, "alpha0": 1.0, "alpha1": alpha1, "beta1": beta1}
        return float(joint(values)) - data

    assert prior(0.2, 0.3) == pytest.approx(prior(0.7, 0.1))
