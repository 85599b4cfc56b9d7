"""Takes a fit; gives a data frame of its numbers, with the names and functions of ArviZ."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from asvi.errors import AsviError, with_mended
from asvi.results.inference_data import minibatched

if TYPE_CHECKING:
    import pandas

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
        **_errors(fit, draws),
    }
    names = [label for name, x in draws.items() for label in _labels(name, x.shape[2:])]
    return pandas.DataFrame(columns, index=pandas.Index(names, dtype=object))


def chains_of(fit: Any) -> dict[str, np.ndarray]:
    """Draws by site, (islands, draws, ...)."""
    correction = fit.correction
    if correction is None:
        found = {name: np.asarray(x)[None] for name, x in fit.draws.items()}
    else:
        found = dict(correction.pool.sites)
    unseen = {*minibatched(fit.program.sites), *fit.posterior.parts}
    found = {n: x.astype(int) if x.dtype == bool else x for n, x in found.items()}
    order = [site.name for site in fit.program.sites]  # then what is made of them
    names = sorted(
        sorted(found.keys() - unseen), key=lambda n: order.index(n) if n in order else len(order)
    )
    return {name: found[name] for name in names}


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


def _errors(fit: Any, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Effective draws and Monte Carlo errors; R̂ of islands, else k̂ of weights.

    They are those that the verdict goes by: of a mean, and of an sd, which hangs on the tails.
    Draws of a pool stand in no order that functions for Markov chains could read.
    """
    names = [label for name, x in draws.items() for label in _labels(name, x.shape[2:])]
    sd = _of_all(draws, lambda x: x.std(0, ddof=1))
    mean_error, sd_error, r_hat = errors_of(fit, names)
    if r_hat is None:
        report = fit.diagnose()
        k_hat = [report.k_hat_by_site.get(name.split("[")[0], report.k_hat) for name in names]
    with np.errstate(divide="ignore"):
        return {
            "ess_bulk": 1 / mean_error**2,
            "ess_tail": 0.5 / sd_error**2,
            **({"r_hat": r_hat} if r_hat is not None else {"k_hat": np.array(k_hat)}),
            "mcse_mean": sd * mean_error,
            "mcse_sd": sd * sd_error,
        }


def errors_of(fit: Any, names: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Errors of means, in sds, relative ones of sds, and R̂; the worst where no more is known."""
    if fit.correction is None:
        effective = max(fit.diagnose().effective_draws, 1.0)
        return (
            np.full(len(names), effective**-0.5),
            np.full(len(names), (2 * effective) ** -0.5),
            None,
        )
    checks, known = fit.correction.checks, fit.correction.by_number
    mean_error = np.full(len(names), checks.mean_error)
    sd_error = np.full(len(names), checks.sd_error)
    r_hat = None if checks.r_hat is None else np.full(len(names), checks.r_hat)
    if known is not None:
        place = {name: k for k, name in enumerate(known.names)}
        for k, name in enumerate(names):
            at = place.get(name.replace(", ", ","))
            if at is not None:
                mean_error[k], sd_error[k] = known.mean_error[at], known.sd_error[at]
                if r_hat is not None and known.r_hat is not None:
                    r_hat[k] = known.r_hat[at]
    return mean_error, sd_error, r_hat


def _arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # 0.23 announces 1.0 at import
        import arviz
    return arviz
