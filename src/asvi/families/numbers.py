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

from asvi.addresses import address_of, block_address
from asvi.families.noise import stand_in, standard, widths
from asvi.interpretation import Interpretation

__all__ = ["FromNumbers", "joined", "split_numbers"]


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


def joined(found: Mapping[str, Any], name: str, shapes: Mapping[str, Any]) -> jax.Array:
    """What a run noted of every number under this name, (n,)."""
    return jnp.concatenate([jnp.ravel(found[f"{name}|{address}"]) for address in shapes])


class FromNumbers(Interpretation):
    """The model, its latent values made from given numbers; or its numbers, from given values.

    ``numbers`` has an array for each latent site, by address; ``centring`` and ``anchor``, c and
    :math:`\\log s_0`, may have one, too. Afterwards ``frame.extras`` holds, by ``"name|address"``,
    ``number``, ``slope`` (logarithm of the volume of x over that of z, of the whole site), and each
    number's ``loc``, ``scale`` and ``width``.
    """

    def __init__(
        self,
        numbers: Mapping[str, Any],
        centring: Mapping[str, Any] | None = None,
        anchor: Mapping[str, Any] | None = None,
        *,
        values: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        self.latent = set(numbers if values is None else values)
        self.given = {f"number|{a}": x for a, x in numbers.items()}
        self.given |= {f"value|{a}": x for a, x in (values or {}).items()}
        if centring is not None and anchor is not None:
            self.given |= {f"centring|{a}": x for a, x in centring.items()}
            self.given |= {f"anchor|{a}": x for a, x in anchor.items()}

    def thread(self, path: tuple[str, ...], length: int, reverse: bool) -> dict[str, jax.Array]:
        inside = block_address(path)
        given = self.given if self.frame.is_root else self.frame.threaded
        return {n: x for n, x in given.items() if n.partition("|")[2].startswith(inside)}

    def visit(self, msg: dict[str, Any]) -> None:
        address = address_of(self.frame.path, msg["name"])
        if address not in self.latent or msg["value"] is not None:
            return
        given = self.given if self.frame.is_root else self.frame.threaded
        prior = standard(stand_in(msg["fn"]))
        scale, log_scale = prior.scale, jnp.log(prior.scale)
        if f"centring|{address}" in given:
            bend = given[f"centring|{address}"] * (given[f"anchor|{address}"] - log_scale)
            scale, log_scale = scale * jnp.exp(bend), log_scale + bend
        if f"value|{address}" in given:
            value = given[f"value|{address}"]
            u = prior.transform.inv(value)
            number = (u - prior.loc) / scale
        else:
            number = given[f"number|{address}"]
            u = prior.loc + scale * number
            value = prior.transform(u)
        slope = jnp.sum(log_scale)
        if not isinstance(prior.transform, T.IdentityTransform):
            slope = slope + jnp.sum(prior.transform.log_abs_det_jacobian(u, value))
        msg["value"] = value
        told = {"number": number, "slope": slope, "loc": prior.loc, "scale": prior.scale}
        for name, x in {**told, "width": widths(prior)}.items():
            self.frame.extras[f"{name}|{address}"] = x
