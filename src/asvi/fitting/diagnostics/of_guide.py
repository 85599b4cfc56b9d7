"""Takes a guide's draws and its run; gives a Report by importance weights."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from asvi.fitting.correction.pareto_smoothing import SmoothedWeights, pareto_smooth
from asvi.fitting.diagnostics.guide_verdict import GuideMeasures, verdict_of_guide
from asvi.fitting.diagnostics.report import Report
from asvi.fitting.diagnostics.settings import VerdictSettings
from asvi.fitting.guide_draws import GuideDraws
from asvi.program.improper import describe_improper

__all__ = ["judge_guide"]


def judge_guide(
    posterior: GuideDraws,
    outcome: Any,
    key: jax.Array | None = None,
    settings: VerdictSettings = VerdictSettings(),
) -> Report:
    """Judge ``posterior`` by importance weights against the model's own density."""
    key = jax.random.key(20) if key is None else key
    problem, details = posterior.problem, outcome.run
    draws, weights = posterior.importance(key, settings.draws)
    steps = outcome.num_steps * getattr(details, "lanes_after_race", 1)
    numbers = {
        "k_hat": weights.k_hat,
        "k_hat_by_site": _k_hat_by_site(posterior, key, settings.draws // 2),
        "num_samples": settings.draws,
        "effective_draws": weights.effective_draws,
        "mean_shift_sd": _shift_by_site(problem, draws, weights, settings),
        "elbo": outcome.elbo,
        "evidence_gain": _evidence_gain(weights.log_ratios),
        "converged": outcome.converged,
        "skipped_share": details.skipped_steps / max(1, steps),
    }
    measures = GuideMeasures(
        **numbers,
        is_discrete=any(site.is_discrete for site in problem.program.latent),
        last_gain=(details.gains or [np.inf])[-1],
        message=outcome.message,
        rounding=details.rounding,
        settings=settings,
    )
    verdict, advice, reasons = verdict_of_guide(measures)
    return Report(
        verdict=verdict,
        advice=advice,
        reasons=tuple(reasons),
        notes=describe_improper(problem.improper),
        # E|z| of a mean of as many draws as the weights are worth.
        shift_error=float(np.sqrt(2 / np.pi) / np.sqrt(max(weights.effective_draws, 1.0))),
        elbo_se=outcome.elbo_se,
        dependence=_dependence(problem, draws, settings),
        **numbers,
    )


def _shift_by_site(
    problem: Any, draws: dict[str, Any], weights: SmoothedWeights, settings: VerdictSettings
) -> dict[str, float]:
    """How far weights move the means of each site, in sds, as a mean over its numbers."""
    mass, shift = np.exp(weights.log_weights), {}
    for site in problem.program.latent:
        x = np.asarray(draws[site.name], float).reshape(len(mass), -1)
        if not np.isfinite(x).all():
            shift[site.name] = np.inf  # its draws have no mean
            continue
        mean, sd = mass @ x, x.std(0)
        if weights.effective_draws >= settings.min_effective_draws:
            # A guide that is too wide must not hide how far it is.
            sd = np.minimum(sd, np.sqrt(mass @ (x - mean) ** 2))
        shift[site.name] = float(np.mean(np.abs(mean - x.mean(0)) / np.maximum(sd, 1e-12)))
    return shift


def _evidence_gain(log_ratios: np.ndarray) -> float:
    """Nats by which the weighted bound exceeds the ELBO."""
    finite = log_ratios[np.isfinite(log_ratios)]
    if not len(finite):
        return np.inf
    highest = finite.max()
    return float(np.log(np.mean(np.exp(finite - highest))) + highest - finite.mean())


def _k_hat_by_site(posterior: GuideDraws, key: jax.Array, draws: int) -> dict[str, float]:
    """k̂ of the terms of each latent site and the sites that it is a parent of.

    A family of the whole model knows nothing of parents: there it is all that depends on the site.
    """
    problem = posterior.problem
    whole = not problem.guide.by_site

    def one(key, _row, params):
        return problem.terms_at(params, key)

    run = problem.bound.map_in_batches("site_terms", one)
    by_site = run((), posterior.params, key=key, count=draws)
    terms = {k: np.asarray(v, float) for k, v in by_site.items()}
    sites = [problem.program.with_parents(site) for site in problem.program.sites]
    k_hats = {}
    for site in problem.program.latent:
        near = {site.name: None}
        for s in sites:  # in the order of the program: a parent comes before its children
            if site.name in s.parents or (whole and near.keys() & set(s.parents)):
                near[s.name] = None
        own = [terms[name] for name in near if name in terms]
        if own:
            k_hats[site.name] = pareto_smooth(np.sum(own, 0)).k_hat
    return k_hats


def _dependence(problem: Any, draws: dict[str, Any], settings: VerdictSettings) -> float | None:
    """Nats of dependence between latent numbers, by a Gaussian estimate; None for too many."""
    count = settings.draws
    columns = [np.asarray(draws[s.name], float).reshape(count, -1) for s in problem.program.latent]
    x = np.concatenate(columns, 1)
    if not np.isfinite(x).all():
        return None
    x = x[:, x.std(0) > 0]
    size = x.shape[1]
    if not 1 < size <= settings.max_dependence_numbers:
        return 0.0 if size <= 1 else None
    sign, log_det = np.linalg.slogdet(np.corrcoef(x.T))
    # Expected value of this estimate without any dependence, for this many draws.
    chance = size * (size - 1) / (4 * count)
    return float(max(0.0, -0.5 * log_det - chance)) if sign > 0 else None
