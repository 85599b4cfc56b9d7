"""Takes a problem; gives the model's density as a function of its noise.

A number says where in its prior conditional a value lies, :math:`x = T(m + s z)` with m and s at
the parents' values. Chains, and hierarchies with little data, are nearly Gaussian in z.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions import transforms as T

from asvi.families.cells import Cells, cells_of
from asvi.families.noise import noise_shape, stand_in, standard, widths
from asvi.fitting.problem import Problem
from asvi.interpretation import Interpretation
from asvi.objective import log_density

__all__ = ["NoiseSpace"]


class NoiseSpace:
    """Layout of the latent numbers of a program in one vector."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.sites = {site.address: site for site in problem.program.latent}
        shapes = {address: noise_shape(site) for address, site in self.sites.items()}
        self.shapes = {a: self.sites[a].steps + s for a, s in shapes.items() if s is not None}
        self.size = sum(prod(shape) for shape in self.shapes.values())

    @cached_property
    def cells(self) -> Cells:
        """Core and cells of the numbers."""
        found = self._cells
        if found is None:
            raise ValueError("the latent numbers are too many for one core")
        return found

    @cached_property
    def _cells(self) -> Cells | None:
        return cells_of(self.problem.program.latent, self.shapes)

    @staticmethod
    def serves(problem: Problem) -> bool:
        """Whether the density can be had: continuous, without branches, small or in cells."""
        shapes = {s.address: noise_shape(s) for s in problem.program.latent}
        if any(shape is None for shape in shapes.values()):
            return False
        return NoiseSpace(problem)._cells is not None

    def split(self, vector: jax.Array) -> dict[str, jax.Array]:
        found, begin = {}, 0
        for address, shape in self.shapes.items():
            found[address] = jnp.reshape(vector[begin : begin + prod(shape)], shape)
            begin += prod(shape)
        return found

    def numbers(self) -> dict[str, jax.Array]:
        """The index of every latent number in the vector, in the sites' shapes."""
        return self.split(jnp.arange(self.size))

    def run(self, vector: jax.Array, params: dict[str, Any], arrays: list[Any]) -> dict[str, Any]:
        """The model at these numbers: log density, and each number's location, scale and width."""
        args, kwargs = self.problem.arguments(arrays)
        reading = _Given(self.split(vector), set(self.sites))

        def parameters(msg):
            return params.get(msg["name"]) if msg["type"] in ("param", "mutable") else None

        with (
            handlers.trace() as trace,
            handlers.seed(rng_seed=jax.random.key(0)),
            handlers.substitute(substitute_fn=parameters),
            reading,
        ):
            self.problem.model(*args, **kwargs)
        density = sum(log_density(s) for s in trace.values() if s["type"] == "sample")
        extras = reading.frame.extras
        slope = sum(jnp.sum(extras[f"slope|{address}"]) for address in self.sites)
        return {
            "log_density": density + slope,
            "loc": self._joined(extras, "loc"),
            "scale": self._joined(extras, "scale"),
            "width": self._joined(extras, "width"),
        }

    def _joined(self, extras: dict[str, Any], name: str) -> jax.Array:
        return jnp.concatenate([jnp.ravel(extras[f"{name}|{address}"]) for address in self.sites])


class _Given(Interpretation):
    """The model, its latent values made from given numbers."""

    def __init__(self, numbers: dict[str, jax.Array], latent: set[str]):
        super().__init__()
        self.given, self.latent = numbers, latent

    def thread(self, path: tuple[str, ...], length: int, reverse: bool) -> dict[str, jax.Array]:
        inside = "/".join(path) + "/"
        given = self.given if self.frame.is_root else self.frame.threaded
        return {address: x for address, x in given.items() if address.startswith(inside)}

    def visit(self, msg: dict[str, Any]) -> None:
        address = "/".join((*self.frame.path, msg["name"]))
        if address not in self.latent or msg["value"] is not None:
            return
        given = self.given if self.frame.is_root else self.frame.threaded
        prior = standard(stand_in(msg["fn"]))
        u = prior.loc + prior.scale * given[address]
        value = prior.transform(u)
        slope = jnp.sum(jnp.log(prior.scale))
        if not isinstance(prior.transform, T.IdentityTransform):
            slope = slope + jnp.sum(prior.transform.log_abs_det_jacobian(u, value))
        msg["value"] = value
        extras = self.frame.extras
        extras[f"slope|{address}"] = slope
        extras[f"loc|{address}"] = prior.loc
        extras[f"scale|{address}"] = prior.scale
        extras[f"width|{address}"] = widths(prior)
