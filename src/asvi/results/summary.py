"""Takes a fit; gives a data frame of its numbers, with the names and functions of ArviZ."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from asvi.errors import AsviError, with_mended
from asvi.fitting.correction.result import Correction
from asvi.results.inference_data import minibatched

if TYPE_CHECKING:
    import pandas
    import xarray

__all__ = ["chains_of", "chosen_names", "errors_of", "summarize"]


def summarize(
    fit: Any, var_names: str | Iterable[str] | None, ci_prob: float, ci_kind: str
) -> pandas.DataFrame:
    """Mean, sd, interval and Monte Carlo errors of every number, one in a row."""
    import pandas

    if ci_kind not in ("eti", "hdi") or not 0 < ci_prob < 1:
        text = f"ci_kind={ci_kind!r} and ci_prob={ci_prob!r} make no interval"
        raise AsviError(with_mended(text, 'result.summary(ci_prob=0.9, ci_kind="eti")'))
    draws = {name: x for name, x in chains_of(fit).items() if np.issubdtype(x.dtype, np.number)}
    draws = {name: draws[name] for name in chosen_names(var_names, draws)}
    columns = {
        "mean": _of_all(draws, lambda x: x.mean(0)),
        "sd": _of_all(draws, lambda x: x.std(0, ddof=1)),
        **_interval(draws, ci_prob, ci_kind),
        **errors_of(fit, draws),
    }
    names = [label for name, x in draws.items() for label in _labels(name, x.shape[2:])]
    return pandas.DataFrame(columns, index=pandas.Index(names, dtype=object))


def chains_of(fit: Any) -> dict[str, np.ndarray]:
    """Draws by site, (chains, draws, ...): chains are islands of particles, or there is one."""
    correction = fit.correction
    if correction is None:
        found = {name: np.asarray(x)[None] for name, x in fit.draws.items()}
    else:
        found = {name: _by_particle(x, correction) for name, x in correction.pool.sites.items()}
    unseen = {*minibatched(fit.program.sites), *fit.posterior.parts}
    found = {n: x.astype(int) if x.dtype == bool else x for n, x in found.items()}
    return {name: x for name, x in found.items() if name not in unseen}


def _by_particle(x: np.ndarray, correction: Correction) -> np.ndarray:
    """Draws of each island with the moves of a particle one after the other, as a chain has them.

    In the pool the particles of one move stand together, which would hide what moves share.
    """
    islands, count = x.shape[:2]
    each = correction.checks.particles // islands
    if correction.rung != "moves" or each < 1 or count % each:
        return x
    apart = x.reshape(islands, count // each, each, *x.shape[2:])
    return np.moveaxis(apart, 1, 2).reshape(x.shape)


def chosen_names(var_names: str | Iterable[str] | None, draws: Iterable[str]) -> list[str]:
    """The names that were asked for; raises where one of them is none of those that there are."""
    names = [var_names] if isinstance(var_names, str) else var_names
    names = list(draws) if names is None else list(names)
    missing = [name for name in names if name not in draws]
    if missing:
        raise AsviError(
            f"the posterior has no {', '.join(map(repr, missing))}; it has {', '.join(draws)}."
        )
    return names


def _labels(name: str, shape: tuple[int, ...]) -> list[str]:
    return [f"{name}[{', '.join(map(str, at))}]" if at else name for at in np.ndindex(shape)]


def _of_all(draws: dict[str, np.ndarray], number: Any) -> np.ndarray:
    """A number of every column, sites one after the other."""
    return np.concatenate(
        [np.ravel(number(np.asarray(x, float).reshape(-1, *x.shape[2:]))) for x in draws.values()]
    )


def _interval(draws: dict[str, np.ndarray], prob: float, kind: str) -> dict[str, np.ndarray]:
    def hdi(x: np.ndarray) -> np.ndarray:
        az = _arviz()
        name = "prob" if "prob" in inspect.signature(az.hdi).parameters else "hdi_prob"
        flat = x.reshape(len(x), -1).T
        return np.stack([az.hdi(column, **{name: prob}) for column in flat])

    ends = []
    for end, level in ((0, 0.5 - prob / 2), (1, 0.5 + prob / 2)):
        if kind == "eti":
            ends.append(_of_all(draws, lambda x, level=level: np.quantile(x, level, axis=0)))
        else:
            ends.append(_of_all(draws, lambda x, end=end: hdi(x)[:, end]))
    stem = f"{kind}{round(100 * prob)}"
    return {f"{stem}_lb": ends[0], f"{stem}_ub": ends[1]}


def errors_of(fit: Any, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Effective draws and Monte Carlo errors; R̂ of islands, else k̂ of weights."""
    if fit.correction is not None and fit.correction.rung == "moves":
        return _errors_of_moves(draws)
    report = fit.diagnose()
    count = sum(x[0, 0].size for x in draws.values())
    sd = _of_all(draws, lambda x: x.std(0, ddof=1))
    effective = max(report.effective_draws, 1.0)
    # Of a mean whose draws were weighted the error of the worst number is known: it is that of all.
    sd_error = np.sqrt(0.5 / effective) if report.checks is None else report.checks.sd_error
    return {
        "ess_bulk": np.full(count, effective),
        "ess_tail": np.full(count, effective),
        "k_hat": np.concatenate(
            [
                np.full(x[0, 0].size, report.k_hat_by_site.get(n, report.k_hat))
                for n, x in draws.items()
            ]
        ),
        "mcse_mean": sd / np.sqrt(effective),
        "mcse_sd": sd * sd_error,
    }


def _errors_of_moves(draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    az, data = _arviz(), _dataset(draws)

    def column(found: xarray.Dataset) -> np.ndarray:
        return np.concatenate([np.ravel(found[name].values) for name in draws])

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # numbers that never change
        return {
            "ess_bulk": column(az.ess(data, method="bulk")),
            "ess_tail": column(az.ess(data, method="tail")),
            "r_hat": column(az.rhat(data)),
            "mcse_mean": column(az.mcse(data, method="mean")),
            "mcse_sd": column(az.mcse(data, method="sd")),
        }


def _dataset(draws: dict[str, np.ndarray]) -> xarray.Dataset:
    import xarray

    return xarray.Dataset(
        {
            name: (["chain", "draw", *(f"{name}_{k}" for k in range(x.ndim - 2))], x)
            for name, x in draws.items()
        }
    )


def _arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # 0.23 announces 1.0 at import
        import arviz
    return arviz
