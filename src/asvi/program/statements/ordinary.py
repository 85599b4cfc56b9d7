"""Takes the message of a `sample` statement; gives it in the one form that every run here knows.

NumPyro lets a statement say the same in several ways, and lets a model's own handlers answer for
it. Here

- a ``sample_shape`` is part of the distribution, as NumPyro's plates make it;
- a latent value that the model itself fixes (``handlers.substitute`` inside the model) is given:
  its density counts, and nothing is left to infer;
- a key that the model's own ``handlers.seed`` gave is not the key of a draw: who draws brings the
  randomness. (``numpyro.prng_key()`` stays with the model's own seed.)
- an angle that ``CircularReparam`` unwraps onto the whole line, where nothing tells one turn from
  the next and it has no posterior, is an angle. The factor that counts its prior counts it; the
  site itself has the prior's distribution, masked out.
- an ``ImproperUniform`` is a distribution to draw from whose density is left out
  (:mod:`asvi.program.statements.flat_prior`);
- a prior that cannot be drawn from can be, and keeps its density
  (:mod:`asvi.program.statements.unsampled`).

>>> import jax, numpyro, numpyro.distributions as dist
>>> from numpyro import handlers
>>> def model():
...     numpyro.sample("a", dist.Normal(0.0, 1.0), sample_shape=(3,))
...     numpyro.sample("b", dist.Normal(0.0, 1.0))
>>> fixed = handlers.substitute(handlers.seed(model, 0), data={"b": 2.0})
>>> met = handlers.trace(handlers.seed(Ordinary(fixed), 1)).get_trace()
>>> met["a"]["fn"].batch_shape, met["b"]["is_observed"]
((3,), True)
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FrameType
from typing import Any

import jax.numpy as jnp
from numpyro.handlers import block
from numpyro.infer.reparam import CircularReparam
from numpyro.primitives import Messenger

from asvi.program.statements.flat_prior import flat_prior, is_improper
from asvi.program.statements.unsampled import Unsampled, has_sampler

__all__ = ["Ordinary", "hidden_site_asking", "is_fixed", "make_ordinary"]


class Ordinary(Messenger):
    """The model, its statements in their one form; for code that runs models by itself."""

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and not msg.get("_control_flow_done"):
            make_ordinary(msg)
        elif msg["type"] == "control_flow":
            # NumPyro's handlers do not reach into bodies: this one goes along.
            for name in ("f", "true_fun", "false_fun"):
                if name in msg["kwargs"]:
                    msg["kwargs"][name] = Ordinary(msg["kwargs"][name])


def make_ordinary(msg: dict[str, Any]) -> None:
    """Bring the message into this form, once: what handlers outside say is no part of the model."""
    if msg.get("_ordinary"):
        return
    msg["_ordinary"] = True
    kwargs, observed = msg["kwargs"], msg["is_observed"]
    if not observed and is_improper(msg["fn"]):
        angle = _unwrapped_now()
        if angle is None:
            msg["fn"] = flat_prior(msg["fn"])
        else:
            msg["fn"] = angle.expand(msg["fn"].batch_shape).mask(False)
    if not observed and msg.get("value") is None and not has_sampler(msg["fn"]):
        msg["fn"] = Unsampled(msg["fn"])
    shape = tuple(kwargs.get("sample_shape") or ())
    # Data of another shape stay as they are: NumPyro counts as many terms as there are data.
    if shape and (not observed or jnp.shape(msg["value"]) == shape + msg["fn"].shape()):
        msg["fn"] = msg["fn"].expand(shape + msg["fn"].batch_shape)
        kwargs["sample_shape"] = ()
    if not observed:
        kwargs["rng_key"] = None
        if msg["value"] is not None:
            msg["is_observed"], msg["_fixed"] = True, True


def hidden_site_asking() -> str | None:
    """The name of the site for which a ``handlers.block`` asks for a key right now, if one does."""
    for frame in _frames():
        owner = frame.f_locals.get("self")
        if isinstance(owner, block) and frame.f_code.co_name == "process_message":
            msg = frame.f_locals["msg"]
            return msg["name"] if msg["type"] == "sample" else None
    return None


def _unwrapped_now() -> Any:
    """The distribution of the angle that a ``CircularReparam`` at work unwraps; None without."""
    for frame in _frames():
        if isinstance(frame.f_locals.get("self"), CircularReparam):
            return frame.f_locals["fn"]
    return None


def _frames() -> Iterator[FrameType]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_fixed(msg: dict[str, Any]) -> bool:
    """Whether the model itself gives the value of what would be a latent site."""
    return bool(msg.get("_fixed"))
