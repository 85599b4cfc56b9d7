"""Takes model and guide; gives the ELBO and its gradient, right inside control flow too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from numpyro.infer import elbo as stock

from asvi.errors import AsviError, SiteError
from asvi.families.guide_protocol import as_guide
from asvi.objective.discrete_choice import EstimatorRequest, choose_estimators
from asvi.objective.draw import Draw, RunTerms
from asvi.objective.enumeration import enumerate_draw
from asvi.objective.estimators import mixed_log_q, site_divergence
from asvi.objective.score_function import score_part
from asvi.objective.settings import EstimatorSettings
from asvi.program.run_trace import Trace, is_random, latent_of, log_densities, trace_of
from asvi.program.statements.masks import complete_model

__all__ = ["ELBO"]

Estimator = Literal["plain", "path", "analytic"]


class ELBO(stock.ELBO):
    r"""The evidence lower bound, as a loss for :class:`numpyro.infer.SVI`.

    .. math:: \mathcal L = E_{q(x)}[\log p(y, x) - \log q(x)]

    The guide's values are *substituted* into the model wherever its sites stand, inside ``scan``
    (nested, reversed) and ``cond`` too, where NumPyro's own losses go wrong.

    :param num_particles: draws per step, evaluated together.
    :param estimator:

        - ``"plain"``: the gradient of the Monte Carlo average above;
        - ``"path"``: the same value, but the gradient does not go through the parameters of
          :math:`\log q`, only through the draws ("sticking the landing", Roeder et al. 2017). Its
          variance vanishes where q is the posterior; far from there it does not help;
        - ``"analytic"``: :math:`E_q[\log q - \log p]` of a site in closed form where NumPyro knows
          it (at the drawn values of the parents), Monte Carlo elsewhere.
    :param discrete: how gradients of sites without reparameterised draws are had, for all or by
        site name: ``"enumerate"`` (exact), ``"score"`` (score function with leave-one-out
        baselines; give it several draws), or ``"auto"``: enumerated where that is cheap. See
        :mod:`asvi.objective.discrete_choice`.
    :param settings: when that is; see :mod:`asvi.objective.settings`.

    >>> import numpyro, numpyro.distributions as dist, asvi
    >>> from numpyro import handlers
    >>> def model(y):
    ...     x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
    >>> guide = asvi.AutoASVI(model)
    >>> with handlers.seed(rng_seed=0), handlers.trace() as trace:
    ...     _ = guide(1.0)
    >>> params = {name: m["value"] for name, m in trace.items() if m["type"] == "param"}
    >>> loss = ELBO(num_particles=4).loss(jax.random.key(1), params, model, guide, 1.0)
    >>> loss.shape
    ()
    """

    can_infer_discrete = True

    def __init__(
        self,
        num_particles: int = 1,
        estimator: Estimator = "plain",
        vectorize_particles: bool | Callable = True,
        discrete: EstimatorRequest = "auto",
        settings: EstimatorSettings = EstimatorSettings(),
    ):
        if not isinstance(num_particles, int) or num_particles < 1:
            raise AsviError(
                f"num_particles must be a whole number from 1 up, got {num_particles}.\n"
                "Write instead:\n    asvi.ELBO(num_particles=8)"
            )
        if estimator not in ("plain", "path", "analytic"):
            raise AsviError(
                f"estimator={estimator!r} is not known; choose one of plain, path, analytic."
            )
        self.estimator, self.discrete, self.settings = estimator, discrete, settings
        super().__init__(num_particles=num_particles, vectorize_particles=vectorize_particles)

    def loss_with_mutable_state(self, rng_key, param_map, model, guide, *args, **kwargs):
        """The negative ELBO, and the values of ``numpyro.mutable`` sites of the model."""
        share = 0.0 if self.estimator == "path" else None

        def one_draw(key: jax.Array):
            drawn = self.draw(key, param_map, share, model, guide, args, kwargs)
            return sum(drawn.terms.values(), start=jnp.zeros(())), drawn.scores, drawn.mutable

        if self.num_particles == 1:
            elbos, scores, mutable = jax.tree.map(lambda x: x[None], one_draw(rng_key))
        else:
            keys = jax.random.split(rng_key, self.num_particles)
            elbos, scores, mutable = self.vectorize_particles_fn(one_draw, keys)
        mutable = jax.tree.map(lambda x: jnp.mean(x, axis=0), mutable)
        loss = -jnp.mean(elbos) - score_part(scores)
        return {"loss": loss, "mutable_state": mutable or None}

    def site_terms(
        self, rng_key, param_map, model, guide, *args, **kwargs
    ) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        """One draw's contribution to the ELBO by site, and the model's mutable state."""
        share = 0.0 if self.estimator == "path" else None
        drawn = self.draw(rng_key, param_map, share, model, guide, args, kwargs)
        return drawn.terms, drawn.mutable

    def draw(
        self,
        rng_key,
        param_map,
        score_share,
        model,
        guide,
        args,
        kwargs,
        weights: Mapping[str, Any] | None = None,
    ) -> Draw:
        r"""One draw's contribution to the ELBO by site, with what its gradient needs.

        The plain gradient is the path's plus the score :math:`-\nabla_\phi \log q_\phi(x)`, whose
        mean is zero. ``score_share`` weighs it: 0 is the path estimator, 1 the plain one, and a
        number that the compiled program takes as input is both. None is plain, at one run of the
        guide less. ``weights`` multiply the terms of the sites that they name.
        """
        weights = {} if weights is None else weights

        def run(given: dict[str, Any]) -> RunTerms:
            found = self.run(rng_key, param_map, score_share, model, guide, args, kwargs, given)
            for name, weight in weights.items():
                if name in found.terms:
                    found.terms[name] = weight * found.terms[name]
            return found

        found = run({})
        jumping = as_guide(guide).score_sites
        hard = [n for n, s in found.latent.items() if n in jumping or not s["fn"].has_rsample]
        if not hard:
            terms = {name: jnp.sum(term) for name, term in found.terms.items()}
            return Draw(terms, {}, found.mutable, found.latent)
        dependence = as_guide(guide).dependence
        choice = choose_estimators(dependence, found.latent, hard, self.discrete, self.settings)
        return enumerate_draw(run, found, choice, dependence)

    def run(self, rng_key, param_map, score_share, model, guide, args, kwargs, given) -> RunTerms:
        """One run of guide and model, with the values that are given."""
        model_key, guide_key = jax.random.split(rng_key)
        drawn = trace_of(guide, guide_key, param_map, given, args, kwargs)
        latent = latent_of(drawn)
        for name in latent.keys() & as_guide(guide).score_sites:
            # The trace saw the value before the guide cut its gradient.
            for part in ("value", "intermediates"):
                drawn[name][part] = jax.lax.stop_gradient(drawn[name][part])
        values = {name: site["value"] for name, site in drawn.items() if is_random(site)}
        model = complete_model(model, as_guide(guide).improper)
        met = trace_of(model, model_key, param_map, values, args, kwargs)
        _check_match(met, latent)

        fixed = None
        if score_share is not None:
            still = jax.tree.map(jax.lax.stop_gradient, param_map)
            fixed = latent_of(trace_of(guide, guide_key, still, values, args, kwargs))
        terms, own = {}, {}
        for name, site in met.items():
            if site["type"] == "sample" and name not in latent:
                terms[name] = log_densities(site)
        for name, site in latent.items():
            divergence = None
            if self.estimator == "analytic" and name in met:
                divergence = site_divergence(site, met[name])
            if divergence is not None:
                terms[name] = -divergence
            else:
                prior = log_densities(met[name]) if name in met else 0.0
                own[name] = (
                    log_densities(site)
                    if fixed is None
                    else mixed_log_q(score_share, site, fixed[name])
                )
                terms[name] = prior - own[name]
        mutable = {name: m["value"] for name, m in met.items() if m["type"] == "mutable"}
        return RunTerms(latent, terms, own, mutable)


def _check_match(met: Trace, latent: Trace) -> None:
    for name in latent_of(met):
        if name not in latent:
            raise SiteError(
                name,
                "it is latent in the model and missing from the guide",
                f'numpyro.sample("{name}", ...)   # in the guide, too',
            )
    for name, site in latent.items():
        if name not in met and not site["infer"].get("is_auxiliary"):
            raise SiteError(
                name,
                "it is in the guide and not in the model",
                f'numpyro.sample("{name}", ..., infer={{"is_auxiliary": True}})',
            )
