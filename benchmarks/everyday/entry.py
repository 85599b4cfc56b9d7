"""Takes a model and a function that simulates its data; gives an entry of the everyday suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.handlers as handlers
from jax.flatten_util import ravel_pytree
from numpyro.infer.initialization import init_to_uniform
from numpyro.infer.util import initialize_model, unconstrain_fn

Data = tuple[tuple, dict[str, Any]]


@dataclass(frozen=True)
class Everyday:
    """A model with data, as an ordinary NumPyro user has them.

    :param data: gives ``(args, kwargs)`` of the model; simulated, or typed in, with fixed numbers.
    :param truth_model: the same joint law in coordinates that are easier for NUTS. Sites of
        ``model`` that are not drawn in it are deterministic there, under the same name.
    :param closed_form: gives the log evidence without any sampling, from the model's arguments.
    :param target_accept: of NUTS; closer to 1 where the posterior has narrow places.
    :param heavy_tailed: sites whose posterior has no variance (half-Cauchy scales that the data
        leave alone): moments are those of their logarithm.
    """

    name: str
    model: Callable
    data: Callable[[], Data]
    truth_model: Callable | None = None
    closed_form: Callable[..., float] | None = None
    target_accept: float = 0.9
    heavy_tailed: tuple[str, ...] = ()

    @cached_property
    def _data(self) -> Data:
        return self.data()

    @property
    def args(self) -> tuple:
        return self._data[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._data[1]

    @property
    def stands_for(self) -> str:
        """The first line of the model's doc-string."""
        return (self.model.__doc__ or "").strip().splitlines()[0]

    @cached_property
    def exact_log_evidence(self) -> float | None:
        """The log evidence without any sampling, where there is such a way."""
        return None if self.closed_form is None else self.closed_form(*self.args, **self.kwargs)

    def comparable(self, draws: dict[str, Any]) -> dict[str, np.ndarray]:
        """Draws of latent sites, of which the stored moments are the moments."""
        arrays = {site: np.asarray(x, float) for site, x in draws.items()}
        return {s: np.log(x) if s in self.heavy_tailed else x for s, x in arrays.items()}

    def fingerprint(self) -> float:
        """The log joint density at one fixed unconstrained point: it tells model and data apart.

        A stored truth holds this number; where a prior or a datum is changed later, it differs.
        """
        space = Space.of(self.model, self.args, self.kwargs)
        # Not the origin, where no coefficient meets its predictor; small, as predictors are raw.
        return float(space.log_density(0.01 * jnp.cos(jnp.arange(space.size))))


@dataclass(frozen=True)
class Space:
    """The unconstrained space of a model, as flat vectors.

    :param prior_draw: a vector drawn from the prior, with a key.
    :param log_density: log joint density at a vector, Jacobian included.
    :param constrain: all sites' values at a vector, deterministic ones included.
    """

    size: int
    prior_draw: Callable[[jax.Array], jax.Array]
    log_density: Callable[[jax.Array], jax.Array]
    constrain: Callable[[jax.Array], dict[str, jax.Array]]

    @classmethod
    def of(cls, model: Callable, args: tuple, kwargs: dict[str, Any]) -> Space:
        info = initialize_model(
            jax.random.key(0),
            model,
            model_args=args,
            model_kwargs=kwargs,
            # Near the origin raw predictors do not overflow; nothing else depends on the start.
            init_strategy=init_to_uniform(radius=0.001),
            validate_grad=False,
        )
        flat, unravel = ravel_pytree(info.param_info.z)

        def prior_draw(key: jax.Array) -> jax.Array:
            trace = handlers.trace(handlers.seed(model, key)).get_trace(*args, **kwargs)
            latent = {k: site["value"] for k, site in trace.items() if k in info.param_info.z}
            return ravel_pytree(unconstrain_fn(model, args, kwargs, latent))[0]

        return cls(
            flat.size,
            prior_draw,
            lambda x: -info.potential_fn(unravel(x)),
            lambda x: info.postprocess_fn(unravel(x)),
        )
