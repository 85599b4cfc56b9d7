"""Eight schools: a structured guide beside mean field and the exact posterior.

Eight schools coached their pupils for a test; school i saw an effect of y_i points, with standard
error sigma_i (Rubin, 1981). The effects theta_i come from one population of unknown mean mu and
spread tau:

    mu ~ Normal(0, 10)    log_tau ~ Normal(5, 1)
    theta_i ~ Normal(mu, exp(log_tau))    y_i ~ Normal(theta_i, sigma_i)

Given tau everything else is Gaussian, so the exact posterior is one integral over log_tau away, and
this file computes it. Run it:

    python examples/eight_schools.py    # about half a minute; writes out/eight_schools.png
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI
from rich.console import Console
from rich.table import Table

import asvi
from asvi.families import ConvexUpdate, Family, MeanField

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import SubFigure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

Y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SIGMA = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
SITES = ("mu", "log_tau", *(f"theta_{i}" for i in range(1, 9)))


def eight_schools(sigma, y) -> None:
    """The model, centred: the form that couples theta and log_tau most."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    log_tau = numpyro.sample("log_tau", dist.Normal(5.0, 1.0))
    with numpyro.plate("school", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, jnp.exp(log_tau)))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


# ------------------------------------------------------------------------------------ the fits


@dataclass(frozen=True)
class Fit:
    """A fitted family: its ELBO with standard error, and draws by name (``theta_1`` and so on)."""

    name: str
    elbo: float
    elbo_se: float
    draws: dict[str, np.ndarray]


def fit(name: str, family: Family, steps: int, key: jax.Array, num_draws: int = 20_000) -> Fit:
    """Fit ``family`` to eight schools; ELBO and draws are estimated from ``num_draws`` draws."""
    guide = asvi.AutoASVI(eight_schools, family=family)
    # A rate that falls to 0 lets the path estimator, whose noise falls as well, settle.
    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, steps))
    loss = asvi.ELBO(num_particles=16, estimator="path")
    svi = SVI(eight_schools, guide, optimizer, loss)
    fit_key, elbo_key, draw_key = jax.random.split(key, 3)
    params = svi.run(fit_key, steps, SIGMA, Y, progress_bar=False).params

    one_draw = asvi.ELBO()

    @jax.jit
    def elbos(keys: jax.Array) -> jax.Array:
        return jax.vmap(lambda k: -one_draw.loss(k, params, eight_schools, guide, SIGMA, Y))(keys)

    values = np.asarray(elbos(jax.random.split(elbo_key, num_draws)), np.float64)
    draws = guide.sample_posterior(draw_key, params, SIGMA, Y, sample_shape=(num_draws,))
    return Fit(name, values.mean(), values.std() / num_draws**0.5, by_name(draws))


def by_name(draws: dict[str, jax.Array]) -> dict[str, np.ndarray]:
    """Draws of ``mu``, ``log_tau`` and ``theta`` with one entry for each school."""
    theta = np.asarray(draws["theta"])
    schools = {f"theta_{i + 1}": theta[:, i] for i in range(8)}
    return {"mu": np.asarray(draws["mu"]), "log_tau": np.asarray(draws["log_tau"]), **schools}


# --------------------------------------------------------------------- the exact posterior


@dataclass(frozen=True)
class Exact:
    """A distribution that is Gaussian given log_tau, on a grid of log_tau.

    ``weight`` is the mass of each grid point (it sums to 1). ``mean`` and ``sd`` hold, for ``mu``
    and each ``theta_i``, the moments given log_tau, along the grid.
    """

    log_tau: np.ndarray
    weight: np.ndarray
    mean: dict[str, np.ndarray]
    sd: dict[str, np.ndarray]
    log_evidence: float

    def moments(self, site: str) -> tuple[float, float]:
        """Mean and standard deviation of a site."""
        mean, sd = (self.log_tau, 0.0) if site == "log_tau" else (self.mean[site], self.sd[site])
        first = np.sum(self.weight * mean)
        second = np.sum(self.weight * (mean**2 + sd**2))
        return float(first), float(np.sqrt(second - first**2))

    def density(self, site: str, x: np.ndarray) -> np.ndarray:
        """Marginal density of a site at the points ``x``."""
        if site == "log_tau":
            step = self.log_tau[1] - self.log_tau[0]
            return np.interp(x, self.log_tau, self.weight / step)
        return normal_density(x[:, None], self.mean[site], self.sd[site]) @ self.weight

    def joint(self, site: str, x: np.ndarray, log_tau: np.ndarray) -> np.ndarray:
        """Density of ``site`` and log_tau, of shape ``(len(log_tau), len(x))``."""
        mean, sd = (
            np.interp(log_tau, self.log_tau, along)[:, None]
            for along in (self.mean[site], self.sd[site])
        )
        return normal_density(x, mean, sd) * self.density("log_tau", log_tau)[:, None]


def normal_density(x: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    return np.exp(-(((x - mean) / sd) ** 2) / 2) / (sd * np.sqrt(2 * np.pi))


def normal_log_density(x: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return -((x - mean) ** 2) / (2 * variance) - np.log(2 * np.pi * variance) / 2


def exact_posterior(y: np.ndarray = Y, sigma: np.ndarray = SIGMA, points: int = 4001) -> Exact:
    r"""The posterior by quadrature over log_tau; without data (``y=[]``) the prior.

    Given tau, mu and theta are conjugate: :math:`y_i \sim N(\mu, \sigma_i^2 + \tau^2)`.
    """
    log_tau = np.linspace(-7.0, 12.0, points)
    variance = np.exp(2 * log_tau)[:, None]  # of theta around mu; one column a school from here on
    marginal = sigma[: len(y)] ** 2 + variance
    mu_precision = 1 / 10.0**2 + np.sum(1 / marginal, axis=1)
    mu_mean = np.sum(y / marginal, axis=1) / mu_precision
    # p(y | tau) = p(y | mu, tau) p(mu) / p(mu | y, tau), at any mu.
    log_likelihood = (
        np.sum(normal_log_density(y, mu_mean[:, None], marginal), axis=1)
        + normal_log_density(mu_mean, 0.0, 10.0**2)
        - normal_log_density(mu_mean, mu_mean, 1 / mu_precision)
    )
    log_joint = log_likelihood + normal_log_density(log_tau, 5.0, 1.0)
    scaled = np.exp(log_joint - log_joint.max())
    # Both ends have no mass to speak of, so the plain sum is the trapezoid rule.
    log_evidence = log_joint.max() + np.log(scaled.sum() * (log_tau[1] - log_tau[0]))

    mean, sd = {"mu": mu_mean}, {"mu": mu_precision**-0.5}
    for i in range(8):
        precision = (1 / sigma[i] ** 2 if i < len(y) else 0.0) + 1 / variance[:, 0]
        to_mu = 1 / (precision * variance[:, 0])  # how far theta_i follows mu
        datum = y[i] / sigma[i] ** 2 / precision if i < len(y) else 0.0
        mean[f"theta_{i + 1}"] = datum + to_mu * mu_mean
        sd[f"theta_{i + 1}"] = np.sqrt(1 / precision + to_mu**2 / mu_precision)
    return Exact(log_tau, scaled / scaled.sum(), mean, sd, float(log_evidence))


# ------------------------------------------------------------------------------------ the report


def posterior_table(exact: Exact, fits: list[Fit]) -> Table:
    """Mean and standard deviation of every site: exact, then each fit."""
    table = Table(title="Posterior of eight schools, mean ± sd")
    table.add_column("site")
    for name in ("exact", *(f.name for f in fits)):
        table.add_column(name, justify="right")
    for site in SITES:
        cells = [exact.moments(site), *((f.draws[site].mean(), f.draws[site].std()) for f in fits)]
        table.add_row(site, *(f"{mean:6.2f} ± {sd:5.2f}" for mean, sd in cells))
    return table


def elbo_table(exact: Exact, fits: list[Fit]) -> Table:
    """The ELBO of each fit beside the exact log evidence, which no ELBO exceeds."""
    table = Table(title="Evidence lower bound (nats)")
    for column in ("family", "ELBO ± standard error", "gap to the log evidence"):
        table.add_column(column, justify="left" if column == "family" else "right")
    for f in fits:
        gap = exact.log_evidence - f.elbo
        table.add_row(f.name, f"{f.elbo:.3f} ± {f.elbo_se:.3f}", f"{gap:.3f}")
    table.add_row("exact log evidence", f"{exact.log_evidence:.3f}", "0")
    return table


# ------------------------------------------------------------------------------------ the picture

COLORS = {"exact": "0.15", "prior": "#4d9221", "ASVI": "#2166ac", "mean field": "#d6604d"}
LABELS = {"mu": r"$\mu$", "log_tau": r"$\log\tau$", "theta_1": r"$\theta_1$"}
LIMITS = {"mu": (-20.0, 32.0), "log_tau": (0.0, 7.5), "theta_1": (-35.0, 65.0)}


def draw_picture(exact: Exact, prior: Exact, fits: list[Fit], path: Path) -> None:
    """Marginals above, the joint of log_tau and theta_1 below; saved to ``path``."""
    figure = plt.figure(figsize=(11, 8.2), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[1, 1.3])
    axes = above.subplots(1, 3)
    for axis, site in zip(axes, LABELS, strict=True):
        draw_marginal(axis, site, exact, prior, fits)
    axes[0].set_ylabel("density")
    handles, labels = axes[0].get_legend_handles_labels()
    above.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)

    joint_axes = below.subplots(1, len(fits), sharex=True, sharey=True)
    for axis, f in zip(joint_axes, fits, strict=True):
        draw_joint(axis, exact, f)
    joint_axes[0].set_ylabel(LABELS["log_tau"])
    add_joint_legend(below, fits)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_marginal(axis: plt.Axes, site: str, exact: Exact, prior: Exact, fits: list[Fit]) -> None:
    """Density of one site: exact (filled), the fits, the prior."""
    x = np.linspace(*LIMITS[site], 300)
    truth = exact.density(site, x)
    axis.fill_between(x, truth, color=COLORS["exact"], alpha=0.15, lw=0)
    axis.plot(x, truth, color=COLORS["exact"], lw=1.5, label="exact posterior")
    for f in fits:
        smooth = jax.scipy.stats.gaussian_kde(jnp.asarray(f.draws[site]))
        axis.plot(x, smooth(jnp.asarray(x)), color=COLORS[f.name], lw=2, label=f.name)
    axis.plot(x, prior.density(site, x), color=COLORS["prior"], lw=1.5, ls="--", label="prior")
    axis.set(xlabel=LABELS[site], xlim=(x[0], x[-1]), yticks=[])
    axis.set_ylim(bottom=0)
    axis.spines[["top", "right"]].set_visible(False)


def draw_joint(axis: plt.Axes, exact: Exact, f: Fit) -> None:
    """Draws of a fit in the plane of theta_1 and log_tau over the exact density.

    The funnel: the smaller tau, the closer theta_1 is to mu. The lines say how wide theta_1 is at
    each log_tau; in mean field, where the two are independent, they run straight down.
    """
    x, log_tau = np.linspace(*LIMITS["theta_1"], 201), np.linspace(0.5, 4.0, 201)
    density = exact.joint("theta_1", x, log_tau)
    levels = [*levels_of_mass(density), density.max()]
    axis.contourf(x, log_tau, density, levels, colors=("0.92", "0.84", "0.74"))
    theta, height = f.draws["theta_1"], f.draws["log_tau"]
    color = COLORS[f.name]
    axis.scatter(theta[:2000], height[:2000], s=4, color=color, alpha=0.3, lw=0)
    middle, low, high = band(theta, height)
    for edge in (low, high):
        axis.plot(edge, middle, color=color, lw=2.5)
    for side in (-1.645, 1.645):
        edge = np.interp(log_tau, exact.log_tau, exact.mean["theta_1"] + side * exact.sd["theta_1"])
        axis.plot(edge, log_tau, color=COLORS["exact"], lw=1.5, ls=":")
    axis.set(xlabel=LABELS["theta_1"], xlim=LIMITS["theta_1"], ylim=(0.5, 4.0))
    axis.set_title(f"{f.name}: {exact.log_evidence - f.elbo:.2f} nat below the log evidence")
    axis.spines[["top", "right"]].set_visible(False)


def add_joint_legend(figure: SubFigure, fits: list[Fit]) -> None:
    """One legend below all joint panels; entries of the guides show all their colours."""
    given = r"90% of $\theta_1$ given $\log\tau$"
    colors = [COLORS[f.name] for f in fits]
    entries = {
        "exact: 50%, 90%, 99% of the mass": Patch(color="0.84"),
        f"exact: {given}": Line2D([], [], color=COLORS["exact"], lw=1.5, ls=":"),
        "guides: draws": tuple(Line2D([], [], color=c, lw=0, marker="o", ms=4) for c in colors),
        f"guides: {given}": tuple(Line2D([], [], color=c, lw=2.5) for c in colors),
    }
    figure.legend(
        entries.values(),
        entries.keys(),
        handler_map={tuple: HandlerTuple(ndivide=None)},
        loc="outside lower center",
        ncols=len(entries),
        frameon=False,
    )


def band(x: np.ndarray, height: np.ndarray, slices: int = 9) -> tuple[np.ndarray, ...]:
    """Mean height, 5% and 95% quantile of ``x``, in slices of ``height`` of equally many draws."""
    order = np.array_split(np.argsort(height), slices)
    return (
        np.array([height[i].mean() for i in order]),
        np.array([np.quantile(x[i], 0.05) for i in order]),
        np.array([np.quantile(x[i], 0.95) for i in order]),
    )


def levels_of_mass(density: np.ndarray, masses: tuple[float, ...] = (0.99, 0.9, 0.5)) -> np.ndarray:
    """Heights whose contours enclose these shares of a density on an even grid, lowest first."""
    heights = np.sort(density.ravel())[::-1]
    share = np.cumsum(heights) / heights.sum()
    return heights[np.searchsorted(share, masses)]


# ------------------------------------------------------------------------------------ all of it


@dataclass(frozen=True)
class Demo:
    """What the demonstration found: the exact answer, the fits, and where the picture is."""

    exact: Exact
    fits: list[Fit]
    picture: Path


def main(out: Path, steps: int, console: Console | None = None) -> Demo:
    """Fit both families in ``steps`` steps, print the tables, save the picture in ``out``."""
    console = console or Console()
    exact, prior = exact_posterior(), exact_posterior(y=np.zeros(0))
    assert abs(exact.log_evidence - -36.1308) < 1e-4, exact.log_evidence
    keys = jax.random.split(jax.random.key(0))
    with console.status("fitting two guides"):
        fits = [
            fit("ASVI", ConvexUpdate(), steps, keys[0]),
            fit("mean field", MeanField(), steps, keys[1]),
        ]
    console.print(posterior_table(exact, fits))
    console.print(elbo_table(exact, fits))
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "eight_schools.png"
    draw_picture(exact, prior, fits, picture)
    console.print(f"picture: {picture}")
    return Demo(exact, fits, picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the picture")
    parser.add_argument("--steps", type=int, default=12_000, help="optimisation steps of each fit")
    arguments = parser.parse_args()
    main(arguments.out, arguments.steps)
