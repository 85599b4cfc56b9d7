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
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn

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
        return float(jax.jit(space.log_density)(0.01 * jnp.cos(jnp.arange(space.size))))


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
        def prior_draw(key: jax.Array) -> dict[str, jax.Array]:
            return unconstrain_fn(model, args, kwargs, latent_sites(model, args, kwargs, key))

        shapes = jax.eval_shape(prior_draw, jax.random.key(0))
        example = {site: jnp.zeros(x.shape) for site, x in shapes.items()}
        flat, unravel = ravel_pytree(example)
        return cls(
            flat.size,
            lambda key: ravel_pytree(prior_draw(key))[0],
            lambda x: -potential_energy(model, args, kwargs, unravel(x)),
            lambda x: constrain_fn(model, args, kwargs, unravel(x), return_deterministic=True),
        )


def latent_sites(
    model: Callable, args: tuple, kwargs: dict[str, Any], key: jax.Array
) -> dict[str, jax.Array]:
    """A prior draw of the latent sites, in the order in which the model draws them."""
    trace = handlers.trace(handlers.seed(model, key)).get_trace(*args, **kwargs)
    return {
        name: site["value"]
        for name, site in trace.items()
        if site["type"] == "sample" and not site["is_observed"]
    }
