"""Takes model and guide; gives the ELBO and its gradient, right inside control flow too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, Kumaraswamy, LogNormal, kl_divergence
from numpyro.distributions.util import scale_and_mask
from numpyro.infer import elbo as stock

from asvi.errors import AsviError, SiteError, warn_user
from asvi.families.guide_protocol import as_guide
from asvi.objective import discrete_choice as discrete_sites
from asvi.objective.discrete_choice import score_of
from asvi.program.run_trace import Trace, is_random, latent_of, log_densities, log_density, trace_of
from asvi.program.statements.masks import complete_model
from asvi.program.statements.stacked import Stacked

__all__ = ["ELBO", "Draw", "log_density", "score_part", "trace_of"]

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
        discrete: discrete_sites.EstimatorRequest = "auto",
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
        self.estimator, self.discrete = estimator, discrete
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

        def run(given: dict[str, Any]) -> _Run:
            found = self._run(rng_key, param_map, score_share, model, guide, args, kwargs, given)
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
        choice = discrete_sites.choose_estimators(dependence, found.latent, hard, self.discrete)
        return _enumerated(run, found, choice, dependence)

    def _run(self, rng_key, param_map, score_share, model, guide, args, kwargs, given) -> _Run:
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
                divergence = _divergence(site, met[name])
            if divergence is not None:
                terms[name] = -divergence
            else:
                prior = log_densities(met[name]) if name in met else 0.0
                own[name] = (
                    log_densities(site) if fixed is None else _mixed(score_share, site, fixed[name])
                )
                terms[name] = prior - own[name]
        mutable = {name: m["value"] for name, m in met.items() if m["type"] == "mutable"}
        return _Run(latent, terms, own, mutable)


class Draw(NamedTuple):
    """One draw: terms of the ELBO by site, and scores with their costs of sites that need them."""

    terms: dict[str, jax.Array]
    scores: dict[str, tuple[jax.Array, jax.Array]]
    mutable: dict[str, Any]
    latent: Trace | None = None  # the guide's sites, where none had to be summed out


class _Run(NamedTuple):
    latent: Trace
    terms: dict[str, jax.Array]  # one number for each element
    own: dict[str, jax.Array]  # log q as it stands in the term
    mutable: dict[str, Any]


def score_part(scores: dict[str, tuple[jax.Array, jax.Array]]) -> jax.Array:
    """Zero, with the score-function gradient of the ELBO; draws on the leading axis.

    The baseline of a draw is the mean cost of the others.
    """
    total = jnp.zeros(())
    for name, (log_q, cost) in scores.items():
        cost = jax.lax.stop_gradient(cost)
        draws = len(cost)
        if draws == 1:
            warn_user(
                f"site {name!r} has score-function gradients, which one draw gives with large "
                "variance: there is no other to compare it with.\n"
                "Write instead:\n    asvi.ELBO(num_particles=8)"
            )
            advantage = cost
        else:
            advantage = (cost - jnp.mean(cost, 0)) * draws / (draws - 1)
        moving = log_q - jax.lax.stop_gradient(log_q)
        # Impossible draws are told by the terms themselves; here they must not turn into NaN.
        total = total + jnp.sum(jnp.where(jnp.isfinite(log_q), moving * advantage, 0.0)) / draws
    return total


def _enumerated(
    run: Callable[[dict[str, Any]], _Run],
    first: _Run,
    choice: discrete_sites.EstimatorChoice,
    dependence: Any,
) -> Draw:
    """Terms with the enumerated sites summed out, and the scores of the others."""
    known: Any = choice.values
    tried = discrete_sites.configurations(choice.joint, known, first.latent, whole=True)
    cells = discrete_sites.configurations(choice.parallel, known, first.latent, whole=False)
    local: set[str] = set()
    for name in choice.parallel:
        local |= dependence.names_reached(name)

    def at_cell(cell: dict[str, Any], joint: dict[str, Any]):
        found = run({**joint, **cell})
        for name in choice.score:
            if name in found.own:
                # The gradient of log q at a drawn value has mean zero: it is but noise.
                own = found.own[name]
                found.terms[name] = found.terms[name] + own - jax.lax.stop_gradient(own)
        weight = sum((score_of(found.latent[name]) for name in choice.parallel), jnp.zeros(()))
        logs = {n: score_of(found.latent[n]) for n in (*choice.joint, *choice.score)}
        return found.terms, jnp.exp(weight), logs, found.mutable

    def at_joint(joint: dict[str, Any]):
        if choice.parallel:
            terms, weight, logs, mutable = jax.vmap(lambda cell: at_cell(cell, joint))(cells)
            summed = {}
            for name, term in terms.items():
                if name in local:
                    summed[name] = jnp.sum(_weighted(_as_wide(weight, term), term), 0)
                else:
                    summed[name] = term[0]  # the same in every configuration
            terms, logs, mutable = summed, *jax.tree.map(lambda x: x[0], (logs, mutable))
        else:
            terms, _weight, logs, mutable = at_cell({}, joint)
        log_weight = sum((jnp.sum(logs[name]) for name in choice.joint), jnp.zeros(()))
        scores = {}
        for name in choice.score:
            cost = discrete_sites.cost_of(name, logs[name].shape, dependence, terms)
            scores[name] = (logs[name], cost)
        return {name: jnp.sum(term) for name, term in terms.items()}, log_weight, scores, mutable

    if not choice.joint:
        terms, _log_weight, scores, mutable = at_joint({})
        return Draw(terms, scores, mutable)
    terms, log_weight, scores, mutable = jax.vmap(at_joint)(tried)
    weight = jnp.exp(log_weight)
    terms = {name: jnp.sum(_weighted(weight, term)) for name, term in terms.items()}
    scores = {n: (log_q, _weighted(weight, cost)) for n, (log_q, cost) in scores.items()}
    return Draw(terms, scores, jax.tree.map(lambda x: x[0], mutable))


def _as_wide(weight: jax.Array, term: jax.Array) -> jax.Array:
    """The weight without axes that the term has not: there it is one number for all cells.

    Such a term is in closed form and the same whatever the cells are, and counts once.
    """
    shape = (1,) * (jnp.ndim(weight) - jnp.ndim(term)) + jnp.shape(term)[1:]
    wide = [-k for k in range(1, jnp.ndim(weight)) if shape[-k] == 1 and weight.shape[-k] != 1]
    return jnp.mean(weight, tuple(wide), keepdims=True)


def _weighted(weight: jax.Array, term: jax.Array) -> jax.Array:
    """``weight * term``; the weight's first axis is the term's, the rest aligned from the right.

    What cannot happen weighs nothing, whatever it costs.
    """
    between = jnp.ndim(term) - jnp.ndim(weight)
    if between < 0:
        term = term.reshape(term.shape[:1] + (1,) * -between + term.shape[1:])
    shape = weight.shape[:1] + (1,) * max(0, between) + weight.shape[1:]
    weight = weight.reshape(shape)
    possible = weight > 0
    return jnp.where(possible, weight * jnp.where(possible, term, 0.0), 0.0)


def _mixed(score_share: Any, drawn: dict[str, Any], fixed: dict[str, Any]) -> jax.Array:
    """Log q of a draw: one number, known in two ways whose gradients are plain and path."""
    path = log_densities(fixed)
    if isinstance(score_share, float) and score_share == 0.0:
        return path
    # Where a density is infinite, 0 times it must not be NaN.
    plain = jnp.where(score_share == 0, path, log_densities(drawn))
    return jnp.where(score_share == 1, plain, score_share * plain + (1 - score_share) * path)


def _divergence(drawn: dict[str, Any], met: dict[str, Any]) -> jax.Array | None:
    """KL(q || p) of a site at its parents' values, where it is known in closed form."""
    same = drawn["scale"] is None and met["scale"] is None
    known = isinstance(drawn["scale"], float) and isinstance(met["scale"], float)
    if not same and not (known and drawn["scale"] == met["scale"]):
        return None
    divergence = _closed_form(drawn["fn"], met["fn"])
    if divergence is None:
        return None
    return scale_and_mask(divergence, met["scale"])


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
