"""Takes a guide's draws and its run; gives a Report by importance weights."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from asvi.fitting.correction.pareto_smoothing import pareto_smooth
from asvi.fitting.diagnostics.report import ROUNDED, Report, Verdict, rounding_reason
from asvi.fitting.guide_draws import GuideDraws
from asvi.program.improper import describe_improper

__all__ = ["judge_guide"]

DRAWS = 4000
EQUAL = 0.9  # share of draws that count, from which on their weights are as good as equal
FAR = 0.16  # chosen on the embedded tasks, as `benchmarks/verdicts.py` reports
MANY = 0.5  # share of draws that count, from which on a rare heavy weight is no verdict
FEW = 100  # effective draws
WIDE = 1.0  # nats of divergence from which on draws are not good as they are
CLOSE = 0.1  # nats of divergence that the weights of discrete draws may show


def judge_guide(posterior: GuideDraws, outcome: Any, key: jax.Array | None = None) -> Report:
    """Judge ``posterior`` by importance weights against the model's own density."""
    key = jax.random.key(20) if key is None else key
    problem = posterior.problem
    found, weights = posterior.importance(key, DRAWS)
    log_ratios = weights.log_ratios
    mass = np.exp(weights.log_weights)
    shift = {}
    for site in problem.program.latent:
        x = np.asarray(found[site.name], float).reshape(DRAWS, -1)
        if not np.isfinite(x).all():
            shift[site.name] = np.inf  # its draws have no mean
            continue
        middle, sd = mass @ x, x.std(0)
        if weights.effective_draws >= FEW:  # a guide that is too wide must not hide how far it is
            sd = np.minimum(sd, np.sqrt(mass @ (x - middle) ** 2))
        shift[site.name] = float(np.mean(np.abs(middle - x.mean(0)) / np.maximum(sd, 1e-12)))
    # E|z| of a mean of as many draws as the weights are worth.
    error = float(np.sqrt(2 / np.pi) / np.sqrt(max(weights.effective_draws, 1.0)))
    fine = log_ratios[np.isfinite(log_ratios)]
    gain = np.inf
    if len(fine):
        gain = float(np.log(np.mean(np.exp(fine - fine.max()))) + fine.max() - fine.mean())
    by_site = _by_site(posterior, key)
    skipped = outcome.run.skipped_steps / max(
        1, outcome.num_steps * getattr(outcome.run, "lanes_after_race", 1)
    )
    numbers = {
        "k_hat": weights.k_hat,
        "k_hat_by_site": by_site,
        "num_samples": DRAWS,
        "effective_draws": weights.effective_draws,
        "mean_shift_sd": shift,
        "shift_error": error,
        "elbo": outcome.elbo,
        "elbo_se": outcome.elbo_se,
        "evidence_gain": gain,
        "dependence": _dependence(problem, found),
        "converged": outcome.converged,
        "skipped_share": skipped,
    }
    discrete = any(site.is_discrete for site in problem.program.latent)
    verdict, advice, reasons = _verdict({**numbers, "discrete": discrete}, outcome)
    notes = describe_improper(problem.improper)
    return Report(verdict=verdict, advice=advice, reasons=tuple(reasons), notes=notes, **numbers)


def _verdict(n: dict[str, Any], outcome: Any) -> tuple[Verdict, str, list[str]]:
    worst = max(n["mean_shift_sd"], key=lambda name: n["mean_shift_sd"][name])
    gains = outcome.run.gains or [np.inf]
    settled = n["converged"] or abs(gains[-1]) < 0.5
    # The weights move a mean less far than the truth is: they know only what was drawn.
    far = n["mean_shift_sd"][worst] > FAR
    # Weights still correct the draws where enough of them are left; k-hat is strict in many
    # dimensions, where a guide with the right means can have a poor tail.
    covered = n["k_hat"] < 0.7 or (n["k_hat"] < 1.0 and n["effective_draws"] >= FEW)
    # A tail too thin for anything but k-hat to see: most draws count as they are.
    covered = covered or n["effective_draws"] > MANY * n["num_samples"]
    if n["discrete"] and n["effective_draws"] >= FEW:
        # Weights of discrete draws are bounded, and a rare configuration is no Pareto tail: what
        # the weights say of the divergence itself is the better guide.
        covered = covered or n["evidence_gain"] < CLOSE
    reasons = []
    if not np.isfinite(n["elbo"]):
        reasons.append("the ELBO is not finite")
        return (
            Verdict.NOT_TRUSTWORTHY,
            "look at the data and the priors' supports; asvi.fit names the site",
            reasons,
        )
    if not n["converged"]:
        gained = f"; its last cycle gained {gains[-1]:.2f} nat" if outcome.run.gains else ""
        reasons.append(f"{outcome.message}{gained}")
    rounding = outcome.run.rounding
    if rounding > ROUNDED:
        reason, advice = rounding_reason(rounding)
        reasons.append(reason)
        return Verdict.NOT_TRUSTWORTHY, advice, reasons
    if n["skipped_share"] > 0.05:
        reasons.append(f"{n['skipped_share']:.0%} of gradients were not finite")
    if np.isinf(n["mean_shift_sd"][worst]):
        reasons.append(f"draws of {worst!r} are infinite: its scale has run away")
    elif far:
        reasons.append(
            f"importance weights move the mean of {worst!r} by {n['mean_shift_sd'][worst]:.2f} sd"
        )
    if n["k_hat"] > 0.5 and n["effective_draws"] <= EQUAL * n["num_samples"]:
        site = max(n["k_hat_by_site"], key=lambda name: n["k_hat_by_site"][name])
        reasons.append(
            f"k-hat is {n['k_hat']:.2f}, {n['effective_draws']:.0f} of {n['num_samples']} draws "
            f"count: the guide misses posterior mass, most around {site!r}"
        )
    elif n["evidence_gain"] > WIDE:
        reasons.append(
            f"importance weighting gains {n['evidence_gain']:.1f} nat, "
            f"{n['effective_draws']:.0f} of {n['num_samples']} draws count: the guide is too wide"
        )
    if not settled:
        advice = "run longer: asvi.fit(..., training=asvi.Training(num_steps=100_000))"
    elif n["discrete"]:
        advice = "use a richer family, reparameterise the model, or sum its discrete sites out"
    else:
        advice = (
            "use a richer family, reparameterise the model, or run NUTS from result.posterior."
            "nuts_init()"
        )
    # Where the weights are nearly even the draws are right, however the run came by them; the tail
    # of weights that hardly differ says nothing.
    equal = n["effective_draws"] > EQUAL * n["num_samples"]
    even = equal or (n["k_hat"] < 0.5 and n["effective_draws"] > 0.25 * n["num_samples"])
    if not (covered or equal) or far or not (settled or even) or n["skipped_share"] > 0.05:
        return Verdict.NOT_TRUSTWORTHY, advice, reasons
    if (n["k_hat"] > 0.5 or n["evidence_gain"] > WIDE) and not equal:
        advice = "draw with result.guide.resample(rng_key, num_samples)"
        return Verdict.USABLE, advice, reasons
    return Verdict.GOOD, "use the draws as they are", reasons


def _by_site(posterior: GuideDraws, key: jax.Array) -> dict[str, float]:
    """k̂ of the terms of each latent site and the sites that it is a parent of.

    A family of the whole model knows nothing of parents: there it is all that depends on the site.
    """
    problem = posterior.problem
    whole = not problem.guide.by_site

    def one(key, _row, params):
        return problem.terms_at(params, key)

    run = problem.bound.map_in_batches("site_terms", one)
    made = run((), posterior.params, key=key, count=DRAWS // 2)
    terms = {k: np.asarray(v, float) for k, v in made.items()}
    sites = [problem.program.with_parents(site) for site in problem.program.sites]
    found = {}
    for site in problem.program.latent:
        near = {site.name: None}
        for s in sites:  # in the order of the program: a parent comes before its children
            if site.name in s.parents or (whole and near.keys() & set(s.parents)):
                near[s.name] = None
        own = [terms[name] for name in near if name in terms]
        if own:
            found[site.name] = pareto_smooth(np.sum(own, 0)).k_hat
    return found


def _dependence(problem: Any, found: dict[str, Any]) -> float | None:
    columns = [np.asarray(found[s.name], float).reshape(DRAWS, -1) for s in problem.program.latent]
    x = np.concatenate(columns, 1)
    if not np.isfinite(x).all():
        return None
    x = x[:, x.std(0) > 0]
    if not 1 < x.shape[1] <= 300:
        return 0.0 if x.shape[1] <= 1 else None
    sign, log_det = np.linalg.slogdet(np.corrcoef(x.T))
    # Expected value of this estimate without any dependence, for this many draws.
    chance = x.shape[1] * (x.shape[1] - 1) / (4 * DRAWS)
    return float(max(0.0, -0.5 * log_det - chance)) if sign > 0 else None
