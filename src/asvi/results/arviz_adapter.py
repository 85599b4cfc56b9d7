"""Takes a posterior; gives what ``arviz.from_numpyro`` takes, where ArviZ is 1.x."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from asvi.errors import AsviError
from asvi.results.groups import Content
from asvi.results.posterior import Posterior

__all__ = ["arviz_adapter"]


def arviz_adapter(posterior: Posterior, num_samples: int, key: jax.Array) -> Any:
    """Draws, their log densities and the model, as ArviZ's converter asks for them."""
    try:
        from arviz_base.io_numpyro import NumPyroInferenceAdapter  # pyright: ignore
    except ImportError as missing:
        raise AsviError(
            "arviz_adapter() is for arviz.from_numpyro of ArviZ 1.x (arviz-base 1.1 or later), "
            "which is not installed.\nWrite instead:\n    data = result.to_arviz()"
        ) from missing
    content = Content(posterior, num_samples, key)

    class Adapter(NumPyroInferenceAdapter):
        @property
        def sample_dims(self) -> list[str]:
            return ["chain", "draw"]

        def get_samples(self, seed: int | None = None, **kwargs: Any) -> dict[str, Any]:
            return content.posterior()

        def get_sample_stats(self, **kwargs: Any) -> dict[str, Any]:
            return content.sample_stats()

    args, kwargs = posterior.problem.arguments
    shape = np.shape(content.sample_stats()["lp"])
    return Adapter(posterior, posterior.problem.model, args, kwargs, shape)
