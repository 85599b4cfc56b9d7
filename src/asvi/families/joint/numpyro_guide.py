"""Takes a guide of NumPyro's; gives a family that is made of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import jax
import numpyro.infer.autoguide
from numpyro.distributions import biject_to
from numpyro.infer.autoguide import AutoContinuous, AutoDelta, AutoGuide, AutoNormal

from asvi.errors import FamilyError
from asvi.families.guide_protocol import ForeignGuide
from asvi.families.protocol import JointFamily, OwnObject
from asvi.program.run_trace import joint_log_density, trace_of

__all__ = ["NumPyroGuide"]


class NumPyroGuide(JointFamily):
    """The family of a guide of NumPyro's, given by its class or as an example.

    Of an example the settings are taken; its own model is not looked at.

    >>> from numpyro.infer.autoguide import AutoDiagonalNormal
    >>> NumPyroGuide(AutoDiagonalNormal)
    NumPyroGuide(AutoDiagonalNormal)
    """

    def __init__(self, guide: AutoGuide | type[AutoGuide]):
        kind = guide if inspect.isclass(guide) else type(guide)
        if issubclass(kind, AutoDelta) or not issubclass(kind, AutoContinuous | AutoNormal):
            raise FamilyError(
                f"{kind.__name__} has no density that draws could be judged by.\n"
                "Write instead:\n    asvi.fit(model, y, family=AutoMultivariateNormal)"
            )
        self.example = guide

    def __repr__(self) -> str:
        return f"NumPyroGuide({self.name})"

    @property
    def name(self) -> str:
        kind = self.example if inspect.isclass(self.example) else type(self.example)
        return kind.__name__

    def config(self) -> dict[str, Any]:
        """The class by its name, if it is one of NumPyro's own."""
        known = getattr(numpyro.infer.autoguide, self.name, None) is self.example
        return {"guide": self.name if known else OwnObject(self.name)}

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> NumPyroGuide:
        """The family of NumPyro's class of this name."""
        return cls(getattr(numpyro.infer.autoguide, settings["guide"]))

    def guide(self, model: Callable, prefix: str = "auto") -> Any:
        if inspect.isclass(self.example):
            made = self.example(model, prefix=prefix)
        else:
            made = copy(self.example)
            made.model, made.prefix, made.prototype_trace = model, prefix, None
        return SiteBySite(made, self) if isinstance(made, AutoNormal) else ForeignGuide(made, self)


class SiteBySite(ForeignGuide):
    """A guide of NumPyro's that draws each site's free value at a site of its own."""

    def log_density(
        self, params: dict[str, Any], values: dict[str, Any], args: tuple, kwargs: dict[str, Any]
    ) -> jax.Array:
        drawn = trace_of(self.guide, jax.random.key(0), params, {}, args, kwargs)
        free = {}
        for name in self._init_locs:
            auxiliary = f"{name}_unconstrained"
            if auxiliary in drawn and drawn[auxiliary]["infer"].get("is_auxiliary"):
                transform = biject_to(self.prototype_trace[name]["fn"].support)
                free[auxiliary] = transform.inv(values[name])
            else:  # a site whose support is the real line is drawn as it is
                free[name] = values[name]
        return joint_log_density(
            trace_of(self.guide, jax.random.key(0), params, free, args, kwargs)
        )
