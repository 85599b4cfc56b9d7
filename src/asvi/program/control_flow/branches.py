"""Takes the sites that the branches of a ``cond`` met; gives sites that stand for both branches."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp

from asvi.errors import SiteError
from asvi.program.statements.stacked import Evaluated, log_prob_at

__all__ = ["BRANCHES", "check_branches", "evaluate_sites", "merge_evaluated"]

BRANCHES: tuple[Literal["true"], Literal["false"]] = ("true", "false")


def evaluate_sites(arrays: dict[str, Any], sites: dict[str, Any]) -> dict[str, Any]:
    """Sites of one branch, reduced to value and log density: the families may differ."""
    out = {}
    for name, site in arrays.items():
        out[name] = {key: value for key, value in site.items() if key in ("value", "scale")}
        if sites[name]["type"] == "sample":
            fn = site["fn"]
            log_prob = log_prob_at(fn, site["value"], site.get("intermediates"))
            # Data may be larger than one draw: keep the density's own shape.
            shape = jnp.broadcast_shapes(jnp.shape(log_prob), fn.batch_shape)
            out[name]["log_prob"] = jnp.broadcast_to(log_prob, shape)
    return out


def merge_evaluated(static: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """A site of a ``cond`` from what its branch says of it and the arrays of the one taken."""
    site = {**static, "intermediates": None, "scale": None, **arrays}
    log_prob = site.pop("log_prob", None)
    if log_prob is not None:
        site["fn"] = Evaluated.like(static["fn"], log_prob)
    return site


def check_branches(statics: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Raise unless both branches have the same sites, of the same shapes."""
    names = {label: sorted(sites) for label, sites in statics.items()}
    if names["true"] == names["false"]:
        for name, site in statics["true"].items():
            shapes = [jnp.shape(statics[label][name]["value"]) for label in BRANCHES]
            if shapes[0] != shapes[1]:
                raise SiteError(
                    name,
                    f"it has shape {shapes[0]} in the true branch of a `cond` and {shapes[1]} in "
                    "the false one",
                    f'numpyro.{site["type"]}("{name}", ...)   # of one shape in both branches',
                )
        return
    missing = sorted(set(names["true"]) ^ set(names["false"]))[0]
    where = "true" if missing in names["true"] else "false"
    raise SiteError(
        missing,
        f"it stands in the {where} branch of a `cond` alone; both branches must have the same "
        "sites, as for `numpyro.contrib.control_flow.cond`",
        f'# in the other branch as well:\nnumpyro.sample("{missing}", ...)',
    )
