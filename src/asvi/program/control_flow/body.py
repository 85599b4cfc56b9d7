"""Takes where a body of a ``scan`` or ``cond`` stands; gives the record of one activation of it."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp

from asvi.errors import name_used_twice
from asvi.program.addresses import BodyKey, BodyPath

__all__ = ["Body"]

#: Parts of a message that are no arrays, and those that are, or hold them.
_STATIC = ("type", "name", "is_observed", "cond_indep_stack", "infer")
_ARRAYS = ("fn", "value", "intermediates", "scale")


class Body:
    """One activation of a body: where it is, what it was given, which sites it met.

    ``path`` has the keys of the bodies around it and its own, outermost first; the program's top
    level has the empty path. ``scanned`` are the arrays that an interpretation passed in,
    ``outputs`` those that it wants carried out. ``lookback`` is what it carries from step to step
    of a scan, and ``residuals`` are those of this body's sites, for others in it.
    """

    def __init__(self, path: BodyPath = (), scanned: Any = None, outside: Body | None = None):
        self.path = path
        self.scanned = scanned
        self.outside = outside
        self.lookback: Any = ()
        self.residuals: dict[str, Any] = {}
        self.sites: dict[str, dict[str, Any]] = {}
        self.outputs: dict[Any, Any] = {}
        self._blocks = 0

    @property
    def is_root(self) -> bool:
        return not self.path

    def next_block(self, kind: Literal["scan", "cond"]) -> BodyPath:
        """The path of the next control-flow block met in this body."""
        path = (*self.path, BodyKey(kind, self._blocks))
        self._blocks += 1
        return path

    def record(self, msg: dict[str, Any]) -> None:
        """Keep what is to be reported of a site of this body."""
        name = msg["name"]
        if msg["type"] == "sample" and name in self.sites:
            raise name_used_twice(name)
        site = {key: msg.get(key) for key in (*_STATIC, *_ARRAYS)}
        if site["scale"] is not None:
            site["scale"] = jnp.asarray(site["scale"], jnp.result_type(float))
        if not site["intermediates"]:
            site["intermediates"] = None
        self.sites[name] = site

    def collect(self) -> tuple[dict[str, dict[str, Any]], dict[Any, Any]]:
        """The arrays of this body's sites, to be returned from a traced body."""
        arrays = {}
        for name, site in self.sites.items():
            arrays[name] = {key: site[key] for key in _ARRAYS if site.get(key) is not None}
            if site["type"] != "sample":
                arrays[name].pop("fn", None)
        return arrays, self.outputs
