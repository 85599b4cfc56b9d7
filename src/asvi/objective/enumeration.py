"""Takes a run at given values of discrete sites; gives its terms with these sites summed out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asvi.objective.discrete_choice import EstimatorChoice
from asvi.objective.draw import Draw, RunTerms
from asvi.objective.score_function import cost_of, score_of

__all__ = ["configurations", "enumerate_draw"]


def enumerate_draw(
    run: Callable[[dict[str, Any]], RunTerms],
    first: RunTerms,
    choice: EstimatorChoice,
    dependence: Any,
) -> Draw:
    """Terms with the enumerated sites summed out, and the scores of the others."""
    known: Any = choice.values
    together = configurations(choice.joint, known, first.latent, whole=True)
    one_by_one = configurations(choice.parallel, known, first.latent, whole=False)
    local: set[str] = set()
    for name in choice.parallel:
        local |= dependence.names_reached(name)

    def at_values(parallel: dict[str, Any], joint: dict[str, Any]):
        found = run({**joint, **parallel})
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
            terms, weight, logs, mutable = jax.vmap(lambda parallel: at_values(parallel, joint))(
                one_by_one
            )
            summed = {}
            for name, term in terms.items():
                if name in local:
                    summed[name] = jnp.sum(_weigh(_fit_to_term(weight, term), term), 0)
                else:
                    summed[name] = term[0]  # the same in every configuration
            terms, logs, mutable = summed, *jax.tree.map(lambda x: x[0], (logs, mutable))
        else:
            terms, _weight, logs, mutable = at_values({}, joint)
        log_weight = sum((jnp.sum(logs[name]) for name in choice.joint), jnp.zeros(()))
        scores = {}
        for name in choice.score:
            cost = cost_of(name, logs[name].shape, dependence, terms)
            scores[name] = (logs[name], cost)
        return {name: jnp.sum(term) for name, term in terms.items()}, log_weight, scores, mutable

    if not choice.joint:
        terms, _log_weight, scores, mutable = at_joint({})
        return Draw(terms, scores, mutable)
    terms, log_weight, scores, mutable = jax.vmap(at_joint)(together)
    weight = jnp.exp(log_weight)
    terms = {name: jnp.sum(_weigh(weight, term)) for name, term in terms.items()}
    scores = {n: (log_q, _weigh(weight, cost)) for n, (log_q, cost) in scores.items()}
    return Draw(terms, scores, jax.tree.map(lambda x: x[0], mutable))


def _fit_to_term(weight: jax.Array, term: jax.Array) -> jax.Array:
    """The weight without axes that the term has not: there it is one number for all members.

    Such a term is in closed form and the same whatever the members are, and counts once.
    """
    shape = (1,) * (jnp.ndim(weight) - jnp.ndim(term)) + jnp.shape(term)[1:]
    wide = [-k for k in range(1, jnp.ndim(weight)) if shape[-k] == 1 and weight.shape[-k] != 1]
    return jnp.mean(weight, tuple(wide), keepdims=True)


def _weigh(weight: jax.Array, term: jax.Array) -> jax.Array:
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


def configurations(
    names: tuple[str, ...], values: Mapping[str, np.ndarray], drawn: Mapping[str, Any], whole: bool
) -> dict[str, np.ndarray]:
    """Values of the sites in every configuration, each (configurations, *shape of the site).

    ``whole`` tries every combination of elements; without it all elements take the same value.
    """
    if not names:
        return {}
    counts = [np.size(drawn[n]["value"]) if whole else 1 for n in names]
    each = [values[n] for n, count in zip(names, counts, strict=True) for _ in range(count)]
    table = np.array(list(itertools.product(*each))).reshape(-1, sum(counts))
    found, begin = {}, 0
    for name, count in zip(names, counts, strict=True):
        shape = jnp.shape(drawn[name]["value"])
        part = table[:, begin : begin + count]
        dtype = jnp.result_type(drawn[name]["value"])
        found[name] = np.broadcast_to(
            part.reshape((-1, *shape) if whole else (-1,) + (1,) * len(shape)), (len(table), *shape)
        ).astype(dtype)
        begin += count
    return found
