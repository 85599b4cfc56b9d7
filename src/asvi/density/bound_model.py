"""Takes a model and its arguments; gives it as it was looked at, with all that is compiled of it.

The model is called with the user's own objects wherever a program of it is recorded; what is
compiled is found again by what was recorded (:mod:`asvi.program.compiling`), so that a model with
new data of the same shapes compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any

import jax

from asvi.density.many_draws import ManyDraws
from asvi.density.settings import DensitySettings
from asvi.program.arguments import Arguments, check_arrays
from asvi.program.changes import Changes
from asvi.program.compiling import Compiled
from asvi.program.improper import Improper, find_improper
from asvi.program.program import Program
from asvi.program.run_trace import log_density, trace_of
from asvi.program.statements.masks import complete_model
from asvi.program.traced import Traced

__all__ = ["BoundModel"]


class BoundModel:
    """A model with its arguments.

    :param check: whether the arguments are a user's, and not stand-ins of their shapes.
    :param settings: limits of all that is made of its density.

    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> bound = BoundModel(model, (2.0,), {})
    >>> [site.name for site in bound.program.latent]
    ['mu']
    """

    def __init__(
        self,
        model: Callable,
        args: tuple,
        kwargs: dict[str, Any],
        check: bool = True,
        settings: DensitySettings = DensitySettings(),
    ):
        self.settings = settings
        self.arguments = Arguments(args, kwargs)
        check_arrays(args, kwargs)
        survey = Program.of if check else Program.unchecked
        self.given, self.program = self.arguments.calling(
            model, lambda model: survey(model, *args, **kwargs)
        )
        given = self.given
        self.changes = Changes(self.program, lambda: survey(given, *args, **kwargs))
        if check:
            self.changes.refuse_another()
        #: The model, its density that of a distribution; ``given`` is the user's own.
        self.model = given
        self.improper: dict[str, Improper] = {}
        """Latent numbers without a posterior, by site."""
        self.is_fitted = False
        self._programs: dict[Any, Any] = {}
        self._double = bool(jax.config.read("jax_enable_x64"))

    def complete(self) -> None:
        """Let the model's density be that of a distribution at these arguments."""
        self.improper = find_improper(self.given, self.program, *self.arguments)
        self.model = complete_model(self.given, self.improper)

    def at(self, args: tuple, kwargs: dict[str, Any], complete: bool = True) -> BoundModel:
        """The same model, called with other arguments."""
        other = copy(self)
        other.arguments, other._programs = Arguments(args, kwargs), {}
        if complete:
            check_arrays(args, kwargs)
            other.complete()
        return other

    @cached_property
    def digest(self) -> str:
        """Model and data in a line that is the same in every process, and no other's."""

        def density(key: jax.Array) -> jax.Array:
            met = trace_of(self.model, key, {}, {}, *self.arguments)
            return sum(log_density(s) for s in met.values() if s["type"] == "sample")

        return Traced(density, jax.random.key(0)).digest

    # ------------------------------------------------------------------------------ its programs

    def kept(self, name: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made once."""
        if name not in self._programs:
            self._programs[name] = make()
        return self._programs[name]

    def jit(self, name: Any, make: Callable[[], Callable]) -> Compiled:
        """A compiled function of this model, made once."""
        return self.kept(
            name, lambda: Compiled(make(), before=self._unchanged, double=self._double)
        )

    def map_in_batches(self, name: str, one: Callable) -> ManyDraws:
        """``one(key, draw, *rest)``, a function of this model, to be had at many draws."""
        return self.kept(
            ("over draws", name),
            lambda: ManyDraws(one, self._unchanged, self._double, self.settings.evaluator),
        )

    def compile_ahead(self, name: Any, make: Callable[[], Callable], *inputs: Any) -> None:
        """Begin to compile, beside what else goes on, for inputs of these shapes."""
        self.jit(name, make).begin(*inputs)

    def _unchanged(self) -> None:
        """Raise where a fitted model reads other numbers now than it did then."""
        if self.is_fitted:
            self.changes.refuse_since_fit()
