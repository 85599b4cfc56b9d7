"""Takes the everyday suite; gives each entry's posterior moments and log evidence, one file each.

``python -m benchmarks.everyday.truth`` runs what is not there yet. NUTS in float64, in the
coordinates of a Gaussian near the posterior, then bridge sampling. What is not sure is not
stored: chains that disagree, too few effective draws, divergences, an evidence that differs from
the exact one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
import numpyro
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from scipy.stats import norm, rankdata

from benchmarks.everyday import bridge, laplace
from benchmarks.everyday.entry import Space, latent_sites
from benchmarks.everyday.suite import SUITE, TRUTH, Everyday

#: One core for each process; the accelerator is of no use to small models.
ONE_CORE = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Settings:
    """How long NUTS runs, and what is asked of its draws."""

    chains: int = 4
    warm_up: int = 2000
    draws: int = 10_000
    largest_r_hat: float = 1.01
    smallest_effective: float = 2000.0
    largest_divergent_share: float = 1e-3


SHORT = Settings(warm_up=500, draws=1000, smallest_effective=200.0, largest_r_hat=1.05)


class NotSure(Exception):
    """The draws cannot be trusted; the message says why."""


@dataclass(frozen=True)
class Draws:
    """NUTS draws: standardised coordinates (chain, draw, dimension) and sites by name."""

    standardised: np.ndarray
    sites: dict[str, np.ndarray]
    log_densities: bridge.LogDensities
    divergences: int
    steps: float


def start_candidates(space: Space, number: int = 8) -> np.ndarray:
    """Prior draws, and as many points near the origin, half of them very near it."""
    rng = np.random.default_rng(0)
    # Where predictors are raw, prior draws overflow; very near the origin nothing does.
    near = [r * rng.uniform(-1.0, 1.0, (number // 2, space.size)) for r in (2.0, 0.01)]
    draws = jax.jit(jax.vmap(space.prior_draw))(jax.random.split(jax.random.key(0), number))
    return np.concatenate([draws, *near])


def run_nuts(entry: Everyday, settings: Settings) -> Draws:
    space = Space.of(entry.truth_model or entry.model, entry.args, entry.kwargs)
    candidates = start_candidates(space)
    gaussian, starts = laplace.starts(space.log_density, candidates, settings.chains)
    log_density = gaussian.standardised(space.log_density)
    kernel = NUTS(
        potential_fn=lambda z: -log_density(z),
        target_accept_prob=entry.target_accept,
        # The coordinates are standardised already. A dense matrix of many dimensions is learned
        # badly from the first short windows, and the warm-up would take hours.
        dense_mass=space.size <= 45,
    )
    mcmc = MCMC(
        kernel,
        num_warmup=settings.warm_up,
        num_samples=settings.draws,
        num_chains=settings.chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    fields = ("diverging", "num_steps")
    mcmc.run(jax.random.key(1), init_params=jax.numpy.asarray(starts), extra_fields=fields)
    extra = mcmc.get_extra_fields(group_by_chain=True)
    z = np.asarray(mcmc.get_samples(group_by_chain=True))
    constrain = jax.jit(jax.vmap(lambda z: space.constrain(gaussian.mean + gaussian.factor @ z)))
    flat = constrain(z.reshape(-1, space.size))
    names = latent_sites(entry.model, entry.args, entry.kwargs, jax.random.key(0))
    sites = {k: np.asarray(flat[k], float) for k in names}
    in_chains = {k: x.reshape(*z.shape[:2], *x.shape[1:]) for k, x in sites.items()}
    vectorised = jax.jit(jax.vmap(log_density))
    return Draws(
        z,
        entry.comparable(in_chains),
        lambda points: np.asarray(vectorised(points)),
        int(extra["diverging"].sum()),
        float(extra["num_steps"].mean()),
    )


def coordinates(sites: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """(chain, draw) of every scalar coordinate that varies, by a name such as ``theta[3]``."""
    found = {}
    for site, x in sites.items():
        for index in np.ndindex(x.shape[2:]):
            column = x[(slice(None), slice(None), *index)]
            # The factor of a correlation matrix has entries that are 0 or 1 by definition.
            if np.ptp(column) > 0:
                found[f"{site}[{', '.join(map(str, index))}]" if index else site] = column
    return found


def rank_normalised(x: np.ndarray) -> np.ndarray:
    """Normal scores of ranks over all chains (Vehtari et al. 2021): heavy tails do no harm."""
    return norm.ppf((rankdata(x).reshape(x.shape) - 0.375) / (x.size + 0.25))


def check(draws: Draws, settings: Settings) -> dict[str, Any]:
    """Convergence in numbers; raises where it is not enough, naming the coordinate."""
    problems, r_hats, effectives = [], [], []
    for name, x in coordinates(draws.sites).items():
        scores = rank_normalised(x)
        folded = rank_normalised(np.abs(x - np.median(x)))
        r_hat = float(max(split_gelman_rubin(scores), split_gelman_rubin(folded)))
        halves = np.concatenate(np.split(scores[:, : scores.shape[1] // 2 * 2], 2, axis=1))
        effective = float(effective_sample_size(halves))
        if not (r_hat < settings.largest_r_hat and effective > settings.smallest_effective):
            problems.append(f"{name}: R-hat {r_hat:.4f}, {effective:.0f} effective draws")
        r_hats.append(r_hat)
        effectives.append(effective)
    allowed = settings.largest_divergent_share * settings.chains * settings.draws
    if draws.divergences > allowed:
        problems.append(f"{draws.divergences} divergences")
    if problems:
        raise NotSure("; ".join(problems))
    return {
        "largest R-hat": round(max(r_hats), 5),
        "fewest effective draws": round(min(effectives)),
        "divergences": draws.divergences,
        "steps per draw": round(draws.steps, 1),
    }


def moments(draws: Draws) -> dict[str, dict[str, Any]]:
    """Means and standard deviations with their Monte Carlo errors, by site, as nested lists."""
    found: dict[str, dict[str, Any]] = {"mean": {}, "sd": {}, "mean_error": {}, "sd_error": {}}
    for site, x in draws.sites.items():
        mean, sd = x.mean((0, 1)), x.std((0, 1))
        squares = (x - mean) ** 2
        with np.errstate(invalid="ignore", divide="ignore"):
            of_mean = sd / np.sqrt(effective_sample_size(x))
            of_sd = squares.std((0, 1)) / np.sqrt(effective_sample_size(squares)) / (2 * sd)
        # Entries that are constant by definition have no error.
        of_mean, of_sd = np.where(sd > 0, of_mean, 0.0), np.where(sd > 0, of_sd, 0.0)
        for kind, value in zip(found, (mean, sd, of_mean, of_sd)):
            found[kind][site] = np.asarray(value).tolist()
    return found


def truth_of(entry: Everyday, settings: Settings) -> dict[str, Any]:
    """Everything that is stored about one entry; raises `NotSure` instead of giving doubtful."""
    begin = time.perf_counter()
    draws = run_nuts(entry, settings)
    diagnostics = check(draws, settings)
    log_evidence, error = bridge.log_evidence(draws.log_densities, draws.standardised)
    if not np.isfinite(log_evidence):
        raise NotSure(f"log evidence {log_evidence}")
    exact = entry.exact_log_evidence
    if exact is not None and abs(log_evidence - exact) > 5 * error + 1e-3:
        raise NotSure(f"log evidence {log_evidence:.4f} ± {error:.4f}, but exactly {exact:.4f}")
    return {
        "name": entry.name,
        "stands for": entry.stands_for,
        "versions": {
            "python": platform.python_version(),
            "jax": jax.__version__,
            "numpyro": numpyro.__version__,
        },
        "settings": {**asdict(settings), "target_accept": entry.target_accept},
        "seconds": round(time.perf_counter() - begin, 1),
        "diagnostics": diagnostics,
        "fingerprint": entry.fingerprint(),
        "dimensions": draws.standardised.shape[-1],
        # The exact value where there is one; bridge sampling then was its check.
        "log_evidence": log_evidence if exact is None else exact,
        "log_evidence_error": error if exact is None else 0.0,
        "bridge": {"log_evidence": log_evidence, "error": error},
        "logarithm_of": list(entry.heavy_tailed),
        **moments(draws),
    }


def summary(truth: dict[str, Any]) -> str:
    by_bridge = truth["bridge"]
    exact = "" if truth["log_evidence_error"] else f" (exactly {truth['log_evidence']:.4f})"
    return (
        f"{truth['name']:22} {truth['dimensions']:3} dimensions, log evidence "
        f"{by_bridge['log_evidence']:.4f} ± {by_bridge['error']:.4f}{exact}, "
        f"{truth['diagnostics']}, {truth['seconds']} s"
    )


def run_here(name: str, short: bool) -> bool:
    """Computes, stores and prints one truth; false where it was refused."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    try:
        truth = truth_of(SUITE[name], SHORT if short else Settings())
    except NotSure as problem:
        print(f"{name:22} REFUSED: {problem}", flush=True)
        return False
    print(summary(truth), flush=True)
    if not short:
        TRUTH.mkdir(parents=True, exist_ok=True)
        (TRUTH / f"{name}.json").write_text(json.dumps(truth, indent=1) + "\n")
    return True


def run_apart(name: str, short: bool) -> bool:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.everyday.truth", "--only", name]
    command += ["--short"] if short else []
    return subprocess.run(command, env={**os.environ, **ONE_CORE}).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(SUITE), choices=list(SUITE))
    parser.add_argument("--jobs", type=int, default=1, help="entries run side by side")
    parser.add_argument("--short", action="store_true", help="few draws; prints, stores nothing")
    parser.add_argument("--again", action="store_true", help="also what is stored already")
    arguments = parser.parse_args()
    stored = {path.stem for path in TRUTH.glob("*.json")}
    keep = arguments.again or arguments.short
    names = [name for name in arguments.only if keep or name not in stored]
    if len(names) == 1:
        sys.exit(not run_here(names[0], arguments.short))
    with ThreadPoolExecutor(arguments.jobs) as pool:
        fine = list(pool.map(lambda name: run_apart(name, arguments.short), names))
    refused = [name for name, ok in zip(names, fine) if not ok]
    print(f"{sum(fine)} of {len(names)} are sure; refused: {', '.join(refused) or 'none'}")
    sys.exit(bool(refused))


if __name__ == "__main__":
    main()
