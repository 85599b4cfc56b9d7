"""Takes a model and its arguments; gives what its plates and observed sites hold in this run.

A guide that reads the data must know them before it draws, and a model states them last. So the
model is run once beforehand, its latent sites at their priors' centres, to see which rows of the
data a subsampled plate takes this time and what the observed sites hold there. Compiled, nothing of
this run is left but the taking of rows.

>>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
>>> def model(y):
...     with numpyro.plate("point", 4):
...         z = numpyro.sample("z", dist.Normal(0.0, 1.0))
...         numpyro.sample("y", dist.Normal(z, 1.0), obs=y)
>>> found = collect_model_data(model, (jnp.arange(4.0),), {})
>>> found.observed["y"].value.tolist(), found.plates["point"].size
([0.0, 1.0, 2.0, 3.0], 4)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions import Unit
from numpyro.primitives import _PYRO_STACK

from asvi.program.control_flow.handlers import handler_stack
from asvi.program.control_flow.interpretation import Interpretation
from asvi.program.prior_center import prior_center
from asvi.program.statements.ordinary import is_fixed

__all__ = ["ModelData", "Observation", "PlateSubsample", "collect_model_data"]


@dataclass(frozen=True)
class Observation:
    """The data of one site in this run: ``value`` of shape ``steps + batch + event``."""

    value: jax.Array
    event_dim: int
    plates: dict[str, int]
    """The axes of the plates around it, from the right of the batch shape."""

    def along(self, plate: str) -> jax.Array:
        """The data with the plate's axis first."""
        return jnp.moveaxis(self.value, self.plates[plate] - self.event_dim, 0)

    def inner(self) -> int:
        """Axes besides the plate's own and the event's: a point's several observations."""
        return jnp.ndim(self.value) - 1 - self.event_dim


@dataclass(frozen=True)
class PlateSubsample:
    """A plate in this run: its size, and the rows that it takes (None: all of them)."""

    size: int
    rows: jax.Array | None

    @property
    def taken(self) -> int:
        return self.size if self.rows is None else len(self.rows)


@dataclass
class ModelData:
    """What one run of the model holds."""

    observed: dict[str, Observation] = field(default_factory=dict)
    plates: dict[str, PlateSubsample] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    """Sites that hold no data in this run, though they did when the guide was set up."""


class _DataCollection(Interpretation):
    def __init__(self, observed: frozenset[str]):
        super().__init__()
        self.known, self.found = observed, ModelData()

    def visit(self, msg: dict[str, Any]) -> None:
        name, fn = msg["name"], msg["fn"]
        if is_fixed(msg):
            pass
        elif msg["is_observed"] and not isinstance(fn, Unit) and self.body.is_root:
            value = jnp.asarray(msg["value"])
            shape = jnp.broadcast_shapes(value.shape, fn.shape())
            plates = {frame.name: frame.dim for frame in msg["cond_indep_stack"]}
            self.found.observed[name] = Observation(
                jnp.broadcast_to(value, shape), fn.event_dim, plates
            )
        elif not msg["is_observed"]:
            if name in self.known:
                self.found.missing = (*self.found.missing, name)
            value = prior_center(fn)
            msg["value"] = fn.sample(jax.random.key(0)) if value is None else value
        msg["stop"] = True

    def reports(self, msg: dict[str, Any]) -> bool:
        return False

    def visit_other(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "deterministic":
            msg["stop"] = True

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        super().postprocess_message(msg)
        if msg["type"] == "plate" and self.body.is_root:
            size, part = msg["args"]
            rows = msg["value"] if part is not None and part != size else None
            self.found.plates[msg["name"]] = PlateSubsample(size, rows)


def collect_model_data(
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    observed: frozenset[str] = frozenset(),
) -> ModelData:
    """Plates and data of ``model(*args, **kwargs)`` under the handlers around, but traces.

    ``observed`` are the sites that held data when the guide was set up.
    """
    outside = [handler for handler in _PYRO_STACK if not isinstance(handler, handlers.trace)]
    with handler_stack(outside), _DataCollection(observed) as run:
        model(*args, **kwargs)
    return run.found
