r"""Takes a model with discrete sites; gives its density with these summed out, and draws of them.

Elements of discrete sites that share a log density get different *colours*, as neighbours on a map
do. The model is run once for each choice of one value a colour, all elements of a colour at their
value: a mixture of K components needs K runs, a Markov chain of K states K², however long they are.
Each log density of a run is then one entry of a table over the elements that it depends on, and
:mod:`asvi.density.enumeration.elimination` sums the tables out,

.. math:: p(x, y) = \sum_z p(x, z, y), \qquad z \sim p(z \mid x, y).

Who depends on whom is read from the model's operations
(:mod:`asvi.density.enumeration.entry_dependence`), not from its plates: what a program does with a
discrete value is its own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asvi.density.constant_folding import fold_constants
from asvi.density.enumeration.elimination import Elimination, Factors, TooLarge
from asvi.density.enumeration.entry_dependence import TooLong, find_entry_dependence
from asvi.density.enumeration.supports import support_of_site
from asvi.density.settings import DensitySettings
from asvi.errors import AsviError
from asvi.program.control_flow.handlers import without_handlers
from asvi.program.program import Program
from asvi.program.run_trace import Trace, log_densities, trace_of
from asvi.program.site import Site
from asvi.program.traced import Traced

__all__ = ["Enumerated", "NotEnumerable", "enumerate_sites"]

Values = Mapping[str, Any]


class NotEnumerable(Exception):
    """The discrete sites cannot be summed out; says why."""


class _Entries(NamedTuple):
    """Entries of a table's factors: of which run, and which of a site's log densities."""

    site: str
    runs: np.ndarray  # (factors, values of each element ...)
    places: np.ndarray  # (factors,)


class Enumerated:
    """How the discrete sites of a program are summed out."""

    def __init__(
        self,
        program: Program,
        model: Callable,
        args: tuple,
        kwargs: dict[str, Any],
        settings: DensitySettings = DensitySettings(),
    ):
        self.program, self.settings = program, settings
        self.sites = [site for site in program.latent if site.is_discrete]
        self.continuous = [site for site in program.latent if not site.is_discrete]
        self.supports = {site.name: _support(program, site, settings) for site in self.sites}
        self.shapes = {site.name: program.values[site.name] for site in self.sites}
        sizes = [int(np.prod(self.shapes[site.name].shape)) for site in self.sites]
        self.size = sum(sizes)
        if self.size > settings.enumeration.max_elements:
            raise NotEnumerable(f"{self.size:,} discrete elements are too many")
        self.counts = np.repeat([len(self.supports[s.name]) for s in self.sites], sizes)
        scopes = self._scopes(model, args, kwargs)
        self._color(scopes)
        self._tabulate(scopes)

    # ------------------------------------------------------------------------------- structure

    def _scopes(self, model: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """For each site whose log densities depend on elements: bits (densities, elements)."""
        free = {site.name: self.program.values[site.name] for site in self.continuous}

        def densities(discrete: Values, others: Values) -> dict[str, jax.Array]:
            return self._densities(model, {**others, **discrete}, {}, args, kwargs)

        traced = Traced(densities, self.shapes, free)
        settings = self.settings
        jaxpr, consts = fold_constants(traced.jaxpr, traced.consts, settings.evaluator)
        order = jax.tree.leaves({n: n for n in self.shapes})
        try:
            followed = range(len(order))
            found = find_entry_dependence(jaxpr, consts, followed, settings.enumeration)
        except TooLong:
            raise NotEnumerable(
                "the model is too long to see what hangs on its discrete sites"
            ) from None
        named = jax.tree.unflatten(traced.tree, found)
        begins = dict(zip(order, np.cumsum([0, *(self._size(n) for n in order)])))
        columns = np.concatenate([begins[n] + np.arange(self._size(n)) for n in self.shapes])
        return {n: x[:, columns] for n, x in named.items() if x.nnz}

    def _size(self, name: str) -> int:
        return int(np.prod(self.shapes[name].shape))

    def _color(self, scopes: dict[str, Any]) -> None:
        """Colours, and what all runs take for each element: (runs, elements)."""
        near: dict[int, set[int]] = {}
        for bits in scopes.values():
            for scope in {tuple(row) for row in _rows(bits) if len(row) > 1}:
                for e in scope:
                    near.setdefault(e, set()).update(scope)
        best: tuple[int, np.ndarray, np.ndarray] | None = None
        by_degree = sorted(range(self.size), key=lambda e: -len(near.get(e, ())))
        for order in (range(self.size), by_degree):
            color = np.full(self.size, -1)
            for e in order:
                taken = {color[n] for n in near.get(e, ())}
                color[e] = next(c for c in range(self.size) if c not in taken)
            values = np.array([self.counts[color == c].max() for c in range(color.max() + 1)])
            runs = int(np.prod(values, dtype=float).clip(0, 1e12))
            if best is None or runs < best[0]:
                best = runs, color, values
        assert best is not None
        runs, self.color, self.values = best
        most = self.settings.enumeration.max_runs
        if runs > most:
            raise NotEnumerable(
                f"its discrete elements hang together so that {runs:,} runs of the model would be "
                f"needed for one density, and {most:,} are the most"
            )
        grid = np.stack([x.ravel() for x in np.indices(tuple(self.values))], -1)
        self.grid = np.minimum(grid[:, self.color], self.counts - 1)

    def _tabulate(self, scopes: dict[str, Any]) -> None:
        """Factors, in groups of like tables, and where their entries come from."""
        groups: dict[tuple[str, tuple[int, ...]], tuple[list[int], list[np.ndarray]]] = {}
        self.single: dict[str, np.ndarray] = {}  # densities that depend on no element
        many = sum(bits.shape[0] for bits in scopes.values())
        limits = self.settings.enumeration
        if many > limits.max_densities:
            raise NotEnumerable(f"{many:,} log densities hang on discrete sites")
        for name, bits in scopes.items():
            rows = _rows(bits)
            self.single[name] = np.array([k for k, row in enumerate(rows) if not len(row)], int)
            for place, row in enumerate(rows):
                if len(row):
                    key = name, tuple(int(self.counts[e]) for e in row)
                    places, found = groups.setdefault(key, ([], []))
                    places.append(place)
                    found.append(row)
        self.entries: list[_Entries] = []
        factors = []
        for (name, counts), (places, found) in groups.items():
            elements = np.array(found)
            if (
                np.prod(counts, dtype=float) * len(elements)
                > limits.max_runs * limits.max_densities
            ):
                raise NotEnumerable("tables of its discrete elements are too large")
            runs = np.zeros((len(elements), *counts), int)
            weights = np.append(np.cumprod(self.values[::-1])[::-1][1:], 1)
            for axis, count in enumerate(counts):
                along = np.arange(count).reshape(
                    [-1 if a == axis else 1 for a in range(len(counts))]
                )
                weight = weights[self.color[elements[:, axis]]]
                runs = runs + weight.reshape(-1, *[1] * len(counts)) * along
            self.entries.append(_Entries(name, runs, np.array(places)))
            factors.append(Factors(elements, counts))
        try:
            self.elimination = Elimination(self.counts, factors, limits)
        except TooLarge:
            raise NotEnumerable(
                "its discrete elements hang together too closely to be summed out"
            ) from None

    # ------------------------------------------------------------------------------ with numbers

    def reference(self) -> dict[str, np.ndarray]:
        """A value of each discrete site, for a run that asks for its continuous ones alone."""
        return self._made(np.asarray(self.counts // 2))

    def _made(self, which: Any) -> dict[str, Any]:
        """Values of the sites, (..., *shape), of which values elements (..., elements) have."""
        found, begin = {}, 0
        for site in self.sites:
            shape, size = self.shapes[site.name], self._size(site.name)
            own = which[..., begin : begin + size]
            support = self.supports[site.name].astype(shape.dtype)
            values = support[own] if isinstance(own, np.ndarray) else jnp.asarray(support)[own]
            found[site.name] = values.reshape(own.shape[:-1] + shape.shape)
            begin += size
        return found

    def which(self, values: Values) -> jax.Array:
        """Which value each element has, (elements,)."""
        found = []
        for site in self.sites:
            support = jnp.asarray(self.supports[site.name])
            own = jnp.ravel(jnp.asarray(values[site.name]))
            found.append(jnp.argmax(own[:, None] == support.astype(own.dtype), -1))
        return jnp.concatenate(found)

    def summed(
        self, model: Callable, values: Values, params: Values, args: tuple, kwargs: dict[str, Any]
    ) -> tuple[jax.Array, list[jax.Array]]:
        """Log density of data and continuous ``values``, and tables to draw the others from."""

        def densities(discrete: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            met = self._densities(model, {**values, **discrete}, params, args, kwargs)
            dependent = {n: jnp.ravel(x) for n, x in met.items() if n in self.single}
            return dependent, {n: jnp.sum(x) for n, x in met.items() if n not in self.single}

        grid = {n: jnp.asarray(x) for n, x in self._made(self.grid).items()}
        found, apart = jax.vmap(densities, out_axes=(0, None))(grid)
        total = sum(apart.values(), jnp.zeros(()))
        total = total + sum(jnp.sum(x[0, self.single[n]]) for n, x in found.items())
        tables = [_table(found[e.site], e) for e in self.entries]
        own, kept = self.elimination.summed(tables)
        return total + own, kept

    def drawn(self, kept: list[jax.Array], uniform: jax.Array) -> tuple[dict[str, Any], jax.Array]:
        """Discrete sites given all others, by uniform numbers, and their log probability."""
        which, log_prob = self.elimination.drawn(kept, uniform)
        return self._made(which), log_prob

    def log_prob(self, kept: list[jax.Array], values: Values) -> jax.Array:
        """Log probability of the discrete sites' values, given all others."""
        return self.elimination.log_prob(kept, self.which(values))

    def _densities(
        self, model: Callable, values: Values, params: Values, args: tuple, kwargs: dict[str, Any]
    ) -> dict[str, jax.Array]:
        """Log densities of all sites of a run, one for each element."""
        with without_handlers():
            met = trace_of(model, jax.random.key(0), params, values, args, kwargs)
        self._check_data(met)
        return {n: log_densities(m) for n, m in met.items() if m["type"] == "sample"}

    def _check_data(self, met: Trace) -> None:
        latent = {site.name for site in self.program.latent}
        for name, msg in met.items():
            if msg["type"] == "sample" and not msg["is_observed"] and name not in latent:
                raise AsviError(
                    f"site {name!r} has no data here, and what the discrete sites are depends on "
                    "them: draws of the guide are for the data of the fit.\n"
                    "Write instead:\n    result.posterior.predictive(key, x_new, None)"
                )


def enumerate_sites(
    program: Program,
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    settings: DensitySettings = DensitySettings(),
) -> Enumerated | None:
    """How the model's discrete sites are summed out; None where it has none.

    Raises :class:`NotEnumerable` where they cannot be.
    """
    if not any(site.is_discrete for site in program.latent):
        return None
    return Enumerated(program, model, args, kwargs, settings)


def _support(program: Program, site: Site, settings: DensitySettings) -> np.ndarray:
    found = support_of_site(program, site, settings.evaluator)
    if found is None:
        raise NotEnumerable(
            f"discrete site {site.name!r} has infinitely many values, or a number of them that "
            "hangs on a latent"
        )
    return found


def _rows(bits: Any) -> list[np.ndarray]:
    """Columns that are set, for each row, in rising order."""
    bits.sort_indices()
    return np.split(bits.indices, bits.indptr[1:-1])


def _table(found: jax.Array, entries: _Entries) -> jax.Array:
    """A table for each factor, from log densities (runs, densities)."""
    first = entries.runs[0]
    if np.array_equal(np.broadcast_to(first, entries.runs.shape), entries.runs):
        rows = jnp.moveaxis(found[first.ravel()], 0, 1)  # like runs for all: whole rows
        return rows[entries.places].reshape(len(rows[entries.places]), *first.shape)
    places = entries.places.reshape(-1, *[1] * first.ndim)
    return found[entries.runs, places]
