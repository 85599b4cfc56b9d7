"""Takes a body and what its sites listen to; gives residuals published there, and collected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asvi.distributions.warped_noise import Residual
from asvi.program.addresses import BodyPath
from asvi.program.control_flow.body import Body
from asvi.program.program import Program
from asvi.program.site import Site

__all__ = [
    "Lookback",
    "collect_inputs",
    "empty_register",
    "find_lookback",
    "find_residual",
    "join_residuals",
    "publish_residual",
    "published_addresses",
]


class Lookback(NamedTuple):
    """What the sites of a scan's body look back on: steps, sources, and their numbers a step."""

    steps: int = 0
    sources: tuple[str, ...] = ()
    numbers: int = 0


def published_addresses(inputs: Mapping[str, Any]) -> set[str]:
    """Addresses that some site listens to."""
    return {address for own in inputs.values() for address in own.sources}


def publish_residual(body: Body, address: str, residual: Residual) -> None:
    """Let later sites have a site's residual."""
    # Bodies of scans hand what they met to the body outside, stacked; branches do not.
    if not any(key.branch for key in body.path):
        body.outputs["residual", address] = residual
    body.residuals[address] = residual


def find_residual(body: Body, address: str) -> Residual:
    """What a site published, here or further out."""
    here: Body | None = body
    while here is not None:
        if address in here.residuals:
            return here.residuals[address]
        if ("residual", address) in here.outputs:  # a scan that has ended, all its steps
            return here.outputs["residual", address]
        here = here.outside
    raise KeyError(address)


def collect_inputs(body: Body, inputs: Any, sites: Mapping[str, Site]) -> dict[str, Residual]:
    """The residuals that a site listens to, by kind; ``inputs`` is None where there are none."""
    found: dict[str, Residual] = {}
    if inputs is None:
        return found

    def join(sources: tuple[str, ...], by_member: bool = False) -> Residual:
        plates = [len(sites[a].batch_shape) for a in sources] if by_member else None
        return join_residuals([find_residual(body, a) for a in sources], plates)

    if inputs.globals:
        found["globals"] = join(inputs.globals)
    if inputs.member:
        found["member"] = join(inputs.member, by_member=True)
    if inputs.dense:
        found["dense"] = join(inputs.dense)
    if inputs.aligned:
        found["aligned"] = join(inputs.aligned, by_member=True)
    if inputs.lookback:
        found["lookback"] = body.lookback  # the whole register: see `lookback.py`
    return found


def join_residuals(residuals: list[Residual], plates: list[int] | None = None) -> Residual:
    """Residuals of several sites in one vector; with ``plates``, one a member of their plates."""
    keep = [0] * len(residuals) if plates is None else plates
    return jax.tree.map(
        lambda *noise: jnp.concatenate(
            [jnp.reshape(x, (*x.shape[:k], -1)) for x, k in zip(noise, keep, strict=True)], -1
        ),
        *residuals,
    )


def find_lookback(program: Program, inputs: Mapping[str, Any], path: BodyPath) -> Lookback:
    """What the sites of the scan at ``path`` look back on."""
    sites = [site for site in program.in_block(path) if site.bodies == path]
    found = [inputs[site.address] for site in sites if site.address in inputs]
    found = [own for own in found if own.lookback]
    if not found:
        return Lookback()
    sources = found[0].lookback_sources
    return Lookback(max(own.lookback for own in found), sources, found[0].size(sources))


def empty_register(lookback: Lookback) -> Any:
    """What the first step of a scan looks back on."""
    # Plain zeros are seen to be empty: see `lookback.py`.
    nothing: Any = np.zeros((lookback.steps, lookback.numbers), jnp.result_type(float))
    return Residual(nothing, nothing) if lookback.steps else ()
