"""Takes a problem; gives how far NUTS of our model is from posteriordb's reference draws.

The check is of the translation, not of NUTS: chains start at the reference means, and every
computation is in 64-bit numbers.
"""

from __future__ import annotations

import platform
import time
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS, init_to_value
from numpyro.infer.util import initialize_model

from benchmarks.posteriordb.suite import Draws, Problem

LARGEST_MEAN_DIFFERENCE = 0.1
"""In standard deviations of the reference draws."""

LARGEST_SD_DIFFERENCE = 0.1
"""Of the ratio of the two standard deviations from 1."""


@dataclass(frozen=True)
class Settings:
    """How NUTS is run."""

    chains: int = 2
    warm_up: int = 1000
    draws: int = 5000
    target_accept: float = 0.9
    dense_mass: bool = True
    first_step: float = 0.01
    seed: int = 0
    start: str = "reference means"
    bits: int = 64


OWN_SETTINGS: dict[str, Settings] = {
    "eight_schools-eight_schools_centered": Settings(chains=4, draws=20_000, target_accept=0.99),
    "one_comp_mm_elim_abs-one_comp_mm_elim_abs": Settings(draws=10_000, target_accept=0.95),
}
"""Posteriors with narrow places, which need more than `Settings` gives."""


def check(problem: Problem) -> dict[str, Any]:
    """The result that is stored: differences, sizes, and how the run was made."""
    settings = OWN_SETTINGS.get(problem.name, Settings())
    begun = time.perf_counter()
    numbers, divergences = sample(problem, settings)
    seconds = time.perf_counter() - begun
    return {
        "name": problem.name,
        **compare(problem, numbers),
        "seconds": round(seconds, 1),
        "nuts": asdict(settings),
        "diagnostics": {
            "divergences": divergences,
            "largest R-hat": round(max(float(split_gelman_rubin(x)) for x in numbers.values()), 4),
            "fewest effective draws": int(
                min(float(effective_sample_size(x)) for x in numbers.values())
            ),
        },
        "versions": {
            "python": platform.python_version(),
            "jax": jax.__version__,
            "numpyro": numpyro.__version__,
        },
    }


def sample(problem: Problem, settings: Settings) -> tuple[Draws, int]:
    """Draws of each number, shaped (chains, draws), and how many transitions diverged."""
    kernel = NUTS(
        problem.model,
        target_accept_prob=settings.target_accept,
        dense_mass=settings.dense_mass,
        step_size=settings.first_step,
        init_strategy=init_to_value(values=reference_means(problem)),
    )
    mcmc = MCMC(
        kernel,
        num_warmup=settings.warm_up,
        num_samples=settings.draws,
        num_chains=settings.chains,
        chain_method="sequential",
        progress_bar=False,
    )
    key = jax.random.key(settings.seed)
    mcmc.run(key, *problem.args, **problem.kwargs, extra_fields=("diverging",))
    numbers = problem.quantities(mcmc.get_samples())
    shape = (settings.chains, settings.draws)
    divergences = int(mcmc.get_extra_fields()["diverging"].sum())
    return {name: np.reshape(x, shape) for name, x in numbers.items()}, divergences


def reference_means(problem: Problem) -> dict[str, jax.Array]:
    """Means of Stan's parameters, shaped as these are; those that are no sites of ours do no harm.

    They are JAX arrays: NumPyro takes a bound that is a NumPy number for a fixed one.
    """
    values = {}
    for parameter, sizes in problem.record.info["dimensions"].items():
        means = [
            x.mean() for name, x in problem.record.draws.items() if name.split("[")[0] == parameter
        ]
        assert len(means) == int(np.prod(sizes)), parameter
        single = len(means) == 1 and parameter in problem.record.draws
        values[parameter] = jnp.array(means[0] if single else means)
    return values


def compare(problem: Problem, numbers: Draws) -> dict[str, Any]:
    """Differences of means and standard deviations, the worst of each, and whether all agree."""
    references = problem.reference_draws
    differences = {name: _difference(numbers[name], x) for name, x in references.items()}
    raw = {
        name: _difference(np.exp(numbers[f"log {name}"]), problem.record.draws[name])
        for name in problem.posterior.without_variance
    }
    worst = {
        moment: max(differences, key=lambda name: abs(differences[name][moment]))
        for moment in ("mean", "sd")
    }
    sizes = (len(numbers), problem.record.size)
    agrees = (
        abs(differences[worst["mean"]]["mean"]) <= LARGEST_MEAN_DIFFERENCE
        and abs(differences[worst["sd"]]["sd"]) <= LARGEST_SD_DIFFERENCE
        and sizes[0] == sizes[1]
        and list(numbers) == list(problem.reference)
    )
    return {
        "agrees": agrees,
        "numbers": sizes[0],
        "numbers in posteriordb": sizes[1],
        "free numbers": free_numbers(problem),
        "worst mean": {"number": worst["mean"], "difference": differences[worst["mean"]]["mean"]},
        "worst sd": {"number": worst["sd"], "difference": differences[worst["sd"]]["sd"]},
        "differences": differences,
        **({"differences without a logarithm": raw} if raw else {}),
    }


def _difference(ours: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """Of the means in reference standard deviations, and relatively of these."""
    sd = reference.std(ddof=1)
    return {
        "mean": round(float((ours.mean() - reference.mean()) / sd), 4),
        "sd": round(float(ours.std(ddof=1) / sd) - 1.0, 4),
    }


def free_numbers(problem: Problem) -> int:
    """How many unconstrained numbers the model has (a simplex has one fewer than it shows)."""
    start = init_to_value(values=reference_means(problem))
    unconstrained = initialize_model(
        jax.random.key(0),
        problem.model,
        init_strategy=start,
        model_args=problem.args,
        model_kwargs=problem.kwargs,
    ).param_info.z
    return sum(int(np.size(x)) for x in unconstrained.values())
