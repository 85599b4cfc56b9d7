"""Takes a guide that runs the model; gives it what NumPyro's autoguides offer: draws, quantiles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.util import not_jax_tracer

from asvi.program.arguments import arrays_in

__all__ = ["SamplingGuide"]


class SamplingGuide:
    """What guides have in common that are read off the model's own run.

    A guide has ``program`` (None before its set-up) and ``_run(*args, **kwargs)``, which gives
    latent and deterministic values by name.
    """

    program: Any
    _setup_prototype: Any
    _run: Any
    _first_call: tuple[tuple, dict[str, Any]] | None = None

    def sample_posterior(
        self,
        rng_key: jax.Array,
        params: dict[str, Any],
        *args: Any,
        sample_shape: tuple[int, ...] = (),
        **kwargs: Any,
    ) -> dict[str, jax.Array]:
        """Draws of every latent and deterministic site, each of shape ``sample_shape + site``.

        Without ``args`` the guide uses those that it was first called with.
        """
        args, kwargs = self._arguments(args, kwargs)

        def draw(key: jax.Array, params: dict[str, Any]) -> dict[str, jax.Array]:
            with handlers.seed(rng_seed=key), handlers.substitute(data=params):
                latent, deterministic = self._run(*args, **kwargs)
            return {**latent, **deterministic}

        size = 1
        for n in sample_shape:
            size *= n
        draws = jax.jit(jax.vmap(draw, (0, None)))(jax.random.split(rng_key, size), params)
        return jax.tree.map(lambda x: x.reshape(sample_shape + x.shape[1:]), draws)

    def quantiles(
        self,
        params: dict[str, Any],
        quantiles: Any,
        *args: Any,
        rng_key: jax.Array | None = None,
        num_samples: int = 4000,
        **kwargs: Any,
    ) -> dict[str, jax.Array]:
        """Marginal quantiles of each latent site, on a leading axis, from ``num_samples`` draws."""
        args, kwargs = self._arguments(args, kwargs)
        key = jax.random.key(0) if rng_key is None else rng_key
        draws = self.sample_posterior(key, params, *args, sample_shape=(num_samples,), **kwargs)
        latent = {site.name for site in self.program.latent}
        levels = jnp.asarray(quantiles)
        return {
            name: jnp.quantile(x, levels, axis=0) for name, x in draws.items() if name in latent
        }

    def median(self, params: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, jax.Array]:
        """The marginal median of each latent site; see :meth:`quantiles`."""
        return self.quantiles(params, 0.5, *args, **kwargs)

    def _arguments(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        if self.program is None:
            self._setup_prototype(*args, **kwargs)
        if args or kwargs or self._first_call is None:
            return args, kwargs
        return self._first_call

    def _remember(self, args: tuple, kwargs: dict[str, Any]) -> None:
        """Keep the first arguments, if they are numbers."""
        if all(not_jax_tracer(x) for _, x in arrays_in(args, kwargs)):
            self._first_call = (args, kwargs)
