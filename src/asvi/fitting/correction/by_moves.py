"""Takes a target; gives draws of it by particles that are led there, and moved.

They move until what was asked for is met, or moves are used up. The first third of the moves since
they arrived is left out.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from asvi.fitting.correction.checks import Checks, NumberErrors, worst
from asvi.fitting.correction.mixing import Mixing, mixing_of
from asvi.fitting.correction.pool import Pool, numeric_columns
from asvi.fitting.correction.result import Correction
from asvi.fitting.correction.settings import CorrectionSettings
from asvi.fitting.particles.base import Base, unit_density
from asvi.fitting.particles.moves import Kernel
from asvi.fitting.particles.resampling import resample
from asvi.fitting.particles.target import Target
from asvi.fitting.particles.tempering import Path, lead

__all__ = ["correct_by_moves", "more_moves"]


class Chain:
    """Particles at the target, and where they were: all moves since they arrived."""

    def __init__(self, kernel: Kernel, path: Path, settings: CorrectionSettings):
        self.kernel, self.particles, self.settings = kernel, path.particles, settings
        self.weights = np.exp(path.log_weights - logsumexp(path.log_weights))  # (islands,)
        self.noise: list[np.ndarray] = []  # (particles, numbers) after each move
        self.value: list[np.ndarray] = []
        self.log_ratio: list[np.ndarray] = []
        self.began: list[np.ndarray] = []
        self.accepted: list[np.ndarray] = []
        self.walls: list[np.ndarray] = []
        self._sites: dict[int, tuple[dict[str, np.ndarray], np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self.noise)

    def move(self, count: int) -> None:
        for _ in range(count):
            if len(self) in self.settings.metric_moves:
                self.kernel.learn_metric(self.particles)
            before = self.particles.noise
            moved = self.kernel(self.particles, 1.0)
            self.particles = moved.particles
            self.noise.append(self.particles.noise.copy())
            self.value.append(self.particles.value)
            self.log_ratio.append(self.particles.log_ratio)
            self.began.append(before)
            self.accepted.append(moved.accepted)
            self.walls.append(moved.walls)

    def sites(self, begin: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Values of sites from this move on, (moves, particles, ...), and their log volume."""
        for k in range(begin, len(self)):
            if k not in self._sites:
                self._sites[k] = self.kernel.target.sites(self.noise[k])
        some = [self._sites[k] for k in range(begin, len(self))]
        names = some[0][0]
        return {n: np.stack([x[n] for x, _ in some]) for n in names}, np.stack([v for _, v in some])

    def pool(self, begin: int) -> Pool:
        """Draws from this move on, of each island as many as its weight asks for."""
        sites, volume = self.sites(begin)
        log_q = unit_density(np.stack(self.noise[begin:])) - volume
        log_p = np.stack(self.value[begin:]) - volume
        count = log_p.size // len(self.weights)
        own = resample(np.repeat(np.log(self.weights), count), log_p.size, self.kernel.rng)

        def take(x: np.ndarray) -> np.ndarray:
            apart = self.apart(x)
            return apart.reshape(-1, *apart.shape[2:])[own].reshape(apart.shape)

        return Pool({n: take(x) for n, x in sites.items()}, take(log_p), take(log_q))

    def apart(self, x: np.ndarray) -> np.ndarray:
        """What there is after each move, (moves, particles, ...), as (islands, draws, ...)."""
        moves, islands = len(x), self.settings.islands
        x = x.reshape(moves, islands, -1, *x.shape[2:])
        return np.moveaxis(x, 1, 0).reshape(islands, -1, *x.shape[3:])

    def further(self, count: int) -> Pool:
        begin = len(self)
        self.move(-(-count // len(self.particles)))
        pool = self.pool(begin)
        self.forget()
        return pool

    def forget(self) -> None:
        """Let go of what only the pool and its checks ask for."""
        for records in (self.began, self.accepted, self.walls):
            records.clear()
        self._sites.clear()


def correct_by_moves(
    target: Target,
    settings: CorrectionSettings,
    rng: np.random.Generator,
    base: Base | None = None,
    log_ratios: np.ndarray | None = None,
) -> Correction:
    """Particles led to the target, from standard normal noise or another ``base``, and moved.

    They move until what was asked for is met. ``log_ratios`` of the target to the base, at other
    draws of the base, tell of the evidence.
    """
    kernel = Kernel.for_size(target, rng, base, settings.moves)
    path = _lead(kernel, settings, log_ratios)
    chain = Chain(kernel, path, settings)
    checks, first, errors, interrupted = _move_enough(chain, len(path.temperatures))
    ratios = path.width * chain.apart(np.stack(chain.log_ratio[first:]))
    effective = float(np.clip(checks.effective_draws, settings.islands, ratios.size))
    pool = chain.pool(first)
    chain.forget()
    return Correction(
        "moves",
        pool,
        checks,
        *path.log_evidence(ratios, effective),
        settings.max_error,
        chain,
        interrupted,
        kernel.base.modes,
        settings.further_draws,
        errors,
    )


def _lead(kernel: Kernel, settings: CorrectionSettings, log_ratios: np.ndarray | None) -> Path:
    """Particles that arrived at the kernel's target, from its base."""
    target, rng, islands = kernel.target, kernel.rng, settings.islands
    count = settings.particles_for(target)
    half = rng.normal(size=(islands, count // islands // 2, target.size))
    begin = np.concatenate([half, -half], 1).reshape(count, target.size)
    by_island = np.split(begin, islands)
    begin = np.concatenate([kernel.base.draws_from_noise(own, rng) for own in by_island])
    return lead(kernel, kernel.at(begin), islands, settings.tempering, log_ratios)


def _move_enough(chain: Chain, temperatures: int) -> tuple[Checks, int, NumberErrors, bool]:
    """Move until what was asked for is met.

    Gives checks, the first move that counts, errors by number, and whether a user broke off.
    """
    settings, target = chain.settings, chain.kernel.target
    wanted, most = settings.first_moves_for(target), settings.moves_for(target)
    interrupted = False
    while True:
        try:
            chain.move(wanted - len(chain))
        except KeyboardInterrupt:
            if len(chain) < settings.min_moves:
                raise
            interrupted = True  # who does so wants what there is
        first = len(chain) // 3
        names, values = numeric_columns(chain.sites(first)[0], 2, settings.max_watched_numbers)
        mixing = mixing_of(values, chain.weights)
        checks = _checks_of_moves(chain, first, names, mixing, temperatures)
        if interrupted or may_end(checks, settings, most) or wanted >= most:
            errors = NumberErrors(names, mixing.mean_error, mixing.sd_error, mixing.r_hat)
            return checks, first, errors, interrupted
        wanted = min(most, more_moves(checks, settings))


def may_end(checks: Checks, settings: CorrectionSettings, most: int) -> bool:
    """Whether moves may end: all is met, or what is not is plainly out of reach.

    The sd of a number with a heavy tail hangs on rare draws. Where its quantiles are known, and
    its moments would need more moves than ``most``, more are of no use.
    """
    off = 2 * max(checks.mean_error, checks.sd_error) / settings.max_error
    is_known = 2 * checks.rank_error <= settings.max_error and checks.drift <= settings.max_drift
    is_hopeless = checks.moves * off**2 > most and checks.moves >= settings.hopeless_moves
    return is_known and (off <= 1 or is_hopeless)


def more_moves(checks: Checks, settings: CorrectionSettings = CorrectionSettings()) -> int:
    """Moves after which errors, which fall with the root of their number, are what was asked for.

    At most twice as many as there are, an error being a guess itself; as many where it is a drift
    that has not settled.
    """
    off = 2 * max(checks.mean_error, checks.sd_error, checks.rank_error) / settings.max_error
    times = max(settings.min_growth, settings.spare_factor * off**2) if 1 < off < 2 else 2.0
    return int(np.ceil(checks.moves * min(2.0, times)))


def _checks_of_moves(
    chain: Chain, first: int, names: list[str], mixing: Mixing, temperatures: int
) -> Checks:
    fewest = int(np.argmin(mixing.effective))
    return Checks(
        *worst(names, mixing.mean_error),
        *worst(names, mixing.sd_error),
        float(mixing.effective[fewest]),
        names[fewest],
        float("nan"),
        *worst(names, mixing.r_hat),
        *worst(names, mixing.rank_error),
        *worst(names, mixing.drift),
        walls=float(np.mean(chain.walls[first:])),
        tail_acceptance=_tail_acceptance(chain, first),
        moves=len(chain),
        temperatures=temperatures,
        particles=len(chain.particles),
    )


def _tail_acceptance(chain: Chain, first: int) -> float:
    """Least acceptance of the outermost twentieth, on either side of the leading directions."""
    began = np.concatenate(chain.began[first:])
    accepted = np.concatenate(chain.accepted[first:])
    _, ways = np.linalg.eigh(np.atleast_2d(np.cov(began.T)))
    along = began @ ways[:, -chain.settings.leading_directions :]
    twentieth = max(1, len(along) // 20)
    order = np.argsort(along, 0)
    ends = [order[:twentieth], order[-twentieth:]]
    return float(min(accepted[end].mean(0).min() for end in ends))
