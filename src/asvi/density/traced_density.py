"""Takes a model's noise space and data; gives its run as one traced program, to make others from.

NumPyro's handlers take most of the time that a run of a small model takes. Here they see the model
once: values, slopes, curvature and the check of the data are all had from what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from typing import Any, Protocol

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import partial_eval
from numpyro.distributions import Unit

from asvi.density.constant_folding import fold_constants
from asvi.density.cost import work_of
from asvi.density.double_precision import in_double, wide_type
from asvi.density.numpy_backend import numpy_function
from asvi.density.refusal import Refusal
from asvi.density.settings import EvaluatorSettings
from asvi.errors import SiteError
from asvi.program.compiling import Compiled, Store
from asvi.program.input_check import raise_if_invalid
from asvi.program.program_key import key_of
from asvi.program.traced import Traced, remake

__all__ = ["PRIOR_MOMENTS", "VOLUME", "TracedDensity"]

PRIOR_MOMENTS = ("loc", "scale", "width")  # of each number's prior, at the others' values
VOLUME = ""  # no site's name: log volume of the values over that of the numbers


class Space(Protocol):
    """A model over numbers in one vector, as :meth:`NoiseSpace.run` tells it."""

    @property
    def size(self) -> int: ...

    @property
    def run(self) -> Callable[..., dict[str, Any]]: ...


class DensityProgram:
    """What all data of one recorded model share: the model's operations, and programs of them."""

    def __init__(self, closed: Any, tree: Any, settings: EvaluatorSettings):
        self.closed, self.tree, self.settings = closed, tree, settings
        outputs = tree.num_leaves
        # Derivatives are those of the density: the rest would be traced for nothing.
        wanted = [k == 0 for k in range(outputs)]
        alone, _ = partial_eval.dce_jaxpr(closed.jaxpr, wanted, instantiate=True)
        self.alone = ClosedJaxpr(remake(alone), [])
        self._run, self._density = jaxpr_as_fun(closed), jaxpr_as_fun(self.alone)
        self.made: dict[Any, Any] = {}

    def density(self, *inputs: Any) -> jax.Array:
        """Log density."""
        return self._density(*jax.tree.leaves(inputs))[0]

    def density_and_prior_moments(self, *inputs: Any) -> tuple[jax.Array, ...]:
        """Log density, and each number's location, scale and width."""
        found = self._run(*jax.tree.leaves(inputs))
        density, prior_moments, _, _ = jax.tree.unflatten(self.tree, found)
        return density, *(prior_moments[name] for name in PRIOR_MOMENTS)

    def values(self, *inputs: Any) -> dict[str, Any]:
        """Values of latent and deterministic sites, and the log volume of the former."""
        found = self._run(*jax.tree.leaves(inputs))
        return jax.tree.unflatten(self.tree, found)[3]

    def kept(self, name: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made once for all data."""
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    @cached_property
    def at_a_point(self) -> Callable:
        """The whole run at a list of inputs: by NumPy, compiled where it does not know how."""
        by_numpy = numpy_function(self.closed, settings=self.settings)
        if by_numpy is not None:
            return lambda inputs: by_numpy(*inputs)
        compiled = Compiled(lambda *xs: self._run(*xs), once=True)
        types = [v.aval.dtype for v in self.closed.jaxpr.invars]
        wide = self.closed.jaxpr.outvars[0].aval.dtype == np.float64

        def run(inputs: list[Any]) -> list[Any]:
            with jax.enable_x64(True) if wide else nullcontext():
                return compiled(*map(np.asarray, inputs, types))

        return run

    @cached_property
    def has_own_slopes(self) -> bool:
        """Whether the model has functions whose slopes have no slopes."""
        return any("custom_vjp" in eqn.primitive.name for eqn in self.alone.jaxpr.eqns)

    @cached_property
    def is_plain(self) -> bool:
        """Whether NumPy evaluates the density, and it has no long loop."""
        by_numpy = numpy_function(self.alone, settings=self.settings)
        return by_numpy is not None and not by_numpy.has_loops


_RECORDED = Store(32)


class TracedDensity:
    """A run of the model, as a function of ``vector, centring, anchor, consts, params``.

    The model is recorded once, in the precision in which the user runs it; ``double`` gives the
    same program more digits. What the data alone decide is computed beforehand and kept in
    ``consts``. Programs that are made of it are kept for later data (:attr:`program`).
    """

    def __init__(
        self,
        size: int,
        program: DensityProgram,
        consts: list[Any],
        site_facts: dict[str, dict[str, Any]],
    ):
        self.size, self.program, self.consts, self._site_facts = size, program, consts, site_facts
        self.dtype = program.closed.jaxpr.outvars[0].aval.dtype

    @classmethod
    def build(
        cls,
        space: Space,
        params: dict[str, Any],
        double: bool,
        settings: EvaluatorSettings = EvaluatorSettings(),
    ) -> TracedDensity | Refusal:
        """The density; refused where it is to have more digits, and types are written into it."""
        site_facts: dict[str, dict[str, Any]] = {}

        def run(vector, centring, anchor, params):
            seen = space.run(vector, params, centring, anchor)
            prior_moments, met = {name: seen[name] for name in PRIOR_MOMENTS}, seen["met"]
            values = seen["values"] if "values" in seen else _values(met)
            values = {VOLUME: seen["log_volume"], **values}
            return seen["log_density"], prior_moments, _note_sites(met, site_facts), values

        blank = np.zeros(space.size)
        traced = Traced(run, blank, blank, blank, params)
        jaxpr, consts = fold_constants(traced.jaxpr, traced.consts, settings)
        # Constants are inputs: one program serves all data.
        count, rest = len(consts), len(jaxpr.invars) - len(jax.tree.leaves(params))
        first, inner, last = (
            jaxpr.invars[some] for some in (slice(count), slice(count, rest), slice(rest, None))
        )
        jaxpr = remake(jaxpr, invars=[*inner, *first, *last])
        double = double and not jax.config.read("jax_enable_x64")

        def program() -> DensityProgram | Refusal:
            wanted = in_double(jaxpr) if double else jaxpr
            if isinstance(wanted, Refusal):
                return wanted
            return DensityProgram(ClosedJaxpr(wanted, []), traced.tree, settings)

        key = key_of(jaxpr, rules=2), double, traced.tree, settings
        found: DensityProgram | Refusal = _RECORDED.get(key, program)
        if isinstance(found, Refusal):
            return found
        consts = [wide_type(c) if double else np.asarray(c) for c in consts]
        return cls(space.size, found, consts, site_facts)

    def typed(self, params: dict[str, Any]) -> dict[str, Any]:
        """Parameters in the precision of the program."""
        return {n: jax.tree.map(lambda x: np.asarray(x, self.dtype), p) for n, p in params.items()}

    @cached_property
    def work(self) -> float:
        """Numbers that operations make at one point."""
        return work_of(self.program.alone.jaxpr)

    @property
    def is_plain(self) -> bool:
        """Whether NumPy knows all operations of the density, and it has no long loop."""
        return self.program.is_plain

    def run(self, *inputs: Any) -> tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Density, prior moments of each number, distribution and value by site, and values."""
        return jax.tree.unflatten(
            self.program.tree, self.program.at_a_point(jax.tree.leaves(inputs))
        )

    def is_fine(self, params: dict[str, Any]) -> bool:
        """Whether nothing is wrong with data and distributions at the prior's centre and a draw.

        False also where this cannot be seen so: the whole check then says what it is, if anything.
        """
        if not all(facts["is_whole"] for facts in self._site_facts.values()):
            return False
        blank = np.zeros(self.size)
        draw = np.random.default_rng(0).normal(size=self.size)
        center, drawn = (self.run(at, blank, blank, self.consts, params)[2] for at in (blank, draw))
        try:
            raise_if_invalid(center, drawn, self._site_facts)
        except SiteError:
            return False
        return True


def _note_sites(
    trace: dict[str, Any], site_facts: dict[str, dict[str, Any]]
) -> dict[str, tuple[Any, Any]]:
    """Distribution and value of every site whose numbers can be given out; fills ``site_facts``."""
    found = {}
    for name, msg in trace.items():
        if msg["type"] != "sample" or isinstance(msg["fn"], Unit):
            continue
        facts = {n: msg.get(n) for n in ("is_observed", "cond_indep_stack")}
        pair = msg["fn"], msg["value"]
        facts["is_whole"] = all(map(_is_array, jax.tree.leaves(pair)))
        site_facts[name] = facts
        if facts["is_whole"]:
            found[name] = pair
    return found


def _values(trace: dict[str, Any]) -> dict[str, Any]:
    """Of latent and deterministic sites, as far as they are numbers."""
    return {
        name: msg["value"]
        for name, msg in trace.items()
        if (msg["type"] == "deterministic" and _is_array(msg["value"]))
        or (msg["type"] == "sample" and not msg["is_observed"] and not isinstance(msg["fn"], Unit))
    }


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray | np.generic | float | int)
