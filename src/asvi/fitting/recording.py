"""Takes a model's noise space and data; gives its run as one traced program, to make others from.

NumPyro's handlers take most of the time that a look at a small model takes. Here they see the model
once: values, slopes, curvature and the check of the data are all had from what was recorded.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import partial_eval
from numpyro.distributions import Unit

from asvi.errors import SiteError
from asvi.fitting.noise_space import NoiseSpace
from asvi.in_numpy import Tape
from asvi.input_check import judge

__all__ = ["TOLD", "Recorded"]

TOLD = ("loc", "scale", "width")  # of each number's prior, at the others' values


class Recorded:
    """A run of the model, as a function of ``vector, centring, anchor, arrays, params``."""

    def __init__(
        self, space: NoiseSpace, given: list[Any], arrays: list[Any], params: dict[str, Any]
    ):
        """``arrays`` are the data that were ``given``, in the precision of the run."""
        self.size, self.dtype = space.size, jnp.result_type(float)
        self._usual = space.problem.dtype  # of what the model is used with later on
        self._about: dict[str, dict[str, Any]] = {}

        def run(vector, centring, anchor, arrays, params):
            seen = space.run(vector, params, arrays, centring, anchor)
            return seen["log_density"], {name: seen[name] for name in TOLD}, self._met(seen["met"])

        blank = np.zeros(space.size)
        inputs = (blank, blank, blank, arrays, params)
        trace = jax.make_jaxpr(run, return_shape=True)
        self._closed, shape = space.problem.traced(given, lambda: trace(*inputs))
        self._tree = jax.tree.structure(shape)
        self._run = jaxpr_as_fun(self._closed)
        # Derivatives are those of the density: the rest would be traced for nothing.
        jaxpr = self._closed.jaxpr
        wanted = [k == 0 for k in range(len(jaxpr.outvars))]
        alone, _ = partial_eval.dce_jaxpr(jaxpr, wanted, instantiate=True)
        self._alone = self._closed.replace(jaxpr=alone)
        self._density = jaxpr_as_fun(self._alone)

    def _met(self, trace: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Distribution and value of every site whose numbers can be given out."""
        found = {}
        for name, msg in trace.items():
            if msg["type"] != "sample" or isinstance(msg["fn"], Unit):
                continue
            about = {n: msg.get(n) for n in ("is_observed", "cond_indep_stack")}
            pair = msg["fn"], msg["value"]
            about["is_whole"] = all(map(_is_array, jax.tree.leaves(pair)))
            self._about[name] = about
            if about["is_whole"]:
                found[name] = pair
        return found

    def density(self, *inputs: Any) -> jax.Array:
        """Log density."""
        return self._density(*jax.tree.leaves(inputs))[0]

    def all_told(self, *inputs: Any) -> tuple[jax.Array, ...]:
        """Log density, and each number's location, scale and width."""
        density, told, _ = jax.tree.unflatten(self._tree, self._run(*jax.tree.leaves(inputs)))
        return density, *(told[name] for name in TOLD)

    @cached_property
    def is_plain(self) -> bool:
        """Whether NumPy knows all operations of the density, and it has no long loop."""
        try:
            return not Tape(self._alone).has_loops
        except NotImplementedError:
            return False

    @cached_property
    def tape(self) -> Tape:
        """The run by NumPy, at one point."""
        return Tape(self._closed)

    def run(self, *inputs: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """By NumPy: density, what is told of each number, and distribution and value by site."""
        return jax.tree.unflatten(self._tree, self.tape(jax.tree.leaves(inputs)))

    def is_fine(self, *data: Any) -> bool:
        """Whether nothing is wrong with data and distributions at the prior's centre and a draw.

        False also where this cannot be told so.
        """
        if not all(about["is_whole"] for about in self._about.values()):
            return False
        if not all(_fits(x, self._usual) for x in jax.tree.leaves(data)):
            return False
        blank = np.zeros(self.size)
        try:
            draw = np.random.default_rng(0).normal(size=self.size)
            center, drawn = (self.run(at, blank, blank, *data)[2] for at in (blank, draw))
            judge(center, drawn, self._about)
        except (SiteError, NotImplementedError, TypeError, ValueError):
            return False  # the whole check says what it is, if anything
        return True


def _fits(x: np.ndarray, dtype: Any) -> bool:
    """Whether no number of the data is too large for this type."""
    if not np.issubdtype(x.dtype, np.floating):
        return True
    with np.errstate(over="ignore"):
        return bool(np.all(np.isfinite(x) == np.isfinite(x.astype(dtype))))


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray | np.generic | float | int)
