"""Takes what a search found; gives whether NumPyro says the same of it, before a user sees it.

The library's density is that of :func:`numpyro.infer.util.log_density`, everywhere: so NumPyro is
asked at a few draws, whatever the search was made of. A difference is a fault of this library and
ends in an :class:`~asvi.errors.InternalError`. That single precision does not hold a model's
numbers is no fault of ours; it is measured, and the verdict says so.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from numpyro import handlers
from numpyro.distributions.distribution import validation_enabled
from numpyro.infer.util import log_density

from asvi.density.constant_folding import fold_constants
from asvi.density.double_precision import in_double, wide_type
from asvi.density.numpy_backend import numpy_function
from asvi.density.refusal import Refusal
from asvi.density.settings import EvaluatorSettings
from asvi.errors import InternalError
from asvi.fitting.problem import Problem
from asvi.fitting.settings import NumpyroCheckSettings
from asvi.program.compiling import Compiled, Store
from asvi.program.control_flow.handlers import without_handlers
from asvi.program.control_flow.interpretation import Interpretation
from asvi.program.program_key import key_of
from asvi.program.traced import Traced, evaluate

__all__ = ["NumpyroCheck", "check_elbo"]


class NumpyroCheck:
    """NumPyro's density of a model at given draws, or its log ratios to the guide's."""

    def __init__(
        self,
        problem: Problem,
        params: dict[str, Any],
        values: dict[str, Any],
        beside_guide: bool = False,
        settings: NumpyroCheckSettings = NumpyroCheckSettings(),
    ):
        """``values`` and ``params`` are examples: only their shapes count."""
        self.settings = settings
        args, kwargs = problem.arguments
        guide: Any = problem.guide

        def numpyros(values: dict[str, Any], model: Any) -> Any:
            model = handlers.seed(model, jax.random.key(0))
            with without_handlers(), validation_enabled(False):
                return log_density(model, args, kwargs, values)

        model = problem.model
        if not _reaches(problem, lambda given: numpyros(given, model)[0], values):
            model = Interpretation(model)

        def ratio(values: dict[str, Any], params: dict[str, Any]) -> Any:
            own_params = {n: params[n] for n in problem.program.trained if n in params}
            density, trace = numpyros(values | own_params, model)
            own: Any = jnp.zeros(())
            if beside_guide:
                with without_handlers(), validation_enabled(False):
                    own = guide.log_density(params, values, args, kwargs)
            sites = [m for m in trace.values() if m["type"] == "sample"]
            return density, own, sum(abs(m["fn"].log_prob(m["value"]).sum()) for m in sites)

        traced = Traced(ratio, *jax.tree.map(_canonical, (values, params)))
        limits = problem.bound.settings.evaluator
        jaxpr, consts = fold_constants(traced.jaxpr, traced.consts, limits)
        double = not jax.config.read("jax_enable_x64")
        single, exact = _RUNNERS.get(
            (key_of(jaxpr), double, limits),
            lambda: (_runner(jaxpr, False, limits), _runner_in_double(jaxpr, double, limits)),
        )
        self._single = single, [np.asarray(c) for c in consts]
        self.is_exact = not double or exact is not None
        self._double = self._single if exact is None else (exact, [wide_type(c) for c in consts])

    def __call__(self, values: dict[str, Any], params: dict[str, Any], said: np.ndarray) -> float:
        """Nats lost to rounding, at draws (draws, ...) whose log ratios are ``said`` (draws,).

        Raises where NumPyro says otherwise.
        """
        inputs = [
            jax.tree.leaves(({n: x[k] for n, x in values.items()}, params))
            for k in range(len(said))
        ]
        exact, size = self._ratios(self._double, inputs)
        off = np.abs(exact - said)
        settings = self.settings
        relative = settings.max_error if self.is_exact else settings.max_rounded_error
        allowed = relative * (1 + size)
        if np.any(off > allowed) and np.all(np.isfinite(said)):
            k = int(np.argmax(off - allowed))
            raise InternalError(
                f"log p - log q of a draw was said to be {said[k]:.6g}, and is {exact[k]:.6g} by "
                "numpyro.infer.util.log_density"
            )
        if self._double is self._single:
            return 0.0
        return float(np.max(np.abs(self._ratios(self._single, inputs)[0] - exact)))

    @staticmethod
    def _ratios(runner: tuple[Any, Any], inputs: list[list[Any]]) -> tuple[np.ndarray, np.ndarray]:
        """Log ratios, and the size of the terms that they are sums of, (draws,) each."""
        run, consts = runner
        rows = np.array([[float(x) for x in run([*consts, *some])] for some in inputs])
        return rows[:, 0] - rows[:, 1], rows[:, 2] + np.abs(rows[:, 1])


def _reaches(problem: Problem, density: Any, values: dict[str, Any]) -> bool:
    """Whether NumPyro's values reach the sites inside bodies of control flow.

    They do not in a scan in a scan, nor where a scope renames the sites of a scan from outside.
    """
    if any(len(site.steps) > 1 for site in problem.program.sites):
        return False
    inside = {site.name: values[site.name] for site in problem.program.latent if site.bodies}
    if not inside:
        return True
    # JAX's own arrays: a program may ask for entries that only a run knows.
    others = {name: jnp.asarray(x) for name, x in values.items() if name not in inside}
    traced = Traced(lambda some: density({**others, **some}), jax.tree.map(_canonical, inside))
    read = {v for eqn in traced.jaxpr.eqns for v in eqn.invars if not isinstance(v, Literal)}
    return all(v in read for v in traced.jaxpr.invars[len(traced.consts) :])


def _canonical(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(np.shape(x), jax.dtypes.canonicalize_dtype(x.dtype))


#: Functions of programs that were checked last.
_RUNNERS = Store(32)


def _runner_in_double(jaxpr: Any, double: bool, settings: EvaluatorSettings) -> Any:
    """The program in double precision; None where it is so already, or has types of its own."""
    wide = in_double(jaxpr) if double else Refusal("it is in double precision already")
    return None if isinstance(wide, Refusal) else _runner(wide, True, settings)


def _runner(jaxpr: Any, double: bool, settings: EvaluatorSettings) -> Any:
    """A function of a list of inputs: by NumPy, or compiled where NumPy does not know how."""
    types = [v.aval.dtype for v in jaxpr.invars]

    def cast(inputs: list[Any]) -> list[Any]:
        return [np.asarray(x, dtype) for x, dtype in zip(inputs, types, strict=True)]

    by_numpy = numpy_function(ClosedJaxpr(jaxpr, []), settings=settings)
    if by_numpy is not None:
        return lambda inputs: by_numpy(*cast(inputs))
    compiled = Compiled(lambda *xs: evaluate(jaxpr, [], xs), once=True)

    def run(inputs: list[Any]) -> list[Any]:
        with jax.enable_x64(double or bool(jax.config.read("jax_enable_x64"))):
            return compiled(*cast(inputs))

    return run


def check_elbo(
    elbo: float,
    error: float,
    log_ratios: np.ndarray,
    settings: NumpyroCheckSettings = NumpyroCheckSettings(),
) -> bool:
    """Whether fresh log ratios of the posterior have this mean, as far as chance tells."""
    ratios = np.asarray(log_ratios, float)
    if not (np.isfinite(elbo) and np.isfinite(ratios).all()):
        return True
    own_error = ratios.std(ddof=1) / np.sqrt(len(ratios))
    chance = settings.max_elbo_nat + settings.max_elbo_errors * np.hypot(error, own_error)
    return bool(abs(ratios.mean() - elbo) <= chance)
