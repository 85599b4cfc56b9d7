"""Takes a Fit; gives figures: prior and posterior, pairs, bands, predictions, weights, graph.

Every function draws on the axes that it is given, or on those of a new figure of pyplot, and
returns them: one, or an array of them where there are several panels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from asvi.errors import SiteError
from asvi.program.random_key import as_key
from asvi.results.fit import Fit
from asvi.results.inference_data import minibatched, observed_data, prior_draws
from asvi.results.model_graph import draw_graph
from asvi.results.old_calls import getter_of, takes_old_arguments
from asvi.results.panels import (
    axes_or_new,
    bars,
    columns_of,
    draw_bands,
    flat,
    panels_or_new,
    predicted_densities,
    predicted_shares,
    say_instead,
    two_densities,
)
from asvi.results.settings import PlotSettings
from asvi.results.summary import chosen_names

__all__ = [
    "graph",
    "losses",
    "pairs",
    "ppc",
    "prior_posterior",
    "prior_weights",
    "probabilities",
    "series",
]

#: Names of 0.1.
__getattr__ = getter_of("asvi.plot")


def __dir__() -> list[str]:
    return __all__


Names = str | Iterable[str] | None


def losses(fit: Fit, ax: Axes | None = None) -> Axes:
    """ELBO of every chunk of steps, and the final one with its error.

    >>> import asvi; task = asvi.tasks.get("eight-schools")
    >>> ax = asvi.plot.losses(asvi.fit(task.model, *task.args))
    """
    ax = axes_or_new(ax)
    elbos = -np.asarray(fit.losses, float)
    if np.isfinite(elbos).sum() < 2:
        return say_instead(ax, f"no steps to show: ELBO {fit.elbo:.2f} ± {fit.elbo_se:.2f}")
    steps = fit.run.chunk * np.arange(1, len(elbos) + 1)
    ax.plot(steps, elbos, marker=".", lw=1)
    ax.axhline(fit.elbo, color="C1", lw=1, label=f"final {fit.elbo:.2f} ± {fit.elbo_se:.2f}")
    late = elbos[len(elbos) // 4 :]
    late = late[np.isfinite(late)]
    # A second run begins far below, and would leave no room for the rest.
    lowest = min(fit.elbo, np.quantile(late, 0.1)) if len(late) else fit.elbo
    spread = max(fit.elbo - float(lowest), 1.0)
    ax.set_ylim(lowest - 0.2 * spread, fit.elbo + 0.3 * spread)
    ax.set(xlabel="step", ylabel="ELBO [nat]")
    ax.legend(fontsize=8)
    return ax


@takes_old_arguments("plot.prior_posterior")
def prior_posterior(
    fit: Fit,
    var_names: Names = None,
    max_subplots: int = 12,
    num_samples: int = 4000,
    ax: Any = None,
    settings: PlotSettings = PlotSettings(),
) -> np.ndarray:
    """Posterior against prior of each number; the first ``max_subplots`` of them.

    >>> import asvi; task = asvi.tasks.get("eight-schools")
    >>> axes = asvi.plot.prior_posterior(asvi.fit(task.model, *task.args), ["mu", "theta"])
    """
    drawn = fit.posterior.sample(0, num_samples)
    names = _names(fit, var_names, drawn)
    columns = columns_of({name: np.shape(drawn[name])[1:] for name in names})[:max_subplots]
    prior = _prior(fit, settings)
    axes = panels_or_new(ax, len(columns), 4, 2.6, 2.0)
    for panel, (label, name, i) in zip(axes, columns, strict=False):
        after = flat(drawn[name])[:, i]
        before = flat(prior[name])[:, i] if name in prior else np.zeros(0)
        before = before[np.isfinite(before)]
        if _is_discrete(fit, name):
            bars(panel, before if len(before) else None, after)
        else:
            two_densities(panel, before, after, settings)
        panel.set_title(label, fontsize=9)
        panel.set_yticks([])
        panel.tick_params(labelsize=7)
    axes[0].legend(fontsize=7)
    return axes


@takes_old_arguments("plot.probabilities")
def probabilities(
    fit: Fit, var_names: Names = None, num_samples: int = 4000, ax: Axes | None = None
) -> Axes:
    """Posterior probability of each value of a discrete site, element by element, as a heat map.

    Without a name, of the first discrete one.

    >>> import numpyro, numpyro.distributions as dist, asvi
    >>> def coin(heads):
    ...     fair = numpyro.sample("fair", dist.Bernoulli(0.5))
    ...     numpyro.sample("heads", dist.Binomial(9, 0.9 - 0.4 * fair), obs=heads)
    >>> ax = asvi.plot.probabilities(asvi.fit(coin, 8))
    """
    discrete = [s.name for s in fit.program.latent if s.is_discrete]
    if var_names is None and not discrete:
        return say_instead(axes_or_new(ax), "the model has no discrete sites")
    name = _names(fit, discrete[0] if var_names is None else var_names)[0]
    if not _is_discrete(fit, name):
        instead = f'asvi.plot.prior_posterior(result, "{name}")'
        raise SiteError(name, "it is continuous and has no probabilities", instead)
    rows = flat(fit.posterior.sample(0, num_samples)[name])
    values = np.unique(rows)
    table = np.stack([(rows == value).mean(0) for value in values])
    height = 1.5 + 0.16 * min(len(values), 20)
    ax = axes_or_new(ax, 5.0 if rows.shape[1] > 4 else 3.2, height)
    image = ax.imshow(table, aspect="auto", cmap="Blues", vmin=0, vmax=1, origin="lower")
    every = -(-len(values) // 20)
    shown = range(0, len(values), every)
    ax.set_yticks(shown, [f"{values[k]:g}" for k in shown], fontsize=8)
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    if rows.shape[1] == 1:
        ax.set_xticks([])
    ax.set(xlabel=f"element of {name}" if rows.shape[1] > 1 else name, ylabel="value")
    ax.figure.colorbar(image, ax=ax, label="probability", ticks=[0, 0.5, 1])
    return ax


def prior_weights(fit: Fit, ax: Axes | None = None) -> Axes:
    """λ of every leaf as a heat map: 1 where the prior rules, 0 where the data overrode it.

    Of a :class:`~asvi.families.StructuredNormal`, the share of the noise's prior variance that the
    data left.

    >>> import asvi; task = asvi.tasks.get("eight-schools")
    >>> ax = asvi.plot.prior_weights(asvi.fit(task.model, *task.args))
    """
    rows = {k: np.ravel(x) for k, x in fit.problem.guide.prior_shares(fit.params).items()}
    ax = axes_or_new(ax, height=1.1 + 0.3 * max(1, len(rows)))
    if not rows:
        return say_instead(ax, "this family has no prior weights")
    width = max(len(values) for values in rows.values())
    table = np.full((len(rows), width), np.nan)
    for i, values in enumerate(rows.values()):
        table[i, : len(values)] = values
    image = ax.imshow(table, aspect="auto", cmap="viridis_r", vmin=0, vmax=1)
    ax.set_yticks(range(len(rows)), list(rows), fontsize=8)
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    if width == 1:
        ax.set_xticks([])
    else:
        ax.set_xlabel("element", fontsize=8)
    ax.figure.colorbar(image, ax=ax, label="prior weight", ticks=[0, 0.5, 1])
    return ax


@takes_old_arguments("plot.pairs")
def pairs(
    fit: Fit,
    var_names: Names = None,
    max_subplots: int = 4,
    num_samples: int = 2000,
    ax: Any = None,
    settings: PlotSettings = PlotSettings(),
) -> np.ndarray:
    """Scatter plots of the pairs of numbers that are correlated most.

    >>> import asvi; task = asvi.tasks.get("eight-schools")
    >>> axes = asvi.plot.pairs(asvi.fit(task.model, *task.args))
    """
    drawn = fit.posterior.sample(0, num_samples)
    names = [n for n in _names(fit, var_names, drawn) if not _is_discrete(fit, n)]
    columns = columns_of({n: np.shape(drawn[n])[1:] for n in names})[: settings.candidates]
    x = np.stack([flat(drawn[n])[:, i] for _, n, i in columns] or [np.zeros(num_samples)], 1)
    alive = np.flatnonzero(np.isfinite(x).all(0) & (x.std(0) > 0))
    if len(alive) < 2:
        axes = panels_or_new(ax, 1, 1, 2.6, 2.6)
        say_instead(axes[0], "there is no pair of numbers")
        return axes
    # Of ranks: a heavy tail does not decide.
    ranks = np.argsort(np.argsort(x[:, alive], 0), 0)
    correlation: Any = np.corrcoef(ranks.T)
    upper = np.argwhere(np.triu(np.ones_like(correlation), 1) > 0)
    upper = upper[np.argsort([-abs(correlation[a, b]) for a, b in upper], kind="stable")]
    axes = panels_or_new(ax, min(max_subplots, len(upper)), 4, 2.6, 2.6)
    for panel, (a, b) in zip(axes, upper, strict=False):
        first, second = alive[a], alive[b]
        panel.plot(x[:, first], x[:, second], ".", ms=2.5, mew=0, alpha=0.4)
        panel.set_xlim(*_clipped(x[:, first]))
        panel.set_ylim(*_clipped(x[:, second]))
        panel.set_xlabel(columns[first][0], fontsize=9)
        panel.set_ylabel(columns[second][0], fontsize=9)
        panel.set_title(f"rank correlation {correlation[a, b]:.2f}", fontsize=8)
        panel.tick_params(labelsize=7)
    return axes


def _clipped(x: np.ndarray) -> tuple[float, float]:
    low, high = (float(np.quantile(x, level)) for level in (0.003, 0.997))
    return low - 0.04 * (high - low), high + 0.04 * (high - low)


@takes_old_arguments("plot.series")
def series(
    fit: Fit,
    var_names: Names = None,
    max_subplots: int = 4,
    num_samples: int = 4000,
    ax: Any = None,
) -> np.ndarray:
    """Median and 50% and 90% bands of a site along its first axis (time, or a plate).

    Without a name, of the longest one.

    >>> import asvi; task = asvi.tasks.get("eight-schools")
    >>> axes = asvi.plot.series(asvi.fit(task.model, *task.args), "theta")
    """
    drawn = fit.posterior.sample(0, num_samples)
    sizes = {n: np.shape(drawn[n])[1] for n in _names(fit, None, drawn) if np.ndim(drawn[n]) > 1}
    if var_names is None:
        names = [max(sizes, key=lambda n: sizes[n])] if max(sizes.values(), default=1) > 1 else []
    else:
        names = _names(fit, var_names, drawn)
        for name in [name for name in names if name not in sizes]:
            instead = f'asvi.plot.prior_posterior(result, "{name}")'
            raise SiteError(name, "it has no axis to draw along", instead)
    if not names:
        axes = panels_or_new(ax, 1, 1, 5.0, 2.0)
        say_instead(axes[0], "no site has an axis to draw along")
        return axes
    lines = [
        (name if x.shape[2] == 1 else f"{name}[:, {i}]", x[:, :, i])
        for name in names
        for x in [np.asarray(drawn[name], float).reshape(num_samples, sizes[name], -1)]
        for i in range(x.shape[2])
    ][:max_subplots]
    same = len({x.shape[1] for _, x in lines}) == 1
    axes = panels_or_new(ax, len(lines), 1, 6.0, 2.2 if len(lines) > 1 else 3.0, sharex=same)
    for panel, (label, x) in zip(axes, lines, strict=False):
        draw_bands(panel, np.quantile(x, (0.05, 0.25, 0.5, 0.75, 0.95), axis=0))
        panel.set_ylabel(label, fontsize=9)
        panel.tick_params(labelsize=8)
    axes[0].legend(fontsize=7)
    return axes


@takes_old_arguments("plot.ppc")
def ppc(
    fit: Fit,
    var_names: Names = None,
    max_subplots: int = 4,
    num_samples: int = 50,
    ax: Any = None,
    settings: PlotSettings = PlotSettings(),
) -> np.ndarray:
    """Distribution of the data against that of draws from the posterior predictive.

    >>> import asvi; task = asvi.tasks.get("eight-schools")
    >>> axes = asvi.plot.ppc(asvi.fit(task.model, *task.args))
    """
    fit.problem.arguments.require_data("asvi.plot.ppc(result)")
    observed = observed_data(fit.posterior)
    names = chosen_names(var_names, observed)[:max_subplots]
    axes = panels_or_new(ax, max(1, len(names)), 2, 5.0, 3.2)
    if not names:
        say_instead(axes[0], "the model has no observed site")
        return axes
    predicted = fit.posterior.predictive(1, num_samples=num_samples)
    for panel, name in zip(axes, names, strict=False):
        data = np.ravel(np.asarray(observed[name], float))
        draws = flat(predicted[name])
        keep = np.isfinite(data)
        data, draws = data[keep], draws[:, keep] if draws.shape[1] == len(keep) else draws
        is_whole = bool(np.all(data == np.round(data)) and np.all(draws == np.round(draws)))
        if is_whole and len(np.unique(data)) <= settings.most_values:
            predicted_shares(panel, data, draws)
        else:
            predicted_densities(panel, data, draws, settings)
        panel.set_xlabel(name)
        panel.set_yticks([])
    axes[0].legend(fontsize=8)
    return axes


def graph(fit: Fit, ax: Axes | None = None) -> Axes:
    """The model's sites and arrows; dashed red where the family misses a dependency.

    >>> import asvi; task = asvi.tasks.get("eight-schools")
    >>> ax = asvi.plot.graph(asvi.fit(task.model, *task.args))
    """
    return draw_graph(fit.program, fit.explain().missed, ax)


def _prior(fit: Fit, settings: PlotSettings) -> dict[str, Any]:
    """Draws of the prior; none of a model whose prior cannot be drawn from."""
    numbers = sum(int(np.prod(site.shape)) for site in fit.program.latent)
    affordable = settings.max_prior_numbers // max(1, numbers)
    count = max(settings.fewest_prior_draws, min(settings.prior_draws, affordable))
    return prior_draws(fit.posterior, as_key(1), count)


def _names(fit: Fit, var_names: Names, drawn: Iterable[str] = ()) -> list[str]:
    """Latent sites, or those that were asked for: deterministic ones, too."""
    out = {*minibatched(fit.program.latent), *fit.posterior.parts}
    latent = [site.name for site in fit.program.latent if site.name not in out]
    if var_names is None:
        return latent
    return chosen_names(var_names, [*latent, *(n for n in drawn if n not in {*latent, *out})])


def _is_discrete(fit: Fit, name: str) -> bool:
    return any(site.name == name and site.is_discrete for site in fit.program.latent)
