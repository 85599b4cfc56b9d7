"""Takes a problem; gives the Gaussian nearest to its posterior, by natural gradients.

1. Newton's path to a mode, from a few points, and the prior's centre are starts
   (:mod:`asvi.fitting.gaussian.newton`). Natural gradients with few draws lead from the best mode,
   and from the centre; the better end is kept. Where the mode's Gaussian is the posterior, it is
   the end.
2. *Centring.* A number whose scale other numbers set is written as centred as the data know it,
   :math:`c = 1 - \\mathrm{Var}(z)` given these others: Papaspiliopoulos, Roberts and Sköld's
   weight for a Gaussian hierarchy. Natural gradients go on from there; it is kept where it is
   better on other draws.
3. The winner climbs on with more draws, and is judged by fresh ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import scipy.linalg

from asvi.density.arrowhead import Arrowhead
from asvi.density.curvature import (
    BlockDensity,
    BlocksMeet,
    block_density,
    precision,
)
from asvi.density.edge_factor import factor_on_edges
from asvi.density.noise_space import NoiseSpace
from asvi.density.noncentering import split_numbers
from asvi.density.refusal import Refusal
from asvi.fitting.gaussian.ascent import (
    Where,
    antithetic_draws,
    ascend_fixed_draws,
    ascend_fresh_draws,
    log_ratios,
)
from asvi.fitting.gaussian.newton import SOLVED, better_end, find_scale_numbers, is_near
from asvi.fitting.gaussian.other_modes import Peak, other_modes
from asvi.fitting.particles.base import unit_density
from asvi.fitting.problem import Problem
from asvi.program.improper import no_posterior
from asvi.program.site import Site
from asvi.program.statements.flat_prior import is_flat

__all__ = ["GaussianFit", "find_nearest_gaussian"]

FEW, MANY = 16, 32  # draws of the first climbs, and of later ones, where a look is dear
NEWTON_STEPS, RISE_STEPS, REFINE_STEPS = 30, 40, 12
SHORT = 0.05  # step that does not rise any more: the draws have no more to say
ROUGHLY: dict[str, Any] = {"sets": 1, "settled": 0.05, "shortest": SHORT}  # a way to a start
NEARBY: dict[str, Any] = {"shortest": SHORT, "near": True}
COMPARED, JUDGED, ROUNDS = 128, 1024, 4  # draws, and how often so many are judged at most
NUMBERS = 8_000_000  # of all draws that are judged at once: large models have fewer
ROUGH = 0.05  # nats: error of the ELBO of what is no posterior anyway
LEAST = 0.1  # share of draws that must count
UNBENT = 0.05  # curvature, of what is usual, of a direction that nothing bends
DIGITS = 1e-13  # of a precision, beside 1
WORTH_IT = 0.1  # nats by which another mode is higher
LEAST_CENTRED = 0.02  # centring that is worth a climb


@dataclass
class GaussianFit:
    """A Gaussian over numbers that are centred as it says, and how far it is from the posterior."""

    density: BlockDensity
    mean: np.ndarray
    spread: Arrowhead
    noise: np.ndarray  # (draws, numbers), standard normal
    draws: np.ndarray  # (draws, numbers) made of it
    log_ratios: np.ndarray  # (draws,) of the model's density to its own
    trail: list[float]  # ELBOs on the way
    others: list[Peak]  # Gaussians at other modes
    start: Where  # mean and precision over the noise itself, before numbers were centred

    @property
    def is_double(self) -> bool:
        """Whether the density was looked at with more digits than a user has."""
        return self.density.evaluator.dtype == np.float64

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


def find_nearest_gaussian(
    problem: Problem, key: jax.Array | None, tolerance: float, enough: float = SOLVED
) -> GaussianFit | None:
    """The Gaussian nearest to the posterior; None where none is found.

    The search ends where the Gaussian is within ``enough`` nats; it is judged to ``tolerance``.
    """
    space = problem.noise_space
    assert space is not None
    # Nothing but the order of numbers: there are no edges to go without.
    edge_mask = Arrowhead.identity(space.structure)._each(lambda x: np.ones(x.shape, bool))
    edge_mask = replace(
        edge_mask,
        core=np.tril(edge_mask.core),
        right=tuple(np.zeros_like(x) for x in edge_mask.right),
        blocks=tuple(np.tril(x) for x in edge_mask.blocks),
    )
    # Of NumPy: a split of the key would be compiled, and so would the making of one.
    seed = np.zeros(2, np.uint32) if key is None else np.asarray(jax.random.key_data(key)).ravel()
    rng = np.random.default_rng(seed)
    for double in (True, False):
        density = block_density(space, {}, double)  # compiled while data are checked
        if isinstance(density, Refusal):  # what is wrong with the data is said first
            problem.finish_check(lambda: False)
            continue
        problem.finish_check(density.is_fine)
        with precision(double), suppress(BlocksMeet):
            return _search(density, edge_mask, rng, tolerance, enough, _flat_numbers(space))
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
    density: BlockDensity,
    edge_mask: Arrowhead,
    rng: np.random.Generator,
    tolerance: float,
    enough: float,
    flat: Sequence[tuple[Site, np.ndarray]],
) -> GaussianFit | None:
    trail: list[float] = []
    nearest = _nearest(density, edge_mask, enough, trail)
    if nearest is None:
        return None
    start = at = nearest[1]
    compared = _compared(density)
    if is_near(log_ratios(density, at, edge_mask, compared), enough):
        trail.append(nearest[0])
    else:
        density, at = _climbed(density, at, nearest[0], edge_mask, compared, trail)
    _refuse_flat(density, at, compared, edge_mask, flat)
    at, others = _highest(density, at, edge_mask, compared)
    spread, ratios = factor_on_edges(at[1], edge_mask), np.empty(0)
    noise = np.empty((0, density.structure.size))
    judged = int(np.clip(NUMBERS // density.structure.size, 64, JUDGED))
    found = None
    for _ in range(ROUNDS):
        fresh = rng.normal(size=(judged, density.structure.size))
        noise = np.concatenate([noise, fresh])
        ratios = np.concatenate([ratios, log_ratios(density, at, edge_mask, fresh)])
        found = GaussianFit(
            density,
            at[0],
            spread,
            noise,
            at[0] + (spread @ noise.T).T,
            ratios,
            trail,
            others,
            start,
        )
        if not np.isfinite(ratios).all():
            return None
        far = found.divergence - 2 * found.elbo_se > tolerance
        # Who may be near is told from who is not by more draws.
        if found.elbo_se <= (max(tolerance, ROUGH) if far else tolerance / 4):
            break
    return found


def _highest(
    density: BlockDensity, at: Where, edge_mask: Arrowhead, compared: np.ndarray
) -> tuple[Where, list[Peak]]:
    """The Gaussian at the highest mode, and those at others."""
    ratios = log_ratios(density, at, edge_mask, compared)
    first = Peak.at(float(np.mean(ratios)), at, edge_mask)
    values = ratios + unit_density(compared) - first.log_volume
    others = other_modes(density, first, values, edge_mask, compared)
    if others and others[0].elbo > first.elbo + WORTH_IT:
        first, others = others[0], [first, *others[1:]]
    return (first.mean, first.precision), others


def _climbed(
    density: BlockDensity,
    at: Where,
    elbo: float,
    edge_mask: Arrowhead,
    compared: np.ndarray,
    trail: list[float],
) -> tuple[BlockDensity, Where]:
    """On from there: as centred as is best, and by more draws."""
    centred = _centred(density, at, edge_mask)
    if centred is not None:
        begin = np.random.default_rng(1)
        then = ascend_fixed_draws(
            centred, at, edge_mask, RISE_STEPS, _few(density), begin, **ROUGHLY, trail=trail
        )
        if then is not None:
            reached = float(np.mean(log_ratios(centred, then, edge_mask, compared)))
            if reached > elbo:
                density, at, elbo = centred, then, reached
    draws = max(_few(density), min(MANY, density.averaged_draws))
    cheap, again = density.evaluator.is_cheap, np.random.default_rng(3)
    sets = 2 if cheap else 1
    further = ascend_fixed_draws(
        density, at, edge_mask, RISE_STEPS, draws, again, sets, **NEARBY, trail=trail
    )
    if further is not None:
        steps = REFINE_STEPS * (2 if cheap else 1)
        # On, and then a mean over what is left.
        lengths = [0.3] * (steps // 2) + [1 / (k + 3) for k in range(steps - steps // 2)]
        further = ascend_fresh_draws(density, further, edge_mask, lengths, draws, again)
        if np.mean(log_ratios(density, further, edge_mask, compared)) > elbo:
            at = further
    return density, at


def _refuse_flat(
    density: BlockDensity,
    at: Any,
    noise: np.ndarray,
    edge_mask: Arrowhead,
    flat: Sequence[tuple[Site, np.ndarray]],
) -> None:
    """Raise where the data leave a direction flat that no prior bends, either.

    There the density has no curvature for the Gaussian's precision to settle at: precision is made
    of nothing but the steps that led there.
    """
    if not flat or density.structure.groups:
        return
    seen = density(
        at[0] + (factor_on_edges(at[1], edge_mask) @ noise[: density.evaluator.batch_size].T).T
    )
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


def _compared(density: BlockDensity) -> np.ndarray:
    """Noise on which ends are compared, (draws, numbers)."""
    count = min(COMPARED, 2 * density.averaged_draws)
    return antithetic_draws(np.random.default_rng(2), count, density.structure.size)


def _few(density: BlockDensity) -> int:
    """Draws of the first climbs."""
    return density.evaluator.draws_of_a_call(FEW)


def _nearest(
    density: BlockDensity, edge_mask: Arrowhead, enough: float, trail: list[float]
) -> tuple[float, Where] | None:
    """ELBO, mean and precision of the better end of two ways, without centring."""
    few, noise = _few(density), _compared(density)

    def climb(at: Where) -> tuple[float, Where] | None:
        rng = np.random.default_rng(1)
        end = ascend_fixed_draws(
            density, at, edge_mask, RISE_STEPS, few, rng, **ROUGHLY, trail=trail
        )
        return (
            None
            if end is None
            else (float(np.mean(log_ratios(density, end, edge_mask, noise))), end)
        )

    return better_end(density, edge_mask, climb, noise, NEWTON_STEPS, enough)


def _centred(density: BlockDensity, at: Any, edge_mask: Arrowhead) -> BlockDensity | None:
    """The same density over numbers as centred as the data ask for; None where it makes none."""
    mean, precision = at
    spread = factor_on_edges(precision, edge_mask)
    few = antithetic_draws(np.random.default_rng(4), FEW, len(mean))
    _, scales, _ = density.prior_moments(np.concatenate([mean[None], mean + (spread @ few.T).T]))
    follows = np.std(np.log(scales), axis=0) > 1e-6
    if not follows.any():
        return None
    leads = find_scale_numbers(density, density.structure)
    variance = precision.variances(~leads)
    centring = np.where(follows & ~leads, np.clip(1 - variance, 0.0, 1.0), 0.0)
    if centring.max() < LEAST_CENTRED:
        return None
    return replace(density, centring=centring, anchor=np.log(scales[0]))
