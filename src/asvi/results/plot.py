"""Takes a Fit; gives figures: trace, marginals, weights, pairs, bands, predictions, graph.

Every function takes axes or makes them, and returns them.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from asvi.errors import SiteError
from asvi.results.fit import Fit
from asvi.results.inference_data import prior_draws

__all__ = [
    "bands",
    "elbo_trace",
    "graph",
    "marginals",
    "pairs",
    "predictive_check",
    "prior_weights",
    "probabilities",
]


def _axes(ax: Axes | None, width: float = 5.0, height: float = 3.2) -> Axes:
    return Figure(figsize=(width, height), layout="constrained").subplots() if ax is None else ax


def elbo_trace(fit: Fit, ax: Axes | None = None) -> Axes:
    """ELBO of every chunk of steps, and the final one with its error."""
    ax = _axes(ax)
    steps = fit.run.chunk * np.arange(1, len(fit.losses) + 1)
    elbos = -np.asarray(fit.losses)
    ax.plot(steps, elbos, marker=".", lw=1)
    ax.axhline(fit.elbo, color="C1", lw=1, label=f"final {fit.elbo:.2f} ± {fit.elbo_se:.2f}")
    late = elbos[len(elbos) // 4 :]
    spread = max(float(np.ptp(late)), 1.0)
    ax.set_ylim(min(fit.elbo, float(np.nanmin(late))) - 0.2 * spread, fit.elbo + 0.3 * spread)
    ax.set(xlabel="step", ylabel="ELBO [nat]")
    ax.legend(fontsize=8)
    return ax


def marginals(
    fit: Fit, sites: list[str] | None = None, most: int = 12, draws: int = 2000
) -> np.ndarray:
    """Posterior against prior of each latent number; the first ``most`` of them."""
    posterior = fit.posterior
    drawn = posterior.sample(jax.random.key(0), (draws,))
    prior = prior_draws(posterior, jax.random.key(1), draws)
    columns = _columns(fit, sites)[:most]
    across = min(4, len(columns))
    down = -(-len(columns) // across)
    figure = Figure(figsize=(2.6 * across, 2.0 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False)
    for ax in axes.ravel()[len(columns) :]:
        ax.set_axis_off()
    for ax, (label, name, index) in zip(axes.ravel(), columns, strict=False):
        after = np.asarray(drawn[name], float).reshape(draws, -1)[:, index]
        before = np.asarray(prior[name], float).reshape(draws, -1)[:, index]
        if _discrete(fit, name):
            _bars(ax, before, after)
        else:
            low, high = np.quantile(after, [0.001, 0.999])
            pad = 0.6 * (high - low) + 1e-12
            grid = np.linspace(low - pad, high + pad, 60)
            ax.hist(before, grid, density=True, color="0.75", label="prior")
            ax.hist(after, grid, density=True, color="C0", alpha=0.7, label="posterior")
        ax.set_title(label, fontsize=8)
        ax.set_yticks([])
        ax.tick_params(labelsize=7)
    axes[0, 0].legend(fontsize=7)
    return axes


def probabilities(
    fit: Fit, site: str | None = None, ax: Axes | None = None, draws: int = 2000
) -> Axes:
    """Posterior probability of each value of a discrete site, element by element, as a heat map.

    Without ``site``, of the first discrete one.
    """
    discrete = [s.name for s in fit.problem.program.latent if s.is_discrete]
    if site is None and not discrete:
        ax = _axes(ax)
        ax.text(0.5, 0.5, "the model has no discrete sites", ha="center")
        ax.set_axis_off()
        return ax
    site = str(discrete[0] if site is None else site)
    if not _discrete(fit, site):
        instead = f'asvi.plot.marginals(fit, ["{site}"])'
        raise SiteError(site, "it is continuous and has no probabilities", instead)
    drawn = fit.posterior.sample(jax.random.key(0), (draws,))[site]
    rows = np.asarray(drawn).reshape(draws, -1)
    values = np.unique(rows)
    table = np.stack([(rows == value).mean(0) for value in values])
    ax = _axes(ax, height=1.0 + 0.3 * len(values))
    image = ax.imshow(table, aspect="auto", cmap="Blues", vmin=0, vmax=1, origin="lower")
    ax.set_yticks(range(len(values)), [str(value) for value in values], fontsize=7)
    ax.set(xlabel=f"element of {site}", ylabel="value")
    ax.figure.colorbar(image, ax=ax, label="probability")
    return ax


def prior_weights(fit: Fit, ax: Axes | None = None) -> Axes:
    """λ of every leaf as a heat map: 1 where the prior rules, 0 where the data overrode it.

    Of a :class:`~asvi.families.StructuredNormal`, the share of the noise's prior variance that the
    data left.
    """
    guide = fit.problem.guide
    rows = {label: np.ravel(x) for label, x in guide.prior_shares(fit.params).items()}
    ax = _axes(ax, height=0.4 + 0.3 * max(1, len(rows)))
    if not rows:
        ax.text(0.5, 0.5, "this family has no prior weights", ha="center")
        ax.set_axis_off()
        return ax
    width = max(len(values) for values in rows.values())
    table = np.full((len(rows), width), np.nan)
    for i, values in enumerate(rows.values()):
        table[i, : len(values)] = values
    image = ax.imshow(table, aspect="auto", cmap="viridis_r", vmin=0, vmax=1)
    ax.set_yticks(range(len(rows)), list(rows), fontsize=7)
    ax.set_xlabel("entry", fontsize=8)
    ax.figure.colorbar(image, ax=ax, label="prior weight")
    return ax


def pairs(fit: Fit, most: int = 4, draws: int = 2000) -> np.ndarray:
    """Scatter plots of the pairs of latent numbers that are correlated most."""
    drawn = fit.posterior.sample(jax.random.key(0), (draws,))
    columns = _columns(fit, None)[:300]
    x = np.stack([np.asarray(drawn[n], float).reshape(draws, -1)[:, i] for _, n, i in columns], 1)
    alive = np.flatnonzero(x.std(0) > 0)
    strength = np.abs(np.corrcoef(x[:, alive].T)) if len(alive) > 1 else np.zeros((1, 1))
    upper = np.argwhere(np.triu(np.ones_like(strength), 1) > 0)
    upper = upper[np.argsort([-strength[a, b] for a, b in upper])][:most]
    count = max(1, len(upper))
    figure = Figure(figsize=(2.6 * count, 2.6), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    if not len(upper):
        axes[0].set_axis_off()
    for ax, (a, b) in zip(axes, upper, strict=False):
        first, second = alive[a], alive[b]
        ax.plot(x[:, first], x[:, second], ".", ms=2, alpha=0.4)
        ax.set_xlabel(columns[first][0], fontsize=8)
        ax.set_ylabel(columns[second][0], fontsize=8)
        ax.set_title(f"correlation {np.corrcoef(x[:, first], x[:, second])[0, 1]:.2f}", fontsize=8)
        ax.tick_params(labelsize=7)
    return axes


def bands(fit: Fit, site: str | None = None) -> np.ndarray:
    """Median and 50% and 90% bands of a site along its first axis (time, or a plate)."""
    long = [s for s in fit.problem.program.latent if s.shape and s.shape[0] > 1]
    if site is None:
        if not long:
            figure = Figure(figsize=(5, 2))
            ax = figure.subplots()
            ax.set_axis_off()
            ax.text(0.5, 0.5, "no site has an axis to draw along", ha="center")
            return np.array([ax])
        site = max(long, key=lambda s: s.shape[0]).name
    site = str(site)
    levels = fit.posterior.quantiles((0.05, 0.25, 0.5, 0.75, 0.95))[site]
    levels = levels.reshape(5, levels.shape[1], -1)[:, :, :4]
    figure = Figure(figsize=(6, 1.8 * levels.shape[2]), layout="constrained")
    axes = figure.subplots(levels.shape[2], 1, sharex=True, squeeze=False)[:, 0]
    time = np.arange(levels.shape[1])
    for i, ax in enumerate(axes):
        q = levels[:, :, i]
        ax.fill_between(time, q[0], q[4], color="C0", alpha=0.2, lw=0, label="90%")
        ax.fill_between(time, q[1], q[3], color="C0", alpha=0.35, lw=0, label="50%")
        ax.plot(time, q[2], color="C0", lw=1)
        ax.set_ylabel(site if len(axes) == 1 else f"{site}[:, {i}]", fontsize=8)
    axes[0].legend(fontsize=7)
    return axes


def predictive_check(fit: Fit, ax: Axes | None = None, draws: int = 50) -> Axes:
    """Distribution of the data against that of draws from the posterior predictive."""
    ax = _axes(ax)
    idata = fit.to_arviz(num_samples=draws)
    observed = dict(idata["observed_data"].data_vars)
    if not observed:
        ax.set_axis_off()
        return ax
    name = max(observed, key=lambda n: observed[n].size)
    data = np.ravel(np.asarray(observed[name], float))
    predicted = np.asarray(idata["posterior_predictive"][name], float).reshape(-1, data.size)
    low, high = np.quantile(np.concatenate([data, predicted.ravel()]), [0.005, 0.995])
    grid: Any = np.linspace(low, high, 40) if high > low else [low - 0.5, low + 0.5]
    for row in predicted:
        ax.hist(row, grid, density=True, histtype="step", color="C0", alpha=0.15)
    ax.hist(data, grid, density=True, histtype="step", color="k", lw=1.5, label="data")
    ax.plot([], [], color="C0", label="posterior predictive")
    ax.set_xlabel(name)
    ax.set_yticks([])
    ax.legend(fontsize=8)
    return ax


def graph(fit: Fit, ax: Axes | None = None) -> Axes:
    """The model's sites and arrows; dashed red where the family misses a dependency."""
    ax = _axes(ax, 6.0, 4.0)
    program = fit.problem.program
    sites = [program.with_parents(site) for site in program.sites if site.kind != "factor"]
    level: dict[str, int] = {}
    for site in sites:
        above = [level[p] for p in site.parents if p in level and p != site.name]
        level[site.name] = 1 + max(above, default=-1)
    place = {}
    for depth in set(level.values()):
        row = [name for name in level if level[name] == depth]
        for i, name in enumerate(row):
            place[name] = ((i + 0.5) / len(row), -depth)
    for site in sites:
        for parent in site.parents:
            if parent != site.name and parent in place:
                ax.annotate(
                    "",
                    place[site.name],
                    place[parent],
                    arrowprops={"arrowstyle": "->", "shrinkA": 14, "shrinkB": 14, "color": "0.4"},
                )
    for a, b in fit.explain().missed:
        style = {"arrowstyle": "-", "ls": "--", "color": "C3", "shrinkA": 14, "shrinkB": 14}
        style["connectionstyle"] = "arc3,rad=0.25"
        ax.annotate("", place[a], place[b], arrowprops=style)
    for site in sites:
        color = "0.8" if site.kind == "observed" else "white"
        box = {"boxstyle": "round", "fc": color, "ec": "0.3"}
        x, y = place[site.name]
        ax.text(x, y, site.name, ha="center", va="center", bbox=box, fontsize=8)
    ax.set_xlim(0, 1)
    ax.set_ylim(-max(level.values()) - 0.5, 0.5)
    ax.set_axis_off()
    return ax


def _columns(fit: Fit, sites: list[str] | None) -> list[tuple[str, str, int]]:
    """Every latent number: its label, its site, its place in the flattened site."""
    found = []
    for site in fit.problem.program.latent:
        if sites is not None and site.name not in sites:
            continue
        for i in range(int(np.prod(site.shape)) if site.shape else 1):
            where = ",".join(map(str, np.unravel_index(i, site.shape))) if site.shape else ""
            found.append((f"{site.name}[{where}]" if where else site.name, site.name, i))
    return found


def _discrete(fit: Fit, name: str) -> bool:
    return fit.problem.program[name].is_discrete


def _bars(ax: Any, before: np.ndarray, after: np.ndarray) -> None:
    values = np.unique(np.concatenate([before, after]))
    ax.bar(values - 0.2, [(before == v).mean() for v in values], 0.4, color="0.75", label="prior")
    ax.bar(values + 0.2, [(after == v).mean() for v in values], 0.4, color="C0", label="posterior")
