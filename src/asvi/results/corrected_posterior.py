"""Takes corrected draws; gives them as a posterior: draws, moments, predictions."""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import numpy as np

from asvi.density.split_keys import seed_of
from asvi.errors import AsviError
from asvi.fitting.correction.pool import Pool
from asvi.fitting.correction.result import Correction
from asvi.fitting.problem import Problem
from asvi.results.posterior import Draws, Posterior

__all__ = ["CorrectedPosterior"]


class CorrectedPosterior(Posterior):
    """The posterior as draws: those of the guide, weighted or moved to where they belong.

    It has no density of its own that could be evaluated anywhere: ``result.guide``, the variational
    distribution, has.
    """

    def __init__(self, problem: Problem, params: dict[str, jax.Array], correction: Correction):
        super().__init__(problem, params)
        self.correction = correction

    def draw(self, key: jax.Array, shape: int | tuple[int, ...]) -> tuple[Draws, jax.Array]:
        """Draws, and the guide's log density at each.

        No draw is given twice where there are enough, or more can be made.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = prod(shape)
        pool = self.correction.at_least(count)
        rng = np.random.default_rng(seed_of(key))
        if count <= len(pool):
            index = rng.permutation(len(pool))[:count]
        else:
            index = rng.integers(len(pool), size=count)
        found = {n: self._typed(x[index]) for n, x in pool.flat().items()}
        reshaped = {n: x.reshape(shape + x.shape[1:]) for n, x in found.items()}
        log_q = self._typed(pool.log_q.ravel()[index].reshape(shape))
        return jax.device_put((reshaped, log_q))

    def _typed(self, x: np.ndarray) -> np.ndarray:
        """In the precision that the user runs in."""
        return np.asarray(x, jax.dtypes.canonicalize_dtype(x.dtype))

    def chains(self, key: jax.Array, draws: int, chains: int = 4) -> tuple[Draws, Any, Any]:
        """``draws`` in all, (chains, draws, ...), with log densities of model and guide.

        Chains are islands of particles, which never met.
        """
        pool = self.correction.at_least(draws)
        chains = chains if pool.islands % chains == 0 else 1
        rng = np.random.default_rng(seed_of(key))
        each = -(-draws // chains)
        size = len(pool) // chains
        rows = [rng.permutation(size)[:each] if each <= size else rng.integers(size, size=each)]
        rows += [rng.permutation(size)[: len(rows[0])] for _ in range(chains - 1)]

        def chosen(x: np.ndarray) -> np.ndarray:
            by_chain = x.reshape(chains, size, *x.shape[2:])
            return self._typed(np.stack([y[k] for y, k in zip(by_chain, rows, strict=True)]))

        found = Pool(
            {n: chosen(x) for n, x in pool.sites.items()}, chosen(pool.log_p), chosen(pool.log_q)
        )
        return found.sites, found.log_p, found.log_q

    def _moments(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        flat = self.correction.pool.flat()
        return {n: x.mean(0) for n, x in flat.items()}, {n: x.std(0) for n, x in flat.items()}

    def quantiles(
        self, levels: Any = (0.05, 0.5, 0.95), num_samples: int | None = None
    ) -> dict[str, np.ndarray]:
        """Marginal quantiles of each site, from all draws; the levels are the first axis."""
        flat = self.correction.pool.flat()
        return {n: np.quantile(np.asarray(x, float), levels, axis=0) for n, x in flat.items()}

    def resample(
        self, rng_key: Any, num_samples: int = 1000, *, num_proposals: int | None = None
    ) -> Draws:
        """They are corrected already: the same as ``sample(rng_key, num_samples)``."""
        return self.sample(rng_key, num_samples)

    def log_prob(self, draws: Draws) -> jax.Array:
        raise _of_the_guide("log_prob(draws)")

    def elbo(self, rng_key: Any, num_samples: int = 100) -> Any:
        raise _of_the_guide("elbo(rng_key)")

    def importance(self, rng_key: Any, num_samples: int = 2000) -> Any:
        raise _of_the_guide("importance(rng_key)")

    def at(self, *args: Any, **kwargs: Any) -> Posterior:
        raise _of_the_guide("at(*args)")


def _of_the_guide(call: str) -> AsviError:
    return AsviError(
        "result.posterior is a set of corrected draws, and has no density that can be evaluated "
        "anywhere; the variational distribution that they came from has.\n"
        f"Write instead:\n    result.guide.{call}"
    )
