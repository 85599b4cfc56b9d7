"""Takes fitted parameters; gives draws, densities, moments, predictions and ArviZ data."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import Unit, biject_to
from numpyro.infer import Predictive

from asvi.density.many_draws import ManyDraws
from asvi.density.split_keys import split
from asvi.errors import SiteError
from asvi.fitting.guide_draws import Draws, GuideDraws
from asvi.fitting.problem import Problem
from asvi.program.control_flow.handlers import is_conditioned
from asvi.program.control_flow.interpretation import Interpretation
from asvi.program.random_key import as_key
from asvi.program.run_trace import trace_of
from asvi.program.statements.ordinary import is_fixed

__all__ = ["Posterior"]


class Posterior(GuideDraws):
    """A fitted distribution over the model's latent sites.

    All draws are dictionaries by site name, with the draws' axes first.

    >>> import numpyro, numpyro.distributions as dist, asvi
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> guide = asvi.fit(model, 2.0).guide
    >>> draws = guide.sample(1, 500)
    >>> draws["mu"].shape, guide.log_prob(draws).shape
    ((500,), (500,))
    >>> bool(abs(guide.mean()["mu"] - 1.98) < 0.1)
    True
    """

    def __init__(self, problem: Problem, params: dict[str, jax.Array]):
        super().__init__(problem, params)
        self._summary: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] | None = None

    # ---------------------------------------------------------------------------------- draws

    def sample(self, rng_key: Any, sample_shape: int | tuple[int, ...] = ()) -> Draws:
        """Draws of every latent and deterministic site, each of shape ``sample_shape + site``.

        ``rng_key`` is a ``jax.random.key`` or an int.
        """
        return self.draw(as_key(rng_key), sample_shape)[0]

    def at(self, *args: Any, **kwargs: Any) -> Posterior:
        """The same parameters at other arguments of the model, given as to the model.

        An amortised family (:class:`~asvi.families.Amortized`) reads the new points' data, however
        many they are: ``result.guide.at(new_points).sample(0, 1000)``.
        """
        return Posterior(self.problem.at(args, kwargs), self.params)

    def elbo(self, rng_key: Any, num_samples: int = 100) -> tuple[float, float]:
        """The ELBO, by so many fresh draws, and its standard error.

        ``at(*args).elbo(0)`` is that of other data at the fitted parameters: for an amortised
        family the held-out ELBO of new points.
        """

        def compiled(keys, params):
            def one(key):
                return sum(self.problem.terms_at(params, key).values(), jnp.zeros(()))

            return jax.lax.map(one, keys, batch_size=32)

        run = self.problem.bound.jit("elbo", lambda: compiled)
        found = np.asarray(run(jax.random.split(as_key(rng_key), num_samples), self.params), float)
        return float(found.mean()), float(found.std(ddof=1) / np.sqrt(num_samples))

    def chains(self, key: jax.Array, draws: int) -> tuple[Draws, jax.Array, jax.Array]:
        """Draws (chains, draws, ...), and their log densities by model and guide."""
        found, log_q = self.draw(key, (1, draws))
        return found, self.model_log_prob(found), log_q

    # -------------------------------------------------------------------------------- moments

    def _moments(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        if self._summary is None:
            draws = self.sample(0, 4000)
            found = {k: np.asarray(v, float) for k, v in draws.items() if k not in self.parts}
            self._summary = (
                {k: v.mean(0) for k, v in found.items()},
                {k: v.std(0) for k, v in found.items()},
            )
        return self._summary

    def mean(self) -> dict[str, np.ndarray]:
        """Mean of each site, from 4000 draws."""
        return self._moments()[0]

    def sd(self) -> dict[str, np.ndarray]:
        """Standard deviation of each site, from 4000 draws."""
        return self._moments()[1]

    def median(self) -> dict[str, np.ndarray]:
        """Marginal median of each site."""
        return self.quantiles(0.5)

    def quantiles(
        self, levels: Any = (0.05, 0.5, 0.95), num_samples: int = 4000
    ) -> dict[str, np.ndarray]:
        """Marginal quantiles of each site; the levels are the first axis."""
        found = self.sample(0, num_samples)
        return {
            k: np.quantile(np.asarray(v, float), levels, axis=0)
            for k, v in found.items()
            if k not in self.parts
        }

    # ------------------------------------------------------------------------------ importance

    def resample(
        self, rng_key: Any, num_samples: int = 1000, *, num_proposals: int | None = None
    ) -> Draws:
        """Draws chosen by Pareto-smoothed importance weights: nearer the exact posterior.

        They are chosen among ``num_proposals`` draws of the guide. Trust them where k̂ is below 0.7.
        """
        draw_key, choose_key = jax.random.split(as_key(rng_key))
        found, weights = self.importance(draw_key, num_proposals or max(4000, 4 * num_samples))
        shares = jnp.exp(jnp.asarray(weights.log_weights))
        chosen = jax.random.choice(choose_key, len(shares), (num_samples,), p=shares)
        return {name: value[chosen] for name, value in found.items()}

    # ------------------------------------------------------------------------------ prediction

    def predictive(
        self, rng_key: Any, *args: Any, num_samples: int | None = None, **kwargs: Any
    ) -> dict[str, jax.Array]:
        """Draws of the observed sites given posterior draws; at new arguments, if any are given.

        Give arguments as to the model, with None where data were: ``predictive(0, x_new, None)``.
        There are 1,000 draws, or ``num_samples``.
        """
        draw_key, noise_key = split(as_key(rng_key), 2, self.problem.bound.settings.evaluator)
        found = self.sample(draw_key, num_samples or 1000)
        if args or kwargs:
            latent = {site.name: found[site.name] for site in self.problem.program.latent}

            def elsewhere(key, values, params):
                model = handlers.substitute(Interpretation(self.problem.model), data=params)
                return Predictive(model, values, batch_ndims=0)(key, *args, **kwargs)

            return ManyDraws(elsewhere)(latent, self.params, key=noise_key)
        self.problem.arguments.require_data("predictive() without arguments")
        observed = [s.name for s in self.problem.program.sites if s.kind == "observed"]

        def one(key, values, params):
            args, kwargs = self.problem.arguments
            met = trace_of(self.problem.model, key, params, values, args, kwargs, Redrawn)
            return {name: met[name]["value"] for name in observed}

        given = {name: found[name] for name in self.deciding(found)}
        run = self.problem.bound.map_in_batches("predictive", one)
        return run(given, self.params, key=noise_key)

    def log_likelihood(self, draws: Draws) -> dict[str, jax.Array]:
        """Pointwise log likelihood of each observed site at each draw (one leading axis)."""
        self.problem.arguments.require_data("log_likelihood()")
        given = {name: draws[name] for name in self.deciding(draws)}
        observed = [s.name for s in self.problem.program.sites if s.kind == "observed"]

        def one(_key, values, params):
            met = self.met_at(values, params)
            return {n: met[n]["fn"].log_prob(met[n]["value"]) for n in observed}

        return self.problem.bound.map_in_batches("log_likelihood", one)(given, self.params)

    # ------------------------------------------------------------------------------------ NUTS

    def nuts_init(self, num_chains: int | None = None, rng_key: Any = None) -> dict[str, Any]:
        """Start and inverse mass matrix for NumPyro's NUTS, in unconstrained space.

        The start is the mean; of ``num_chains`` chains each starts at a draw of its own.

        ``init = posterior.nuts_init()``, then
        ``MCMC(NUTS(model, inverse_mass_matrix=init["inverse_mass_matrix"]), ...)``
        and ``mcmc.run(rng_key, *args, init_params=init["init_params"])``.
        """
        discrete = [site.name for site in self.problem.program.latent if site.is_discrete]
        if discrete:
            raise SiteError(
                discrete[0],
                "it is discrete, and NUTS moves continuous sites alone",
                "draws = result.guide.resample(0, 1000)",
                advice="Importance resampling takes every site; for MCMC sum the site out, or see "
                "numpyro.infer.DiscreteHMCGibbs.",
            )
        found = self.sample(rng_key, 1000)
        names = sorted(site.name for site in self.problem.program.latent)

        def one(_key, values, params):
            # As NUTS sees the model: a support may depend on other sites.
            model, key = self.problem.model, jax.random.key(0)
            args, kwargs = self.problem.arguments
            met = trace_of(model, key, params, values, args, kwargs, nullcontext)
            return {n: biject_to(met[n]["fn"].support).inv(values[n]) for n in names}

        given = {name: found[name] for name in self.deciding(found)}
        free = self.problem.bound.map_in_batches("free", one)(given, self.params)
        start, variance = {}, []
        for name in names:
            # A draw may be rounded to the end of its interval.
            x = np.where(np.isfinite(free[name]), free[name], np.nan)
            first = np.nan_to_num(x[:num_chains]) if num_chains else np.nanmean(x, 0)
            start[name] = jnp.asarray(first)
            variance.append(np.nanvar(x, 0).ravel())
        return {"init_params": start, "inverse_mass_matrix": jnp.concatenate(variance)}


class Redrawn(Interpretation):
    """The model with its data drawn anew, each from what was drawn before it.

    A site that the model's own ``condition`` gives a value keeps it.
    """

    def visit(self, msg: dict[str, Any]) -> None:
        if not msg["is_observed"] or isinstance(msg["fn"], Unit):
            return
        if not is_fixed(msg) and not is_conditioned(self, msg):
            msg["is_observed"], msg["value"] = False, None  # the seed outside gives it a key
