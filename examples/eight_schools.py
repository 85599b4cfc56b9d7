"""Eight schools: `asvi.fit` beside NUTS, mean field and the exact posterior.

Eight schools coached their pupils for a test; school i saw an effect of y_i points, with standard
error sigma_i (Rubin, 1981). The effects theta_i come from one population of unknown mean mu and
spread tau:

    mu ~ Normal(0, 10)    log_tau ~ Normal(5, 1)
    theta_i ~ Normal(mu, exp(log_tau))    y_i ~ Normal(theta_i, sigma_i)

Given tau everything else is Gaussian, so the exact posterior is one integral over log_tau away, and
this file computes it. Run it:

    python examples/eight_schools.py    # some fifteen seconds; writes out/eight_schools.png
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from scipy.special import logsumexp
from scipy.stats import gaussian_kde, norm

import asvi

matplotlib.use("Agg")
import matplotlib.pyplot as plt

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


# --------------------------------------------------------------------------------- the answers


@dataclass(frozen=True)
class Answer:
    """What one way found in ``seconds``, compiling included. The last axis of arrays is SITES."""

    name: str
    seconds: float
    draws: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    log_evidence: tuple[float, float] | None = None  # and its standard error
    elbo: tuple[float, float] | None = None  # and its standard error


def in_a_row(sites: dict) -> np.ndarray:
    """Numbers by the model's names as one array, whose last axis is SITES."""
    columns = [sites["mu"][..., None], sites["log_tau"][..., None], sites["theta"]]
    return np.concatenate(columns, axis=-1, dtype=float)


def with_asvi() -> tuple[asvi.Fit, Answer]:
    """The fit as everybody gets it: nothing is set."""
    begun = time.perf_counter()
    result = asvi.fit(eight_schools, SIGMA, Y, progress_bar=False)
    seconds = time.perf_counter() - begun
    print(result, flush=True)
    mean, sd = in_a_row(result.posterior.mean()), in_a_row(result.posterior.sd())
    draws = in_a_row(result.posterior.sample(jax.random.key(1), (20_000,)))
    evidence, elbo = (result.log_evidence, result.log_evidence_se), (result.elbo, result.elbo_se)
    return result, Answer("asvi", seconds, draws, mean, sd, evidence, elbo)


def with_nuts() -> Answer:
    """NumPyro's NUTS as it comes."""
    begun = time.perf_counter()
    mcmc = MCMC(NUTS(eight_schools), num_warmup=1000, num_samples=1000, progress_bar=False)
    mcmc.run(jax.random.key(0), SIGMA, Y)
    draws = in_a_row(mcmc.get_samples())
    return Answer("NUTS", time.perf_counter() - begun, draws, draws.mean(0), draws.std(0))


def with_mean_field(steps: int = 3000) -> Answer:
    """NumPyro's mean field at its optimum: the rate falls to 0, and with it the noise."""
    begun = time.perf_counter()
    guide, rate = AutoNormal(eight_schools), optax.cosine_decay_schedule(0.05, steps)
    svi = SVI(eight_schools, guide, optax.adam(rate), Trace_ELBO(num_particles=16))
    params = svi.run(jax.random.key(0), steps, SIGMA, Y, progress_bar=False).params
    seconds = time.perf_counter() - begun

    def elbo(key: jax.Array) -> jax.Array:
        return -Trace_ELBO().loss(key, params, eight_schools, guide, SIGMA, Y)

    values = np.asarray(jax.jit(jax.vmap(elbo))(jax.random.split(jax.random.key(1), 20_000)), float)
    bound = (values.mean(), values.std() / len(values) ** 0.5)
    draws = in_a_row(guide.sample_posterior(jax.random.key(2), params, sample_shape=(20_000,)))
    return Answer("mean field", seconds, draws, draws.mean(0), draws.std(0), elbo=bound)


# ------------------------------------------------------------------------- the exact posterior


@dataclass(frozen=True)
class Exact:
    """The posterior on a grid of log_tau, given which it is Gaussian.

    ``weight`` is the mass of each grid point (it sums to 1); ``means`` and ``sds``, of shape
    ``(grid, SITES)``, are the moments given log_tau, whose own sd is 0.
    """

    log_tau: np.ndarray
    weight: np.ndarray
    means: np.ndarray
    sds: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    log_evidence: float

    def joint(self, site: str, x: np.ndarray) -> np.ndarray:
        """Mass of each grid point times the density of a site there, of shape ``(grid, x)``."""
        i = SITES.index(site)
        return self.weight[:, None] * norm.pdf(x, self.means[:, [i]], self.sds[:, [i]])

    def density(self, site: str, x: np.ndarray) -> np.ndarray:
        """Marginal density of a site at the points ``x``."""
        if site == "log_tau":
            return np.interp(x, self.log_tau, self.weight / np.diff(self.log_tau)[0])
        return self.joint(site, x).sum(axis=0)


def exact_posterior(points: int = 4001) -> Exact:
    r"""The posterior by quadrature over log_tau.

    Given tau, mu and theta are conjugate: :math:`y_i \sim N(\mu, \sigma_i^2 + \tau^2)`.
    """
    log_tau = np.linspace(-7.0, 12.0, points)[:, None]
    spread = np.exp(2 * log_tau)  # the variance of theta around mu
    marginal = SIGMA**2 + spread  # one column a school
    mu_precision = 1 / 10.0**2 + np.sum(1 / marginal, axis=1, keepdims=True)
    mu = np.sum(Y / marginal, axis=1, keepdims=True) / mu_precision
    # p(y | tau) = p(y | mu, tau) p(mu) / p(mu | y, tau), at any mu.
    log_likelihood = norm.logpdf(Y, mu, np.sqrt(marginal)).sum(axis=1, keepdims=True)
    log_likelihood += norm.logpdf(mu, 0.0, 10.0) - norm.logpdf(mu, mu, mu_precision**-0.5)
    log_joint = log_likelihood[:, 0] + norm.logpdf(log_tau[:, 0], 5.0, 1.0)
    total = logsumexp(log_joint)  # both ends have no mass to speak of: the trapezoid rule

    precision = 1 / SIGMA**2 + 1 / spread  # of theta given mu
    to_mu = 1 / (precision * spread)  # how far theta follows mu
    theta = Y / SIGMA**2 / precision + to_mu * mu
    theta_sd = np.sqrt(1 / precision + to_mu**2 / mu_precision)
    means = np.hstack([mu, log_tau, theta])
    sds = np.hstack([mu_precision**-0.5, np.zeros_like(log_tau), theta_sd])
    log_tau, weight = log_tau[:, 0], np.exp(log_joint - total)
    mean = weight @ means
    sd = np.sqrt(weight @ (means**2 + sds**2) - mean**2)
    log_evidence = float(total + np.log(log_tau[1] - log_tau[0]))
    return Exact(log_tau, weight, means, sds, mean, sd, log_evidence)


# -------------------------------------------------------------------- the table and the picture

COLORS = {"asvi": "#2166ac", "mean field": "#d6604d"}
LABELS = {"mu": r"$\mu$", "log_tau": r"$\log\tau$", "theta_1": r"$\theta_1$"}
LIMITS = {"mu": (-15.0, 27.0), "log_tau": (0.5, 4.2), "theta_1": (-30.0, 60.0)}


def worst_error(answer: Answer, exact: Exact) -> tuple[float, str]:
    """The largest error of any mean or sd, in exact sds, and what it is an error of."""
    errors = np.abs([answer.mean - exact.mean, answer.sd - exact.sd]) / exact.sd
    what, i = np.unravel_index(errors.argmax(), errors.shape)
    return float(errors.max()), f"{('mean', 'sd')[what]} of {SITES[i]}"


def print_table(exact: Exact, answers: list[Answer]) -> None:
    """Evidence with standard errors, means ± sds, the worst error of all, seconds."""
    rows = [("", "exact", *(a.name for a in answers))]
    found = [("log evidence", f"{exact.log_evidence:.3f}", [a.log_evidence for a in answers])]
    found.append(("ELBO", "", [a.elbo for a in answers]))
    for name, truth, pairs in found:
        rows.append((name, truth, *("{:.3f} ± {:.3f}".format(*x) if x else "-" for x in pairs)))
    for i, site in enumerate(LIMITS):
        rows.append((site, *(f"{a.mean[i]:.2f} ± {a.sd[i]:.2f}" for a in (exact, *answers))))
    errors = [worst_error(a, exact) for a in answers]
    rows.append(("worst error", "", *(f"{size:.3f} sd" for size, _ in errors)))
    rows.append(("", "", *(what for _, what in errors)))
    rows.append(("seconds", "", *(f"{a.seconds:.1f}" for a in answers)))
    for name, *cells in rows:
        print(f"{name:12}", *(f"{cell:>16}" for cell in cells))


def draw_picture(exact: Exact, answers: list[Answer], path: Path) -> None:
    """Marginals above, the joint of log_tau and theta_1 below; saved to ``path``."""
    layout = [np.repeat(list(LIMITS), 2), np.repeat([a.name for a in answers], 3)]
    sizes = {"figsize": (11, 8.2), "height_ratios": [1, 1.4], "layout": "constrained"}
    figure, axes = plt.subplot_mosaic(layout, **sizes)
    for i, (site, limits) in enumerate(LIMITS.items()):
        x = np.linspace(*limits, 300)
        axes[site].fill_between(x, exact.density(site, x), color="0.8", label="exact posterior")
        for a in answers:
            smooth = gaussian_kde(a.draws[:, i])(x)
            axes[site].plot(x, smooth, color=COLORS[a.name], lw=2, label=a.name)
        axes[site].set(xlabel=LABELS[site], xlim=limits, yticks=[], ylim=(0, None))
    for a in answers:
        draw_joint(axes[a.name], exact, a)
        error, what = worst_error(a, exact)
        axes[a.name].set_title(f"{a.name}: {what} off by {error:.2f} sd, the worst of all")
    for axis in axes.values():
        axis.spines[["top", "right"]].set_visible(False)
    handles = axes["mu"].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=3, frameon=False)
    lines = r"lines: 90% of $\theta_1$ given $\log\tau$ (dotted: exact)"
    figure.supxlabel(f"grey: 50%, 90% and 99% of the exact mass; points: draws; {lines}", size=10)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_joint(axis: plt.Axes, exact: Exact, answer: Answer) -> None:
    """Draws in the plane of theta_1 and log_tau over the exact density.

    The funnel: the smaller tau, the closer theta_1 is to mu. The lines say how wide theta_1 is at
    each log_tau; in mean field, where the two are independent, they run straight down.
    """
    x, color = np.linspace(*LIMITS["theta_1"], 201), COLORS[answer.name]
    density = exact.joint("theta_1", x)
    levels = [*levels_of_mass(density), density.max()]
    axis.contourf(x, exact.log_tau, density, levels, colors=("0.92", "0.84", "0.74"))
    _, log_tau, theta = answer.draws[:, :3].T
    axis.scatter(theta[:2000], log_tau[:2000], s=4, color=color, alpha=0.3, lw=0)
    slices = np.array_split(np.argsort(log_tau), 9)  # of equally many draws
    height = [log_tau[i].mean() for i in slices]
    for share in (0.05, 0.95):
        axis.plot([np.quantile(theta[i], share) for i in slices], height, color=color, lw=2.5)
        edge = norm.ppf(share, exact.means[:, 2], exact.sds[:, 2])
        axis.plot(edge, exact.log_tau, color="0.15", lw=1.5, ls=":")
    axis.set(xlabel=LABELS["theta_1"], ylabel=LABELS["log_tau"])
    axis.set(xlim=LIMITS["theta_1"], ylim=LIMITS["log_tau"])


def levels_of_mass(density: np.ndarray, masses: tuple[float, ...] = (0.99, 0.9, 0.5)) -> np.ndarray:
    """Heights whose contours enclose these shares of a density on an even grid, lowest first."""
    heights = np.sort(density.ravel())[::-1]
    return heights[np.searchsorted(np.cumsum(heights) / heights.sum(), masses)]


# ----------------------------------------------------------------------------------- all of it


def main(out: Path) -> tuple[Exact, asvi.Fit, list[Answer], Path]:
    """Fit, print, compare; the picture is saved in ``out``. All that was found is returned."""
    exact, (result, ours) = exact_posterior(), with_asvi()
    answers = [ours, with_nuts(), with_mean_field()]
    print("\nmean ± sd; errors are those of the worst of ten means and ten sds, in exact sds")
    print_table(exact, answers)
    times = answers[1].seconds / ours.seconds
    print(f"\nNUTS took {times:.1f} times as long as asvi.fit, compiling included")
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "eight_schools.png"
    draw_picture(exact, [ours, answers[2]], picture)
    print(f"picture: {picture}")
    return exact, result, answers, picture


if __name__ == "__main__":
    main(Path("out"))
