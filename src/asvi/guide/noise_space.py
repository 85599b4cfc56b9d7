"""Takes a trained guide; gives the model's density as a function of the guide's noise."""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions.distribution import validation_enabled

from asvi.density.bound_model import BoundModel
from asvi.density.noncentering import split_numbers
from asvi.distributions.standardize import noise_shape
from asvi.guide.run_from_noise import SurrogateFromNoise
from asvi.program.run_trace import log_density, trace_of

__all__ = ["GuideSpace"]


class GuideSpace:
    """The noise of all latent sites of a guide, in one vector."""

    def __init__(self, guide: Any, bound: BoundModel, shapes: dict[str, tuple[int, ...]]):
        self.guide, self.bound, self.shapes = guide, bound, shapes
        self.size = sum(prod(shape) for shape in shapes.values())

    @classmethod
    def of(cls, guide: Any, bound: BoundModel) -> GuideSpace | None:
        """None where not all draws of the guide are made of noise that one vector holds."""
        program = bound.program
        if guide.encoders or guide.score_sites:
            return None
        in_parts = any(p.size != p.subsample_size for s in program.sites for p in s.plates)
        if in_parts or any(site.in_branch for site in program.sites):
            return None
        shapes = {}
        for site in program.latent:
            shape = noise_shape(site)
            if shape is None:
                return None
            shapes[site.address] = site.steps + shape
        return cls(guide, bound, shapes)

    def run(self, vector: jax.Array, params: dict[str, Any], *_: Any) -> dict[str, Any]:
        """The model at what the guide makes of this noise; see `NoiseSpace.run`."""
        model = self.bound.model
        args, kwargs = self.bound.arguments
        noise = split_numbers(vector, self.shapes)

        def parameters(msg):
            return params.get(msg["name"]) if msg["type"] in ("param", "mutable") else None

        with (
            validation_enabled(False),
            handlers.trace() as drawn,
            handlers.seed(rng_seed=jax.random.key(0)),
            handlers.substitute(substitute_fn=parameters),
            SurrogateFromNoise(self.guide, args, kwargs, noise) as run,
        ):
            model(*args, **kwargs)
        values = {n: m["value"] for n, m in drawn.items() if m["type"] == "sample"}
        extras = run.body.outputs
        volume = sum(jnp.sum(extras["volume", address]) for address in self.shapes)
        met = trace_of(model, jax.random.key(0), params, values, args, kwargs)
        density = sum(log_density(s) for s in met.values() if s["type"] == "sample")
        prior_moments = dict.fromkeys(("loc", "scale", "width"), vector)  # nobody asks
        return {"log_density": density + volume, "log_volume": volume, **prior_moments, "met": met}
