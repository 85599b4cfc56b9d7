"""Takes a model and its data; gives an entry of these examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from numpyro import handlers
from numpyro.infer.initialization import init_to_uniform

from benchmarks.everyday.entry import Data, Everyday

__all__ = ["Data", "Example", "traced"]


@dataclass(frozen=True)
class Example(Everyday):
    """A model with data. One with discrete sites has a ``truth_model`` that sums them out.

    :param compared: sites whose moments are compared; empty for all latent ones that NUTS draws.
        Where numbers can change places, as units of a network, it is what does not change.
    """

    compared: tuple[str, ...] = ()

    def latent(self) -> dict[str, jax.Array]:
        """Values of the latent sites: near the middle, as a flat prior has no draws."""
        return {
            name: site["value"]
            for name, site in traced(self.model, self.args, self.kwargs).items()
            if site["type"] == "sample" and not site["is_observed"]
        }

    def sites(self) -> list[str]:
        """Names of sites that are compared, where NUTS has them."""
        return list(self.compared or self.latent())


def traced(model: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The sites of a model at values that NUTS may begin with."""
    seeded = handlers.seed(model, jax.random.key(0))
    begun = handlers.substitute(seeded, substitute_fn=init_to_uniform)
    return handlers.trace(begun).get_trace(*args, **kwargs)
