"""Takes a posterior; gives the arrays that ArviZ wants of it, group by group."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.density.split_keys import split
from asvi.program.arguments import leaves_by_parameter
from asvi.program.columns import as_array, columns_of, is_column, is_table, labels_of
from asvi.program.run_trace import trace_of
from asvi.program.site import Site
from asvi.program.statements.flat_prior import is_flat
from asvi.program.statements.unsampled import is_unsampled
from asvi.results.axes import Axes, Met, Notes, dimensions, of_deterministic
from asvi.results.posterior import Posterior, Redrawn

__all__ = ["CHAINS", "GROUPS", "Content", "minibatched", "prior_draws"]

GROUPS = (
    "posterior",
    "sample_stats",
    "posterior_predictive",
    "log_likelihood",
    "prior",
    "prior_predictive",
    "observed_data",
    "constant_data",
)

#: constant of the formula: R̂ compares chains, and ArviZ takes four.
CHAINS = 4


class Content:
    """The groups, each made where it is asked for; ``left_out`` are sites of which none is."""

    def __init__(self, posterior: Posterior, num_samples: int, key: jax.Array):
        self._posterior, self._count = posterior, num_samples
        self._problem = posterior.problem
        self._keys = split(key, 3, self._problem.bound.settings.evaluator)
        self._met: dict[str, Met] = self._problem.bound.kept("axes of sites", dict)

    # ------------------------------------------------------------------------------ the groups

    def posterior(self) -> dict[str, np.ndarray]:
        return self._without_minibatches(self._draws[0])

    def sample_stats(self) -> dict[str, np.ndarray]:
        """Log densities by the model (``lp``, ``log_p``) and the guide (``log_q``).

        Where draws are the guide's own, also what they would weigh.
        """
        _, log_p, log_q = self._draws
        found = {"lp": log_p, "log_p": log_p, "log_q": log_q}
        is_of_guide = getattr(self._posterior, "correction", None) is None
        return {**found, "log_weight": log_p - log_q} if is_of_guide else found

    def posterior_predictive(self) -> dict[str, np.ndarray]:
        """Draws of the data, one at each draw of the posterior."""
        problem, posterior = self._problem, self._posterior

        def one(key, values, params):
            args, kwargs = problem.arguments
            met = trace_of(problem.model, key, params, values, args, kwargs, Redrawn)
            return {name: met[name]["value"] for name in self._observed_names}

        run = problem.bound.map_in_batches("predictive", one)
        given = {name: self._flat[name] for name in posterior.deciding(self._flat)}
        return self._by_chain(run(given, posterior.params, key=self._keys[2]))

    def log_likelihood(self) -> dict[str, np.ndarray]:
        return self._by_chain(self._posterior.log_likelihood(self._flat))

    def prior(self) -> dict[str, np.ndarray]:
        observed = self._observed_names
        return self._one_chain({n: x for n, x in self._prior.items() if n not in observed})

    def prior_predictive(self) -> dict[str, np.ndarray]:
        observed = self._observed_names
        return self._one_chain({n: x for n, x in self._prior.items() if n in observed})

    def observed_data(self) -> dict[str, np.ndarray]:
        return self._without_minibatches(self._observed)

    def constant_data(self) -> dict[str, np.ndarray]:
        """Arrays among the arguments that are not the data of a site."""
        observed = [np.asarray(x) for x in self._observed.values()]
        return {
            name: array
            for name, array in _named_arrays(self._problem)
            if not any(_is_same(array, x) for x in observed)
        }

    # -------------------------------------------------------------------------------- its axes

    def axes(self) -> Axes:
        """Names of axes, and labels that came with the data."""
        shapes, names = {}, {}
        for site in self._problem.program.sites:
            if site.kind != "factor" and site.name not in self.left_out:
                met = self._met.get(site.name)
                shapes[site.name] = site.shape
                names[site.name] = dimensions(site, met.event_dims if met else ())
        for name, x in self._draws[0].items():
            if name not in shapes and name in self._met and name not in self.left_out:
                shapes[name] = x.shape[2:]
                names[name] = of_deterministic(name, self._met[name], x.shape[2:])
        axes = Axes(shapes, names)
        given = set(self._named_by_model())
        self.named_axes = [
            axis
            for name, own in names.items()
            for axis, before in zip(axes.names[name], own, strict=True)
            if before in given
        ]
        leaves = [leaf for _, leaf in leaves_by_parameter(*self._problem.arguments)]
        axes.label([labels for x in leaves for labels in labels_of(x)], self.named_axes)
        return axes

    def _named_by_model(self) -> Iterator[str]:
        """Names of axes that stand in the model: plates and event dims."""
        for site in self._problem.program.sites:
            yield from (plate.name for plate in site.plates)
        for met in self._met.values():
            yield from (name for name, _, _ in met.plates)
            yield from met.event_dims

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Sites whose members differ from draw to draw."""
        _ = self._observed  # the sites are noted
        found = minibatched(self._problem.program.sites)
        parts = self._posterior.parts
        for name, met in self._met.items():
            seen = [plate for plate, _, _ in met.plates if plate in parts]
            if seen and name not in self._problem.program.values:
                found.setdefault(name, ", ".join(seen))
        return found

    # ------------------------------------------------------------------------------ their parts

    @cached_property
    def _draws(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Draws (chains, draws, ...), and their log densities by the model and the guide.

        Chains are islands of particles, which never met. Where draws are independent of each
        other, as weighted ones are, any four parts of them are chains.
        """
        count = -(-self._count // CHAINS) * CHAINS
        drawn, log_p, log_q = self._posterior.chains(self._keys[0], count)

        def in_chains(x: Any) -> np.ndarray:
            x = np.asarray(x)
            return x.reshape(CHAINS, -1, *x.shape[2:]) if len(x) == 1 else x

        found = {name: in_chains(x) for name, x in drawn.items()}
        return found, in_chains(log_p), in_chains(log_q)

    @cached_property
    def _flat(self) -> dict[str, np.ndarray]:
        return {name: np.reshape(x, (-1, *x.shape[2:])) for name, x in self._draws[0].items()}

    def _by_chain(self, values: dict[str, Any]) -> dict[str, np.ndarray]:
        lead = self._draws[2].shape
        found = {n: np.reshape(np.asarray(x), lead + x.shape[1:]) for n, x in values.items()}
        return self._without_minibatches(found)

    def _one_chain(self, values: dict[str, Any]) -> dict[str, np.ndarray]:
        found = {name: np.asarray(value)[None] for name, value in values.items()}
        return self._without_minibatches(found)

    def _without_minibatches(self, values: dict[str, Any]) -> dict[str, np.ndarray]:
        hidden = {*self.left_out, *self._posterior.parts}
        return {name: x for name, x in values.items() if name not in hidden}

    @cached_property
    def _prior(self) -> dict[str, Any]:
        """Draws of all sites from the prior; none where a prior has none."""
        priors = [site.distribution for site in self._problem.program.latent]
        if any(is_flat(prior) or is_unsampled(prior) for prior in priors):
            return {}
        return _prior_run(self._posterior, self._keys[1], self._count, self._observed_names)

    @cached_property
    def _observed_names(self) -> list[str]:
        return sorted({s.name for s in self._problem.program.sites if s.kind == "observed"})

    @cached_property
    def _observed(self) -> dict[str, np.ndarray]:
        problem, names = self._problem, self._observed_names

        def one(key, _row, params):
            args, kwargs = problem.arguments
            reading = lambda: Notes(self._met)  # noqa: E731
            met = trace_of(problem.model, key, params, {}, args, kwargs, reading)
            return {name: jnp.asarray(met[name]["value"]) for name in names}

        run = problem.bound.map_in_batches("observed", one)
        found = run((), self._posterior.params, key=jax.random.key(0), count=1)
        return {name: np.asarray(value)[0] for name, value in found.items()}


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


def prior_draws(posterior: Posterior, key: jax.Array, draws: int) -> dict[str, Any]:
    """Draws of the latent and deterministic sites from the model's prior."""
    return _prior_run(posterior, key, draws, ())


def _prior_run(
    posterior: Posterior, key: jax.Array, draws: int, observed: Iterable[str]
) -> dict[str, Any]:
    """Draws from the prior, and of the data where some ``observed`` sites are asked for."""
    problem = posterior.problem
    names = {site.name for site in problem.program.latent} | set(observed)
    more = {"reading": Redrawn} if observed else {}

    def one(key, _row, params):
        args, kwargs = problem.arguments
        met = trace_of(problem.model, key, params, {}, args, kwargs, **more)
        return {
            name: site["value"]
            for name, site in met.items()
            if name in names or site["type"] == "deterministic"
        }

    name = "prior and data" if observed else "prior"
    return problem.bound.map_in_batches(name, one)((), posterior.params, key=key, count=draws)


# ------------------------------------------------------------------------------ constant data


def _named_arrays(problem: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Arrays among the arguments, under the names that the model has for them."""
    found: list[tuple[str, np.ndarray]] = []
    for path, leaf in leaves_by_parameter(*problem.arguments, model=_signature(problem.model)):
        parts = columns_of(leaf) if is_table(leaf) else [("", leaf)]
        for column, x in parts:
            if isinstance(x, np.ndarray | jax.Array) or is_column(x):
                array = _plain_array(x)
                if array is not None:
                    found.append((f"{path} {column}", array))
    words = [re.findall(r"\w+", path) for path, _ in found]
    last = [w[-1] for w in words]
    for own, (_, array) in zip(words, found, strict=True):
        is_short = last.count(own[-1]) == 1 and not own[-1].isdigit()
        yield (own[-1] if is_short else "_".join(own)), array


def _signature(model: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(model)
    except (TypeError, ValueError):
        return None


def _plain_array(x: Any) -> np.ndarray | None:
    """Its numbers; None where it has none that a file of ArviZ can hold."""
    try:
        array = as_array(x) if is_column(x) else np.asarray(x)
    except ValueError:  # a column of words
        return None
    return array if array.dtype.kind in "biuf" else None


def _is_same(x: np.ndarray, data: np.ndarray) -> bool:
    return x.shape == data.shape and bool(np.allclose(x, data, 1e-6, 1e-12, equal_nan=True))
