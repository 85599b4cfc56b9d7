"""Takes numbers; gives a run of the model whose latent values are made from them, and the way back.

A latent value is made from a number z of its own, :math:`x = T(m + w z)`, with the location m of
its prior at its parents' values and a width w between two ways to write a hierarchy,

.. math:: w = s^{1-c}\\,s_0^{\\,c}.

At c = 0 it is the prior's own scale s: z is the prior's *noise*, whatever the parents ("not
centred"). At c = 1 it is a constant, and the value itself, but for its location, is the number
("centred"). Effects of groups that the data know little of are nearly independent of their scale in
the first, those that they know well in the second; most lie between. See Papaspiliopoulos, Roberts
and Sköld (2007) and Gorinova, Moore and Hoffman (2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import transforms as T

from asvi.distributions.standardize import noise_widths, rebuilt_prior, standardize
from asvi.program.addresses import BodyPath, address_of, is_inside
from asvi.program.control_flow.interpretation import Interpretation

__all__ = ["BLANK", "RunFromNoise", "join_numbers", "split_numbers"]

BLANK = "_blank"  # address of the one number of a model whose latent sites are made of none


def split_numbers(vector: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Numbers (n,) by site, in the sites' shapes.

    >>> import numpy as np
    >>> {k: v.shape for k, v in split_numbers(np.arange(5), {"a": (), "b": (2, 2)}).items()}
    {'a': (), 'b': (2, 2)}
    """
    found, begin = {}, 0
    for address, shape in shapes.items():
        found[address] = vector[begin : begin + prod(shape)].reshape(shape)
        begin += prod(shape)
    return found


def join_numbers(found: Mapping[Any, Any], name: str, shapes: Mapping[str, Any]) -> jax.Array:
    """What a run noted of every number under this name, (n,)."""
    return jnp.concatenate([jnp.ravel(found[name, address]) for address in shapes])


class RunFromNoise(Interpretation):
    """The model, its latent values made from given numbers; or its numbers, from given values.

    ``numbers`` has an array for each latent site, by address; ``centring`` and ``anchor``, c and
    :math:`\\log s_0`, may have one, too; sites in ``fixed`` take the values there. Afterwards
    ``body.outputs`` holds, by name and address, ``number``, ``slope`` (logarithm of the volume of
    x over that of z, of the whole site), and each number's ``loc``, ``scale`` and ``width``.
    """

    def __init__(
        self,
        numbers: Mapping[str, Any],
        centring: Mapping[str, Any] | None = None,
        anchor: Mapping[str, Any] | None = None,
        *,
        values: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        self.latent = set(numbers if values is None else values)
        about = {"number": numbers, "value": values, "fixed": fixed}
        if centring is not None and anchor is not None:
            about |= {"centring": centring, "anchor": anchor}
        self.given = {(n, a): x for n, xs in about.items() for a, x in (xs or {}).items()}

    def thread(self, path: BodyPath, length: int, reverse: bool) -> dict[Any, Any]:
        given = self.given if self.body.is_root else self.body.scanned
        return {(n, a): x for (n, a), x in given.items() if is_inside(a, path)}

    def visit(self, msg: dict[str, Any]) -> None:
        address = address_of(self.body.path, msg["name"])
        given = self.given if self.body.is_root else self.body.scanned
        if ("fixed", address) in given:
            msg["value"] = given["fixed", address]
        if address not in self.latent or msg["value"] is not None:
            return
        prior = standardize(rebuilt_prior(msg["fn"]))
        scale, log_scale = prior.scale, jnp.log(prior.scale)
        if ("centring", address) in given:
            bend = given["centring", address] * (given["anchor", address] - log_scale)
            scale, log_scale = scale * jnp.exp(bend), log_scale + bend
        if ("value", address) in given:
            value = given["value", address]
            u = prior.transform.inv(value)
            number = (u - prior.loc) / scale
        else:
            number = given["number", address]
            u = prior.loc + scale * number
            value = prior.transform(u)
        slope = jnp.sum(log_scale)
        if not isinstance(prior.transform, T.IdentityTransform):
            slope = slope + jnp.sum(prior.transform.log_abs_det_jacobian(u, value))
        msg["value"] = value
        prior_moments = {"number": number, "slope": slope, "loc": prior.loc, "scale": prior.scale}
        for name, x in {**prior_moments, "width": noise_widths(prior)}.items():
            self.body.outputs[name, address] = x
