"""Takes a problem of a StructuredNormal; gives a Run: natural gradients, no steps of an optimiser.

1. Newton's path to a mode, from a few points, and the prior's centre are starts
   (:mod:`asvi.fitting.ways`). Natural gradients with few draws lead from the best mode, and from
   the centre; the better end is kept. Where the mode's Gaussian is the posterior, it is the end.
2. *Centring.* A number whose scale other numbers set is written as centred as the data know it,
   :math:`c = 1 - \\mathrm{Var}(z)` given these others: Papaspiliopoulos, Roberts and Sköld's
   weight for a Gaussian hierarchy. Natural gradients go on from there; it is kept where it is
   better on other draws.
3. The winner climbs on with more draws, and is judged by fresh ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import scipy.linalg

from asvi.errors import FamilyError
from asvi.families.cells import LARGEST_DENSE
from asvi.families.numbers import split_numbers
from asvi.families.structured import StructuredNormal
from asvi.fitting.arrow import Arrow
from asvi.fitting.climbing import Where, log_ratios, pairs, refine, rise
from asvi.fitting.curvature import CellsMeet, Curvature, curvature, draws_of, precision
from asvi.fitting.looking import Computed
from asvi.fitting.noise_space import NoiseSpace
from asvi.fitting.plan import Plan
from asvi.fitting.problem import Problem
from asvi.fitting.recheck import DRAWS, Recheck
from asvi.fitting.run import Run
from asvi.fitting.ways import better_end, is_exact, scaling
from asvi.fitting.wiring import factor
from asvi.flat import is_flat
from asvi.improper import no_posterior
from asvi.program import Site

__all__ = ["Found", "find_structured", "fit_structured", "structured_run"]

FEW, MANY = 16, 32  # draws of the first climbs, and of later ones, where a look is dear
NEWTON_STEPS, RISE_STEPS, REFINE_STEPS = 30, 40, 12
SHORT = 0.05  # step that does not rise any more: the draws have no more to say
ROUGHLY: dict[str, Any] = {"sets": 1, "settled": 0.05, "shortest": SHORT}  # a way to a start
NEARBY: dict[str, Any] = {"shortest": SHORT, "near": True}
COMPARED, JUDGED, ROUNDS = 128, 1024, 4  # draws, and how often so many are judged at most
NUMBERS = 8_000_000  # of all draws that are judged at once: large models have fewer
ROUGH = 0.05  # nats: error of the ELBO of what is no posterior anyway
LEAST = 0.1  # share of draws that must count
QUICK, QUICK_IN_CELLS = 250, 600  # latent numbers, all together and in groups, of a first look
UNBENT = 0.05  # curvature, of what is usual, of a direction that nothing bends
DIGITS = 1e-13  # of a precision, beside 1
LEAST_CENTRED = 0.02  # centring that is worth a climb


@dataclass
class Found:
    """A Gaussian over numbers that are centred as it says, and how far it is from the posterior."""

    look: Curvature
    mean: np.ndarray
    spread: Arrow
    noise: np.ndarray  # (draws, numbers), standard normal
    draws: np.ndarray  # (draws, numbers) made of it
    log_ratios: np.ndarray  # (draws,) of the model's density to its own
    trail: list[float]  # ELBOs on the way

    @property
    def is_double(self) -> bool:
        """Whether the density was looked at with more digits than a user has."""
        return self.look.look.recorded.dtype == np.float64

    @property
    def elbo(self) -> float:
        return float(self.log_ratios.mean())

    @property
    def elbo_se(self) -> float:
        return float(self.log_ratios.std(ddof=1) / np.sqrt(len(self.log_ratios)))

    @property
    def nearness(self) -> float:
        """Nats, and what moments say in nats, between it and the posterior, with their error.

        A mean that is off by m standard deviations, or a standard deviation that is off by m times
        itself, costs about m² nat: a little more is asked for here, that both be off by at most
        half of the root. Draws are weighted to see it.
        """
        weights = np.exp(self.log_ratios - np.logaddexp.reduce(self.log_ratios))
        mean, middle = weights @ self.draws, self.draws.mean(0)
        sd = self.draws.std(0)
        shift = np.abs(mean - middle) / sd
        widened = np.abs(np.sqrt(weights @ (self.draws - mean) ** 2) / sd - 1)
        off = float(max(shift.max(), widened.max()))
        return max(self.divergence + self.elbo_se, 4 * off**2)

    @property
    def divergence(self) -> float:
        """KL(q‖p) by the importance weights; infinite where they cannot tell."""
        count = len(self.log_ratios)
        total = np.logaddexp.reduce(self.log_ratios)
        effective = np.exp(2 * total - np.logaddexp.reduce(2 * self.log_ratios))
        return float(total - np.log(count)) - self.elbo if effective > LEAST * count else np.inf


def find_structured(problem: Problem, key: jax.Array | None, tolerance: float) -> Found | None:
    """The Gaussian nearest to the posterior; None where none is found."""
    space = NoiseSpace(problem)
    # Nothing but the order of numbers: there are no edges to go without.
    hears = Arrow.identity(space.cells)._each(lambda x: np.ones(x.shape, bool))
    hears = replace(
        hears,
        core=np.tril(hears.core),
        right=tuple(np.zeros_like(x) for x in hears.right),
        blocks=tuple(np.tril(x) for x in hears.blocks),
    )
    # Of NumPy: a split of the key would be compiled, and so would the making of one.
    seed = np.zeros(2, np.uint32) if key is None else np.asarray(jax.random.key_data(key)).ravel()
    rng = np.random.default_rng(seed)
    for double in (True, False):
        try:
            look = curvature(space, {}, double)  # compiled while data are checked
        except NotImplementedError:  # types that are written down
            look = None
        # Whatever became of the look: what is wrong with the data is said first.
        problem.finish_check(look.is_fine if look else lambda: False)
        if look is not None:
            with precision(double), suppress(CellsMeet):
                return _search(look, hears, rng, tolerance, _flat_numbers(space))
            return None
    return None


def _flat_numbers(space: NoiseSpace) -> list[tuple[Site, np.ndarray]]:
    """Sites whose prior is flat, and the places of their numbers."""
    places = split_numbers(np.arange(space.size), space.shapes)
    return [
        (site, np.ravel(places[site.address]))
        for site in space.sites.values()
        if is_flat(site.distribution)
    ]


def _search(
    look: Curvature,
    hears: Arrow,
    rng: np.random.Generator,
    tolerance: float,
    flat: Sequence[tuple[Site, np.ndarray]],
) -> Found | None:
    trail: list[float] = []
    nearest = _nearest(look, hears, trail)
    if nearest is None:
        return None
    at, compared = nearest[1], _compared(look.cells.size)
    if is_exact(log_ratios(look, at, hears, compared)):
        trail.append(nearest[0])
    else:
        look, at = _climbed(look, at, nearest[0], hears, compared, trail)
    _refuse_flat(look, at, compared, hears, flat)
    spread, ratios = factor(at[1], hears), np.empty(0)
    noise = np.empty((0, look.cells.size))
    judged = int(np.clip(NUMBERS // look.cells.size, 64, JUDGED))
    found = None
    for _ in range(ROUNDS):
        fresh = rng.normal(size=(judged, look.cells.size))
        noise = np.concatenate([noise, fresh])
        ratios = np.concatenate([ratios, log_ratios(look, at, hears, fresh)])
        found = Found(look, at[0], spread, noise, at[0] + (spread @ noise.T).T, ratios, trail)
        if not np.isfinite(ratios).all():
            return None
        far = found.divergence - 2 * found.elbo_se > tolerance
        # Who may be near is told from who is not by more draws.
        if found.elbo_se <= (max(tolerance, ROUGH) if far else tolerance / 4):
            break
    return found


def _climbed(
    look: Curvature,
    at: Where,
    elbo: float,
    hears: Arrow,
    compared: np.ndarray,
    trail: list[float],
) -> tuple[Curvature, Where]:
    """On from there: as centred as is best, and by more draws."""
    centred = _centred(look, at, hears)
    if centred is not None:
        begin = np.random.default_rng(1)
        then = rise(centred, at, hears, RISE_STEPS, _few(look), begin, **ROUGHLY, trail=trail)
        if then is not None:
            reached = float(np.mean(log_ratios(centred, then, hears, compared)))
            if reached > elbo:
                look, at, elbo = centred, then, reached
    draws = max(_few(look), min(MANY, draws_of(look.cells.size)))
    cheap, again = _is_cheap(look), np.random.default_rng(3)
    sets = 2 if cheap else 1
    further = rise(look, at, hears, RISE_STEPS, draws, again, sets, **NEARBY, trail=trail)
    if further is not None:
        steps = REFINE_STEPS * (2 if cheap else 1)
        # On, and then a mean over what is left.
        lengths = [0.3] * (steps // 2) + [1 / (k + 3) for k in range(steps - steps // 2)]
        further = refine(look, further, hears, lengths, draws, again)
        if np.mean(log_ratios(look, further, hears, compared)) > elbo:
            at = further
    return look, at


def _refuse_flat(
    look: Curvature,
    at: Any,
    noise: np.ndarray,
    hears: Arrow,
    flat: Sequence[tuple[Site, np.ndarray]],
) -> None:
    """Raise where the data leave a direction flat that no prior bends, either.

    There the density has no curvature for the Gaussian's precision to settle at: precision is made
    of nothing but the steps that led there.
    """
    if not flat or look.cells.groups:
        return
    seen = look(at[0] + (factor(at[1], hears) @ noise[: look.look.most].T).T)
    if seen is None:
        return
    unit = np.sqrt(np.diag(at[1].core))
    known, curved = (x / np.outer(unit, unit) for x in (at[1].core, -seen.hessian.core))
    values, ways = np.linalg.eigh(known)
    if values[0] > DIGITS:  # else there is no telling what the steps were made of
        values, ways = scipy.linalg.eigh(curved, known)
    way = ways[:, 0] ** 2
    site, places = max(flat, key=lambda pair: way[pair[1]].max())
    if values[0] < UNBENT and way[places].sum() > 0.5 * way.sum():
        raise no_posterior(site)


def _compared(size: int) -> np.ndarray:
    """Noise on which ends are compared, (draws, numbers)."""
    return pairs(np.random.default_rng(2), min(COMPARED, 2 * draws_of(size)), size)


def _few(look: Curvature) -> int:
    """Draws of the first climbs."""
    # NumPy computes with all that it has room for in one go.
    return look.look.most if isinstance(look.look, Computed) else FEW


def _is_cheap(look: Curvature) -> bool:
    """Whether further looks cost next to nothing."""
    look_at = look.look
    return isinstance(look_at, Computed) and look_at.most == draws_of(look.cells.size)


def _nearest(look: Curvature, hears: Arrow, trail: list[float]) -> tuple[float, Where] | None:
    """ELBO, mean and precision of the better end of two ways, without centring."""
    few, noise = _few(look), _compared(look.cells.size)

    def climb(at: Where) -> tuple[float, Where] | None:
        rng = np.random.default_rng(1)
        end = rise(look, at, hears, RISE_STEPS, few, rng, **ROUGHLY, trail=trail)
        return None if end is None else (float(np.mean(log_ratios(look, end, hears, noise))), end)

    return better_end(look, hears, climb, noise, NEWTON_STEPS)


def _centred(look: Curvature, at: Any, hears: Arrow) -> Curvature | None:
    """The same density over numbers as centred as the data ask for; None where it makes none."""
    mean, precision = at
    spread = factor(precision, hears)
    few = pairs(np.random.default_rng(4), FEW, len(mean))
    _, scales, _ = look.told(np.concatenate([mean[None], mean + (spread @ few.T).T]))
    follows = np.std(np.log(scales), axis=0) > 1e-6
    if not follows.any():
        return None
    leads = scaling(look, look.cells)
    variance = precision.variances(~leads)
    centring = np.where(follows & ~leads, np.clip(1 - variance, 0.0, 1.0), 0.0)
    if centring.max() < LEAST_CENTRED:
        return None
    return replace(look, centring=centring, anchor=np.log(scales[0]))


def fit_structured(
    model: Callable,
    family: StructuredNormal,
    args: tuple,
    kwargs: dict[str, Any],
    key: jax.Array | None,
    plan: Plan,
    begun: float,
    quick: bool = False,
) -> tuple[Problem, Run, Found]:
    """The whole fit: its problem, the run, and the Gaussian that was found.

    Raises :class:`~asvi.errors.FamilyError` where the family does not hold the model, or, if it
    must be ``quick``, where a look at it takes more than a few seconds.
    """
    while True:
        problem = Problem(model, family, args, kwargs)
        guide: Any = problem.guide
        if quick and guide.cells.size > (QUICK_IN_CELLS if guide.cells.groups else QUICK):
            raise FamilyError("the model is too large for a first look")
        if problem.program.trained:
            own = problem.program.trained[0]
            raise FamilyError(
                f"StructuredNormal does not train parameters, and the model has {own!r}.\n"
                "Write instead:\n    asvi.fit(model, y, family=asvi.families.Coupled())"
            )
        found = find_structured(problem, key, plan.tolerance)
        if found is not None:
            return problem, structured_run(problem, found, begun), found
        if not (family.cells and guide.cells.groups and guide.cells.size <= LARGEST_DENSE):
            raise FamilyError(
                "StructuredNormal found no Gaussian: the model's density, or its curvature, is not "
                "finite near the prior's centre, or groups depend on each other directly.\n"
                "Write instead:\n    asvi.fit(model, y, family=asvi.families.Coupled())"
            )
        family = StructuredNormal(cells=False)  # groups that depend on each other after all


def structured_run(problem: Problem, found: Found, begun: float) -> Run:
    """What was found, as the result of a run, once NumPyro has said the same of it."""
    guide: Any = problem.guide
    spread = found.spread
    values = {"loc": found.mean, "core": spread.core}
    values |= {"centring": found.look.centring, "anchor": found.look.anchor}
    for k, (down, block) in enumerate(zip(spread.down, spread.blocks, strict=True)):
        values |= {f"down{k}": down, f"cell{k}": block}
    values = {f"{guide.prefix}/{n}": np.asarray(x, float) for n, x in values.items()}
    rounding = _recheck(problem, found, values)
    # Cast by NumPy, and put in place as they are: nothing to compile.
    params = jax.device_put({n: x.astype(problem.dtype) for n, x in values.items()})
    return Run(
        elbo=found.elbo,
        elbo_se=found.elbo_se,
        losses=-np.array(found.trail),
        params=params,
        converged=True,
        message="converged: natural gradients found the nearest Gaussian",
        steps=len(found.trail),
        skipped_steps=0,
        seconds=time.monotonic() - begun,
        info={
            "start": "gaussian",
            "chunk": 1,
            "gains": [0.0],
            "nearness": found.nearness,
            "divergence": found.divergence,
            "centring": float(found.look.centring.mean()),
            "rounding": rounding,
        },
    )


def _recheck(problem: Problem, found: Found, params: dict[str, np.ndarray]) -> float:
    """Nats of a draw that are lost to rounding; raises where NumPyro knows other densities."""
    some = slice(0, DRAWS)
    with precision(found.is_double):
        values = found.look.sites(found.draws[some])
    values = {site.name: values[site.name] for site in problem.program.latent}
    check = Recheck(problem, params, {name: x[0] for name, x in values.items()})
    return check(values, params, found.log_ratios[some])
