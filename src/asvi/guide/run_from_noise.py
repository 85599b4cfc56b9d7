"""Takes a guide and noise; gives the run of its surrogate in which each draw is made of the noise.

A site's draw is :math:`x = T(m + s\\,\\epsilon)`, or what its moved noise makes of it
(:mod:`asvi.distributions.warped_noise`). Where the family's own noise is normal these are the
guide's draws; where it is not (a Gamma), it is a map onto the same support, whose volume is known
as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from numpyro.distributions import transforms as T

from asvi.distributions.standardize import standardize
from asvi.distributions.warped_noise import WarpedNoise
from asvi.guide.surrogate_run import SurrogateRun
from asvi.program.addresses import BodyPath, address_of, is_inside

__all__ = ["SurrogateFromNoise"]


class SurrogateFromNoise(SurrogateRun):
    """One run of the surrogate. ``noise`` has an array for each latent site, by address.

    Afterwards ``body.outputs`` holds, by ``("volume", address)``, the log volume of a site's values
    over that of its noise.
    """

    def __init__(self, guide: Any, args: tuple, kwargs: dict[str, Any], noise: Mapping[str, Any]):
        super().__init__(guide, args, kwargs)
        self.given = {("base draw", address): x for address, x in noise.items()}

    def thread(self, path: BodyPath, length: int, reverse: bool) -> dict[Any, Any]:
        given = self.given if self.body.is_root else self.body.scanned
        own = {k: x for k, x in given.items() if k[0] == "base draw" and is_inside(k[1], path)}
        return super().thread(path, length, reverse) | own

    def visit(self, msg: dict[str, Any]) -> None:
        super().visit(msg)
        address = address_of(self.body.path, msg["name"])
        given = self.given if self.body.is_root else self.body.scanned
        if msg.get("stop") or ("base draw", address) not in given:
            return
        noise, fn = given["base draw", address], msg["fn"]
        if isinstance(fn, WarpedNoise):
            value, intermediates = fn.of_noise(noise)
            msg["intermediates"] = intermediates
            volume = fn.log_volume(value, intermediates)
        else:
            own = standardize(fn)
            u = own.loc + own.scale * noise
            value = own.transform(u)
            volume = jnp.sum(jnp.log(own.scale))
            if not isinstance(own.transform, T.IdentityTransform):
                volume = volume + jnp.sum(own.transform.log_abs_det_jacobian(u, value))
        msg["value"] = value
        self.body.outputs["volume", address] = jnp.sum(volume)
