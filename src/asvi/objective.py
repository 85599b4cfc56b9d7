"""Takes model and guide; gives the ELBO and its gradient, right inside control flow too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions import Distribution, Kumaraswamy, LogNormal, kl_divergence
from numpyro.distributions.util import scale_and_mask
from numpyro.infer import elbo as stock

from asvi.errors import AsviError, SiteError
from asvi.interpretation import Interpretation
from asvi.stacked import Stacked, log_prob_at

__all__ = ["ELBO", "log_density", "trace_of"]

Estimator = Literal["plain", "path", "analytic"]
Trace = dict[str, dict[str, Any]]


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

    >>> import numpyro, numpyro.distributions as dist, asvi
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

    can_infer_discrete = False

    def __init__(
        self,
        num_particles: int = 1,
        estimator: Estimator = "plain",
        vectorize_particles: bool | Callable = True,
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
        self.estimator = estimator
        super().__init__(num_particles=num_particles, vectorize_particles=vectorize_particles)

    def loss_with_mutable_state(self, rng_key, param_map, model, guide, *args, **kwargs):
        """The negative ELBO, and the values of ``numpyro.mutable`` sites of the model."""

        def one_draw(key: jax.Array):
            terms, mutable = self.site_terms(key, param_map, model, guide, *args, **kwargs)
            return sum(terms.values(), start=jnp.zeros(())), mutable

        if self.num_particles == 1:
            elbo, mutable = one_draw(rng_key)
        else:
            keys = jax.random.split(rng_key, self.num_particles)
            elbos, mutable = self.vectorize_particles_fn(one_draw, keys)
            elbo = jnp.mean(elbos)
            mutable = jax.tree.map(lambda x: jnp.mean(x, axis=0), mutable)
        return {"loss": -elbo, "mutable_state": mutable or None}

    def site_terms(
        self, rng_key, param_map, model, guide, *args, **kwargs
    ) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        """One draw's contribution to the ELBO by site, and the model's mutable state."""
        share = 0.0 if self.estimator == "path" else None
        return self.mixed_terms(rng_key, param_map, share, model, guide, args, kwargs)

    def mixed_terms(
        self, rng_key, param_map, score_share, model, guide, args, kwargs
    ) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        r"""As :meth:`site_terms`, with a share of the score in the gradient.

        The plain gradient is the path's plus the score :math:`-\nabla_\phi \log q_\phi(x)`, whose
        mean is zero. ``score_share`` weighs it: 0 is the path estimator, 1 the plain one, and a
        number that the compiled program takes as input is both. None is plain, at one run of the
        guide less.
        """
        model_key, guide_key = jax.random.split(rng_key)
        drawn = trace_of(guide, guide_key, param_map, {}, args, kwargs)
        latent = _latent(drawn)
        for name, site in latent.items():
            _check_reparameterized(name, site["fn"])
        values = {name: site["value"] for name, site in drawn.items() if _is_random(site)}
        met = trace_of(model, model_key, param_map, values, args, kwargs)
        _check_match(met, latent)

        densities = latent
        if score_share is not None:
            fixed = jax.tree.map(partial(_scale_gradient, score_share), param_map)
            densities = _latent(trace_of(guide, guide_key, fixed, values, args, kwargs))
        terms = {}
        for name, site in met.items():
            if site["type"] == "sample" and name not in latent:
                terms[name] = log_density(site)
        for name, site in latent.items():
            divergence = None
            if self.estimator == "analytic" and name in met:
                divergence = _divergence(site, met[name])
            if divergence is not None:
                terms[name] = -divergence
            else:
                prior = log_density(met[name]) if name in met else 0.0
                terms[name] = prior - log_density(densities[name])
        mutable = {name: m["value"] for name, m in met.items() if m["type"] == "mutable"}
        return terms, mutable


def _scale_gradient(share: Any, x: jax.Array) -> jax.Array:
    """``x``, with its gradient times ``share``."""
    fixed = jax.lax.stop_gradient(x)
    return fixed + share * (x - fixed)


def trace_of(program: Callable, key, params, values, args, kwargs) -> Trace:
    def parameters(msg):
        return params.get(msg["name"]) if msg["type"] in ("param", "mutable") else None

    with (
        handlers.trace() as trace,
        handlers.seed(rng_seed=key),
        handlers.substitute(substitute_fn=parameters),
        handlers.substitute(data=values),
        Interpretation(),
    ):
        program(*args, **kwargs)
    return trace


def _is_random(site: dict[str, Any]) -> bool:
    return site["type"] == "plate" or (site["type"] == "sample" and not site["is_observed"])


def _latent(trace: Trace) -> Trace:
    return {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}


def log_density(site: dict[str, Any]) -> jax.Array:
    """Log density of a site of a trace, scaled and masked, summed over the site."""
    log_prob = log_prob_at(site["fn"], site["value"], site["intermediates"])
    return jnp.sum(scale_and_mask(log_prob, site["scale"]))


def _divergence(drawn: dict[str, Any], met: dict[str, Any]) -> jax.Array | None:
    """KL(q || p) of a site at its parents' values, where it is known in closed form."""
    same = drawn["scale"] is None and met["scale"] is None
    known = isinstance(drawn["scale"], float) and isinstance(met["scale"], float)
    if not same and not (known and drawn["scale"] == met["scale"]):
        return None
    divergence = _closed_form(drawn["fn"], met["fn"])
    if divergence is None:
        return None
    return jnp.sum(scale_and_mask(divergence, met["scale"]))


def _closed_form(q: Distribution, p: Distribution) -> jax.Array | None:
    if isinstance(q, Stacked) and isinstance(p, Stacked):
        known = []

        def one_step(q: Distribution, p: Distribution) -> jax.Array:
            divergence = _closed_form(q, p)
            known.append(divergence is not None)
            return jnp.zeros(()) if divergence is None else divergence

        divergences = jax.vmap(one_step)(q.step_dist, p.step_dist)
        return divergences if known[-1] else None
    if type(q) is LogNormal and type(p) is LogNormal:  # the divergence ignores bijections
        return _closed_form(q.base_dist, p.base_dist)
    if isinstance(q, Kumaraswamy):  # NumPyro's is a truncated series
        return None
    try:
        return kl_divergence(q, p)
    except NotImplementedError:
        return None


def _check_reparameterized(name: str, fn: Distribution) -> None:
    if fn.has_rsample:
        return
    step = fn
    while isinstance(step, Stacked):
        step = step.step_dist
    kind = "discrete" if step.support.is_discrete else "continuous, without reparameterised draws"
    raise SiteError(
        name,
        f"it is {kind} ({type(step).__name__}), and asvi.ELBO cannot yet take its gradient",
        _MENDED["discrete" if step.support.is_discrete else "continuous"],
        advice="Sum it out, or give it a prior with reparameterised draws.",
    )


_MENDED = {
    "discrete": "mixture = dist.MixtureSameFamily(dist.Categorical(probs=weights), components)\n"
    'numpyro.sample("y", mixture, obs=y)   # the discrete site is summed out',
    "continuous": "dist.Normal(loc, scale)   # or another distribution with `has_rsample`",
}


def _check_match(met: Trace, latent: Trace) -> None:
    for name in _latent(met):
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
