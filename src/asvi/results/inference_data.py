"""Takes a posterior; gives ArviZ data (0.x and 1.x) with coordinates from plates."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from asvi.density.split_keys import split
from asvi.errors import DataWarning, warn_user
from asvi.program.run_trace import trace_of
from asvi.program.site import Site
from asvi.program.statements.flat_prior import is_flat
from asvi.program.statements.unsampled import is_unsampled
from asvi.results.posterior import Posterior

__all__ = ["dimensions", "minibatched", "observed_data", "prior_draws", "to_arviz"]


def dimensions(site: Site) -> list[str]:
    """Names of a site's axes: scans, then plates, then what is left.

    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> from asvi.program import Program
    >>> def model():
    ...     with numpyro.plate("school", 8):
    ...         numpyro.sample("theta", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    >>> dimensions(Program.of(model)["theta"])
    ['school', 'theta_dim_0']
    """
    scans = [part for part in site.bodies if part.kind == "scan"]
    names = [f"{scan}_step" for scan in scans]
    batch: list[str | None] = [None] * len(site.batch_shape)
    for plate in site.plates:
        batch[plate.dim] = plate.name
    left = iter(range(len(site.shape)))
    names += [name or f"{site.name}_dim_{next(left)}" for name in batch]
    return names + [f"{site.name}_dim_{next(left)}" for _ in site.event_shape]


def minibatched(sites: Iterable[Site]) -> dict[str, str]:
    """Sites in subsampled plates, and how many of how many members a draw has.

    Which members they are is drawn anew each time: the i-th number of two draws is not of the same
    one, and a mean over draws says nothing.
    """
    found = {}
    for site in sites:
        small = [p for p in site.plates if p.size != p.subsample_size]
        if small:
            found[site.name] = " x ".join(f"{p.subsample_size} of {p.size}" for p in small)
    return found


def to_arviz(posterior: Posterior, run: Any, draws: int, key: jax.Array | None) -> Any:
    """An ``InferenceData`` (ArviZ 0.x) or ``DataTree`` (1.x)."""
    with posterior.problem.bound.changes.one_call():
        groups = _groups(posterior, draws, jax.random.key(0) if key is None else key)
    program = posterior.problem.program
    dims = {site.name: dimensions(site) for site in program.sites if site.kind != "factor"}
    dims = {name: names for name, names in dims.items() if names}
    coords = {}
    for site in program.sites:
        for name, size in zip(dims.get(site.name, ()), site.shape, strict=False):
            coords[name] = np.arange(size)
    out = minibatched(program.sites)
    if out:
        warn_user(
            f"{', '.join(out)}: in a subsampled plate, so that each draw has another random "
            "minibatch. Left out of the ArviZ data, whose rows would not be of one member.",
            DataWarning,
        )
        groups = {k: {n: x for n, x in g.items() if n not in out} for k, g in groups.items()}
    attrs = {"inference_library": "asvi", "elbo": run.elbo, "elbo_se": run.elbo_se}
    if run.log_evidence is not None:
        attrs |= {"log_evidence": run.log_evidence, "log_evidence_se": run.log_evidence_se}
    return _from_dict(groups, dims, coords, attrs)


def _groups(posterior: Posterior, draws: int, key: jax.Array) -> dict[str, dict[str, np.ndarray]]:
    """Arrays by group and name, the axes of chains and draws first."""
    keys = split(key, 3, posterior.problem.bound.settings.evaluator)
    found, log_p, log_q = posterior.chains(keys[0], draws)
    log_p, log_q = np.asarray(log_p), np.asarray(log_q)
    found = {name: np.asarray(x) for name, x in found.items()}
    together = {name: np.reshape(x, (-1, *x.shape[2:])) for name, x in found.items()}
    latent = posterior.problem.program.latent
    priors = [site.distribution for site in latent]
    flat = any(is_flat(prior) or is_unsampled(prior) for prior in priors)  # none to draw from
    likelihood = posterior.log_likelihood(together)
    return {
        "posterior": {n: x for n, x in found.items() if n not in posterior.parts},
        "prior": {} if flat else _one_chain(prior_draws(posterior, keys[1], draws)),
        "posterior_predictive": _one_chain(posterior.predictive(keys[2], num_samples=draws)),
        "log_likelihood": {
            n: np.reshape(np.asarray(x), log_q.shape + x.shape[1:]) for n, x in likelihood.items()
        },
        "sample_stats": {"lp": log_p, "log_q": log_q, "log_weight": log_p - log_q},
        "observed_data": observed_data(posterior),
    }


def _from_dict(groups: dict[str, Any], dims: Any, coords: Any, attrs: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # 0.23 announces 1.0 at import
        import arviz
    groups = {name: group for name, group in groups.items() if group}
    if int(arviz.__version__.split(".")[0]) >= 1:
        data = arviz.from_dict(groups, dims=dims, coords=coords)
        data["posterior"].attrs.update(attrs)
        return data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one chain of many draws is as it should be
        data = arviz.from_dict(**groups, dims=dims, coords=coords)
    data.posterior.attrs.update(attrs)
    return data


def _one_chain(values: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value)[None] for name, value in values.items()}


def prior_draws(posterior: Posterior, key: jax.Array, draws: int) -> dict[str, Any]:
    """Draws of the latent and deterministic sites from the model's prior."""
    problem = posterior.problem
    names = {site.name for site in problem.program.latent}

    def one(key, _row, params):
        args, kwargs = problem.arguments
        met = trace_of(problem.model, key, params, {}, args, kwargs)
        return {
            name: site["value"]
            for name, site in met.items()
            if name in names or site["type"] == "deterministic"
        }

    return problem.bound.map_in_batches("prior", one)((), posterior.params, key=key, count=draws)


def observed_data(posterior: Posterior) -> dict[str, np.ndarray]:
    """The data of every observed site."""
    problem = posterior.problem
    names = {site.name for site in problem.program.sites if site.kind == "observed"}

    def one(key, _row, params):
        args, kwargs = problem.arguments
        met = trace_of(problem.model, key, params, {}, args, kwargs)
        return {name: met[name]["value"] for name in sorted(names)}

    run = problem.bound.map_in_batches("observed", one)
    found = run((), posterior.params, key=jax.random.key(0), count=1)
    return {name: np.asarray(value)[0] for name, value in found.items()}
