"""Takes a target and particles; gives them moved by Hamiltonian Monte Carlo, all at once.

Between a unit normal and the target, at temperature β,

.. math:: \\pi_\\beta(\\epsilon) \\propto N(\\epsilon; 0, I)^{1-\\beta}\\,
   \\bar p(\\epsilon)^\\beta,

is what the moves leave as it is. In the noise of a good Gaussian all of these are nearly unit
normals: few steps cross them, and one length of step, found on the way, serves all particles.
Where the posterior has several modes, a mixture stands in place of the unit normal, and each move
ends with a jump (:mod:`asvi.fitting.particles.base`).

Where it does not, in the neck of a funnel, say, the loss of energy is large. Such particles try
again, along the same way in finer steps (delayed rejection: Modi, Barnett and Carpenter 2024). With
the first try's acceptance :math:`a_1`, the second's is

.. math:: a_2(x \\to y) = \\min\\Bigl(1,
   \\frac{\\pi(y)\\,(1 - a_1(y))}{\\pi(x)\\,(1 - a_1(x))}\\Bigr),

which asks what the long steps would have done from y, back along the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from asvi.fitting.particles.base import Base, Mixture, UnitNormal
from asvi.fitting.particles.settings import MoveSettings
from asvi.fitting.particles.target import FORBIDDEN, Target

__all__ = ["Kernel", "Move", "Particles"]


@dataclass
class Particles:
    """Noise with log density and slope there, of the target and of where particles come from."""

    noise: np.ndarray  # (particles, numbers)
    value: np.ndarray  # (particles,)
    slope: np.ndarray  # (particles, numbers)
    base: np.ndarray  # (particles,)
    base_slope: np.ndarray  # (particles, numbers)

    def __len__(self) -> int:
        return len(self.noise)

    @property
    def log_ratio(self) -> np.ndarray:
        """Log ratio of the target to the base."""
        return self.value - self.base

    def take(self, index: np.ndarray) -> Particles:
        return Particles(*(x[index] for x in vars(self).values()))

    def put(self, index: np.ndarray, others: Particles) -> None:
        """Let these ones be the others."""
        for mine, other in zip(vars(self).values(), vars(others).values(), strict=True):
            mine[index] = other

    def where(self, ok: np.ndarray, others: Particles) -> Particles:
        """These where ``ok``, else the others."""
        pairs = zip(vars(self).values(), vars(others).values(), strict=True)
        return Particles(*(np.where(ok[:, None] if x.ndim > 1 else ok, x, y) for x, y in pairs))


@dataclass
class Move:
    """One move of all particles: where they are now, and how it went."""

    particles: Particles
    accepted: np.ndarray  # (particles,) probabilities
    walls: np.ndarray  # (particles,) whether finer steps, too, met a wall


@dataclass(frozen=True)
class _Trajectory:
    """What a move fixes beforehand: temperature, number of steps, each particle's length of one."""

    beta: float
    count: int
    length: np.ndarray  # (particles, 1)

    def divide(self, steps: int) -> _Trajectory:
        """The same in finer steps, so many for one."""
        return _Trajectory(self.beta, steps * self.count, self.length / steps)

    def take(self, index: np.ndarray) -> _Trajectory:
        return _Trajectory(self.beta, self.count, self.length[index])


@dataclass
class Kernel:
    """Moves with a metric and a length of step that adapts.

    The metric is the factor of a covariance, (numbers, numbers), or scales alone, (numbers,), where
    particles are fewer than numbers; None is the identity.
    """

    target: Target
    rng: np.random.Generator
    step: float
    base: Base
    metric: np.ndarray | None = field(default=None)
    settings: MoveSettings = field(default_factory=MoveSettings)

    @classmethod
    def for_size(
        cls,
        target: Target,
        rng: np.random.Generator,
        base: Base | None = None,
        settings: MoveSettings = MoveSettings(),
    ) -> Kernel:
        step = settings.first_step / target.size**0.25
        return cls(target, rng, step, base or UnitNormal(target.size), settings=settings)

    def at(self, noise: np.ndarray) -> Particles:
        """Particles there."""
        return Particles(noise, *self.target(noise), *self.base(noise))

    def _within_move(self, noise: np.ndarray, beta: float) -> Particles:
        """Particles there, for moves alone: at the target the base does not count."""
        if beta < 1:
            return self.at(noise)
        return Particles(noise, *self.target(noise), np.zeros(len(noise)), np.zeros_like(noise))

    def learn_metric(self, particles: Particles) -> None:
        """The covariance of the particles within a mode, drawn to its diagonal where they are few.

        That of all modes together, where there are several: each around its own mean.
        """
        n, size = particles.noise.shape
        share = min(0.9, max(0.0, 1 - size / n))
        away, of = particles.noise.copy(), self.base.labels(particles.noise)
        for mode in np.unique(of):
            away[of == mode] -= away[of == mode].mean(0)
        if share == 0:
            self.metric = np.sqrt((away**2).sum(0) / (n - 1) + 1e-9)
            return
        covariance = away.T @ away / (n - 1)
        covariance = share * covariance + (1 - share) * np.diag(np.diag(covariance))
        self.metric = np.linalg.cholesky(covariance + 1e-9 * np.eye(size))

    def __call__(self, particles: Particles, temperature: float) -> Move:
        """One move of each particle."""
        with np.errstate(all="ignore"):  # what runs away is refused
            move = self._move(particles, temperature)
            if isinstance(self.base, Mixture):
                move.particles = self._jump(self.base, move.particles, temperature)
            if temperature == 1:
                at = move.particles
                move.particles = replace(at, base=self.base(at.noise)[0])
            return move

    def _jump(self, base: Mixture, particles: Particles, beta: float) -> Particles:
        """The particles, those at other modes whose jumps were accepted."""
        noise, gain = base.jump(particles.noise, self.rng)
        there, still = self._within_move(noise, beta), np.zeros_like(noise)
        gain = gain + self._density(there, still, beta) - self._density(particles, still, beta)
        ok = np.log(self.rng.uniform(size=len(noise))) < np.where(np.isnan(gain), -np.inf, gain)
        return there.where(ok & (there.value > FORBIDDEN), particles)

    def _move(self, particles: Particles, temperature: float) -> Move:
        rng, n, settings = self.rng, len(particles), self.settings
        count = round(settings.move_length / self.step * rng.uniform(*settings.jitter))
        count = int(np.clip(count, 1, settings.max_steps))
        length = self.step * rng.uniform(*settings.jitter, (n, 1))
        way = _Trajectory(temperature, count, length)
        momentum = rng.normal(size=particles.noise.shape)
        there, _, gain = self._leapfrog(particles, momentum, way)
        accepted = np.exp(np.minimum(0.0, gain))
        self.step *= float(np.exp(accepted.mean() - settings.target_acceptance))
        self.step = float(np.clip(self.step, settings.min_step, settings.max_step))
        ok = rng.uniform(size=n) < accepted
        move = Move(there.where(ok, particles), accepted, gain < -settings.wall_loss)
        again = np.flatnonzero(~ok & (gain < -settings.retry_loss))
        if move.walls.mean() < settings.min_wall_share or not settings.has_second_tries:
            return move
        for k in range(0, len(again), settings.retry_batch):
            self._try_finer(move, particles, momentum, way, again[k : k + settings.retry_batch])
        return move

    def _try_finer(
        self,
        move: Move,
        before: Particles,
        momentum: np.ndarray,
        way: _Trajectory,
        some: np.ndarray,
    ) -> None:
        """A second try of these particles, noted in ``move``."""
        settings = self.settings
        rows = np.resize(some, settings.retry_batch)  # one program serves any number of them
        own = way.take(rows)
        finer = own.divide(settings.finer_steps)
        there, end, gain = self._leapfrog(before.take(rows), momentum[rows], finer)
        ghost = self._leapfrog(there, -end, own)[2]
        refused = np.log1p(-np.exp(np.minimum(0.0, ghost))) - np.log1p(-move.accepted[rows])
        gain = np.where(ghost < -settings.retry_loss, gain + refused, -np.inf)
        accepted = np.exp(np.minimum(0.0, gain))
        ok = np.flatnonzero((self.rng.uniform(size=len(rows)) < accepted)[: len(some)])
        move.particles.put(some[ok], there.take(ok))
        move.accepted[some] = accepted[: len(some)]
        move.walls[some] &= gain[: len(some)] < -settings.wall_loss

    def _leapfrog(
        self, particles: Particles, momentum: np.ndarray, way: _Trajectory
    ) -> tuple[Particles, np.ndarray, np.ndarray]:
        """Where leapfrog steps lead to: particles, momentum, and what is gained in log density."""
        begin, now = self._density(particles, momentum, way.beta), particles
        push = 0.5 * way.length * self._push(now, way.beta)
        for _ in range(way.count):
            momentum = momentum + push
            now = self._within_move(now.noise + way.length * self._pull(momentum), way.beta)
            push = 0.5 * way.length * self._push(now, way.beta)
            momentum = momentum + push
        gain = self._density(now, momentum, way.beta) - begin
        allowed = np.isfinite(gain) & (now.value > FORBIDDEN)
        return now, momentum, np.where(allowed, gain, -np.inf)

    def _push(self, at: Particles, beta: float) -> np.ndarray:
        slope = at.slope if beta == 1 else beta * at.slope + (1 - beta) * at.base_slope
        if self.metric is None or self.metric.ndim == 1:
            return slope if self.metric is None else slope * self.metric
        return slope @ self.metric

    def _pull(self, momentum: np.ndarray) -> np.ndarray:
        if self.metric is None or self.metric.ndim == 1:
            return momentum if self.metric is None else momentum * self.metric
        return momentum @ self.metric.T

    @staticmethod
    def _density(at: Particles, momentum: np.ndarray, beta: float) -> np.ndarray:
        return beta * at.value + (1 - beta) * at.base - 0.5 * np.sum(momentum**2, -1)
