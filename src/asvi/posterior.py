"""Takes fitted parameters; gives draws, densities, moments, predictions and ArviZ data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import Unit, biject_to
from numpyro.infer import Predictive

from asvi.bodies import is_conditioned
from asvi.errors import AsviError, SiteError
from asvi.families.structured import AutoStructuredNormal
from asvi.fitting.problem import Problem
from asvi.guide import AutoASVI
from asvi.interpretation import Interpretation
from asvi.ordinary import is_fixed
from asvi.psis import Smoothed, smooth
from asvi.traces import log_density, trace_of

__all__ = ["Posterior", "over_draws"]

Draws = dict[str, Any]


class Posterior:
    """A fitted distribution over the model's latent sites.

    All draws are dictionaries by site name, with the draws' axes first.

    >>> import jax, numpyro, numpyro.distributions as dist, asvi
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> guide = asvi.fit(model, 2.0, progress=False).guide
    >>> draws = guide.sample(jax.random.key(1), (500,))
    >>> draws["mu"].shape, guide.log_prob(draws).shape
    ((500,), (500,))
    >>> bool(abs(guide.mean()["mu"] - 1.98) < 0.1)
    True
    """

    def __init__(self, problem: Problem, params: dict[str, jax.Array]):
        self.problem, self.params = problem, params
        self._summary: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] | None = None

    # ---------------------------------------------------------------------------------- draws

    def sample(
        self, key: jax.Array, shape: tuple[int, ...] = (), *args: Any, **kwargs: Any
    ) -> Draws:
        """Draws of every latent and deterministic site, each of shape ``shape + site``.

        With arguments, as to the model, the draws are those at these arguments: an amortised
        family (:class:`~asvi.families.Amortized`) reads the new points' data, however many they
        are. Without, they are those of the fit.
        """
        if args or kwargs:
            return self._at(args, kwargs)._draw(key, shape)[0]
        return self._draw(key, shape)[0]

    def _at(self, args: tuple, kwargs: dict[str, Any]) -> Posterior:
        """The same parameters at other arguments."""
        return Posterior(self.problem.at(args, kwargs), self.params)

    def elbo(
        self, key: jax.Array, *args: Any, draws: int = 100, **kwargs: Any
    ) -> tuple[float, float]:
        """The ELBO of other data at the fitted parameters, and its standard error.

        For an amortised family it is the held-out ELBO of new points; without arguments, that of
        the data of the fit.
        """
        at = self._at(args, kwargs) if args or kwargs else self

        def compiled(keys, params):
            def one(key):
                return sum(at.problem.terms_at(params, key).values(), jnp.zeros(()))

            return jax.lax.map(one, keys, batch_size=32)

        run = at.problem.jit("elbo", lambda: compiled)
        found = np.asarray(run(jax.random.split(key, draws), self.params), float)
        return float(found.mean()), float(found.std(ddof=1) / np.sqrt(draws))

    def _draw(self, key: jax.Array, shape: tuple[int, ...]) -> tuple[Draws, jax.Array]:
        """Draws, deterministic sites among them, and the guide's log density at each.

        Of plates that are seen in parts a draw has the rows, by the plate's name.
        """

        def compiled(keys, params):
            return over_draws(lambda key: self.draw_one(key, params), keys)

        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        keys = jax.random.split(key, prod(shape))
        drawn, log_q = self.problem.jit("draw", lambda: compiled)(keys, self.params)
        reshaped = {k: v.reshape(shape + v.shape[1:]) for k, v in drawn.items()}
        return reshaped, log_q.reshape(shape)

    def chains(self, key: jax.Array, draws: int) -> tuple[Draws, jax.Array, jax.Array]:
        """Draws (chains, draws, ...), and their log densities by model and guide."""
        found, log_q = self._draw(key, (1, draws))
        return found, self.model_log_prob(found), log_q

    def draw_one(self, key: jax.Array, params: dict[str, Any]) -> tuple[Draws, jax.Array]:
        """One draw and its log density, to be recorded."""
        problem = self.problem
        drawn = trace_of(problem.guide, key, params, {}, *problem.arguments)
        latent, log_q = _split(drawn)
        rows = {name: drawn[name]["value"] for name in self.parts if name in drawn}
        given = {**latent, **rows}
        met = trace_of(problem.model, jax.random.key(0), params, given, *problem.arguments)
        made = {n: s["value"] for n, s in met.items() if s["type"] == "deterministic"}
        return {**given, **made}, log_q

    @cached_property
    def parts(self) -> dict[str, int]:
        """Plates that are seen in parts, by name, and how many of their members are seen."""
        plates = [p for site in self.problem.program.sites for p in site.plates]
        return {p.name: p.subsample_size for p in plates if p.subsample_size != p.size}

    def log_prob(self, draws: Draws) -> jax.Array:
        """Log density of the fitted distribution at draws of all latent sites."""
        guide = self.problem.guide
        names = self._given(draws)
        if not isinstance(guide, AutoASVI | AutoStructuredNormal):
            return self._log_prob_of_whole(draws, names)

        def compiled(values, params):
            def one(values):
                args, kwargs = self.problem.arguments
                if isinstance(guide, AutoStructuredNormal):
                    return guide.log_density_at(params, values, args, kwargs)
                drawn = trace_of(guide, jax.random.key(0), params, values, args, kwargs)
                return _split(drawn)[1]

            return over_draws(one, values)

        return self._over(draws, names, self.problem.jit("log_prob", lambda: compiled))

    def _log_prob_of_whole(self, draws: Draws, names: list[str]) -> jax.Array:
        """A family of the whole model: density of the unconstrained vector, and the Jacobian."""
        guide: Any = self.problem.guide

        def compiled(values, params):
            density = guide.get_posterior(params)

            def one(values):
                free, jacobian = {}, jnp.zeros(())
                for name in guide._init_locs:
                    transform = biject_to(guide.prototype_trace[name]["fn"].support)
                    free[name] = transform.inv(values[name])
                    change = transform.log_abs_det_jacobian(free[name], values[name])
                    jacobian += jnp.sum(change)
                flat = jnp.concatenate([jnp.ravel(free[name]) for name in guide._init_locs])
                return density.log_prob(flat) - jacobian

            return over_draws(one, values)

        return self._over(draws, names, self.problem.jit("log_prob", lambda: compiled))

    def model_log_prob(self, draws: Draws) -> jax.Array:
        """The model's joint log density of data and draws; unnormalised posterior density.

        It is that of :func:`numpyro.infer.util.log_density`. Where plates are seen in parts, it is
        that of the rows that the draws have by the plates' names.
        """
        self.problem.arguments.need_data("model_log_prob()")
        names = self._given(draws)

        def compiled(values, params):
            def one(values):
                met = self._met(values, params)
                return sum(log_density(s) for s in met.values() if s["type"] == "sample")

            return over_draws(one, values)

        return self._over(draws, names, self.problem.jit("model_log_prob", lambda: compiled))

    def _met(self, values: Draws, params: dict[str, Any]) -> dict[str, Any]:
        """The model's sites at one draw."""
        return trace_of(
            self.problem.model, jax.random.key(0), params, values, *self.problem.arguments
        )

    def _over(self, draws: Draws, names: list[str], run: Callable) -> jax.Array:
        """Apply ``run`` to draws with any leading axes."""
        program = self.problem.program
        event = len(program[names[0]].shape)
        lead = jnp.shape(draws[names[0]])[: jnp.ndim(draws[names[0]]) - event]
        flat = {}
        for name in names:
            value = jnp.asarray(draws[name])
            shape = (self.parts[name],) if name in self.parts else program[name].shape
            if value.shape != lead + shape:
                raise AsviError(
                    f"site {name!r}: the draws given have shape {value.shape}; wanted is {lead} "
                    f"for the draws and {shape} for the site."
                )
            flat[name] = value.reshape((prod(lead), *shape))
        return run(flat, self.params).reshape(lead)

    def _given(self, draws: Draws) -> list[str]:
        """What of the draws decides a density: all latent sites, and rows of plates."""
        latent = self.problem.program.latent
        names = [site.name for site in latent]
        missing = [name for name in names if name not in draws]
        if missing:
            raise AsviError(
                f"The draws lack {', '.join(missing)}; a joint density needs every latent site."
            )
        for site in latent:
            for plate in site.plates:
                if plate.name in self.parts and plate.name not in draws:
                    raise AsviError(
                        f"The draws lack the rows of plate {plate.name!r}, of whose members "
                        f"{site.name!r} has {plate.subsample_size} of {plate.size}.\n"
                        f"Keep them: draws = result.posterior.sample(key, (1000,)) has them as "
                        f"draws[{plate.name!r}]."
                    )
        return names + [name for name in self.parts if name in draws]

    # -------------------------------------------------------------------------------- moments

    def _moments(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        if self._summary is None:
            draws = self.sample(jax.random.key(0), (4000,))
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

    def quantiles(
        self, levels: Any = (0.05, 0.5, 0.95), draws: int = 4000
    ) -> dict[str, np.ndarray]:
        """Marginal quantiles of each site; the levels are the first axis."""
        found = self.sample(jax.random.key(0), (draws,))
        return {
            k: np.quantile(np.asarray(v, float), levels, axis=0)
            for k, v in found.items()
            if k not in self.parts
        }

    # ------------------------------------------------------------------------------ importance

    def importance(self, key: jax.Array, draws: int = 2000) -> tuple[Draws, Smoothed]:
        """Draws, and their Pareto-smoothed weights against the exact posterior."""
        self.problem.arguments.need_data("importance weights")
        found, log_q = self._draw(key, (draws,))
        log_p, log_q = np.asarray(self.model_log_prob(found), float), np.asarray(log_q, float)
        # A draw beyond what floats hold has no density at all: it weighs nothing.
        log_ratio = log_p - np.where(np.isfinite(log_q), log_q, np.inf)
        return found, smooth(log_ratio)

    def resample(self, key: jax.Array, n: int = 1000, *, draws: int | None = None) -> Draws:
        """``n`` draws, resampled by Pareto-smoothed importance weights: nearer the exact posterior.

        Trust them where the diagnosis says "usable with resampling" (k̂ below 0.7).
        """
        draw_key, choose_key = jax.random.split(key)
        found, weights = self.importance(draw_key, draws or max(4000, 4 * n))
        chosen = jax.random.choice(
            choose_key, len(weights.log_weights), (n,), p=jnp.exp(jnp.asarray(weights.log_weights))
        )
        return {name: value[chosen] for name, value in found.items()}

    # ------------------------------------------------------------------------------ prediction

    def predictive(
        self, key: jax.Array, *args: Any, draws: int = 1000, **kwargs: Any
    ) -> dict[str, jax.Array]:
        """Draws of the observed sites given posterior draws; at new arguments, if any are given.

        Give arguments as to the model, with None where data were: ``predictive(key, x_new, None)``.
        """
        draw_key, noise_key = jax.random.split(key)
        found = self.sample(draw_key, (draws,))
        if args or kwargs:
            latent = {site.name: found[site.name] for site in self.problem.program.latent}
            model = handlers.substitute(Interpretation(self.problem.model), data=self.params)
            return Predictive(model, latent)(noise_key, *args, **kwargs)
        self.problem.arguments.need_data("predictive() without arguments")
        observed = [s.name for s in self.problem.program.sites if s.kind == "observed"]

        def compiled(values, keys, params):
            def one(pair):
                values, key = pair
                args, kwargs = self.problem.arguments
                met = trace_of(self.problem.model, key, params, values, args, kwargs, Redrawn)
                return {name: met[name]["value"] for name in observed}

            return over_draws(one, (values, keys))

        run = self.problem.jit("predictive", lambda: compiled)
        given = {name: found[name] for name in self._given(found)}
        return run(given, jax.random.split(noise_key, draws), self.params)

    def log_likelihood(self, draws: Draws) -> dict[str, jax.Array]:
        """Pointwise log likelihood of each observed site at each draw (one leading axis)."""
        self.problem.arguments.need_data("log_likelihood()")
        given = {name: draws[name] for name in self._given(draws)}
        observed = [s.name for s in self.problem.program.sites if s.kind == "observed"]

        def compiled(values, params):
            def one(values):
                met = self._met(values, params)
                return {n: met[n]["fn"].log_prob(met[n]["value"]) for n in observed}

            return over_draws(one, values)

        return self.problem.jit("log_likelihood", lambda: compiled)(given, self.params)

    # ------------------------------------------------------------------------------------ NUTS

    def nuts_init(self, key: jax.Array | None = None) -> dict[str, Any]:
        """Start and inverse mass matrix for NumPyro's NUTS, in unconstrained space.

        ``init = posterior.nuts_init()``, then
        ``MCMC(NUTS(model, inverse_mass_matrix=init["inverse_mass_matrix"]), ...)``
        and ``mcmc.run(key, *args, init_params=init["init_params"])``.
        """
        discrete = [site.name for site in self.problem.program.latent if site.is_discrete]
        if discrete:
            raise SiteError(
                discrete[0],
                "it is discrete, and NUTS moves continuous sites alone",
                "draws = result.posterior.resample(jax.random.key(0), 1000)",
                advice="Importance resampling takes every site; for MCMC sum the site out, or see "
                "numpyro.infer.DiscreteHMCGibbs.",
            )
        key = jax.random.key(0) if key is None else key
        found = self.sample(key, (1000,))
        names = sorted(site.name for site in self.problem.program.latent)

        def compiled(values, params):
            def one(values):
                # As NUTS sees the model: a support may depend on other sites.
                model, key = self.problem.model, jax.random.key(0)
                args, kwargs = self.problem.arguments
                met = trace_of(model, key, params, values, args, kwargs, nullcontext)
                return {n: biject_to(met[n]["fn"].support).inv(values[n]) for n in names}

            return over_draws(one, values)

        given = {name: found[name] for name in self._given(found)}
        free = self.problem.jit("free", lambda: compiled)(given, self.params)
        start, variance = {}, []
        for name in names:
            # A draw may be rounded to the end of its interval.
            x = np.where(np.isfinite(free[name]), free[name], np.nan)
            start[name] = jnp.asarray(np.nanmean(x, 0))
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


def over_draws(one: Callable, draws: Any) -> Any:
    """``one`` at every row of ``draws``, in equal batches: a smaller last one is a program more.

    >>> over_draws(lambda x: 2 * x, jnp.arange(4000)).shape
    (4000,)
    """
    count = len(jax.tree.leaves(draws)[0])
    sizes = [n for n in range(64, 257) if count % n == 0]
    return jax.lax.map(one, draws, batch_size=max(sizes, default=256))


def _split(drawn: dict[str, Any]) -> tuple[Draws, jax.Array]:
    """Values of the latent sites in a guide's trace, and their joint log density."""
    latent = {
        name: site["value"]
        for name, site in drawn.items()
        if site["type"] == "sample" and not site["infer"].get("is_auxiliary")
    }
    sites = [site for site in drawn.values() if site["type"] == "sample"]
    return latent, jnp.sum(jnp.stack([log_density(site) for site in sites]))
