"""Takes rows of results; gives the table: means with standard errors, paired comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["compare", "summarise", "to_markdown", "verdicts"]

Rows = list[dict[str, Any]]
_COLUMNS = ("neg_elbo", "rmse_image", "rmse_latent")


def summarise(rows: Rows) -> Rows:
    """One line for each generator, problem and family: mean and standard error over repetitions."""
    found = []
    for generator, problem in _problems(rows):
        for family in _families(rows):
            mine = _of(rows, generator, problem, family)
            if not mine:
                continue
            line: dict[str, Any] = {"generator": generator, "problem": problem, "family": family}
            line["repetitions"] = len(mine)
            for column in _COLUMNS:
                values = np.array([row[column] for row in mine.values()])
                line[column] = float(values.mean())
                line[f"{column}_se"] = _standard_error(values)
            found.append(line)
    return found


def compare(rows: Rows, generator: str, problem: str, one: str, other: str) -> dict[str, Any]:
    """How far −ELBO of ``one`` lies below that of ``other``, repetition by repetition.

    ``t`` is the paired t statistic; ``p`` is its one-sided probability under no difference, from
    Student's distribution. With one repetition both are None.
    """
    mine, its = _of(rows, generator, problem, one), _of(rows, generator, problem, other)
    both = sorted(set(mine) & set(its))
    gains = np.array([its[i]["neg_elbo"] - mine[i]["neg_elbo"] for i in both])
    error = _standard_error(gains)
    found: dict[str, Any] = {
        "generator": generator,
        "problem": problem,
        "family": one,
        "against": other,
        "gain": float(gains.mean()),
        "gain_se": error,
        "won": f"{int(np.sum(gains > 0))} of {len(gains)}",
        "t": None,
        "p": None,
    }
    if error:
        found["t"] = float(gains.mean() / error)
        found["p"] = student_above(found["t"], len(gains) - 1)
    return found


def verdicts(rows: Rows) -> Rows:
    """The comparisons that the study is about, where both families are there."""
    pairs = [("convex", "mean field"), ("convex", "linear")]
    pairs += [("coupled", other) for other in ("convex", "mean field", "linear")]
    return [
        compare(rows, generator, problem, one, other)
        for one, other in pairs
        for generator, problem in _problems(rows)
        if _of(rows, generator, problem, one) and _of(rows, generator, problem, other)
    ]


def to_markdown(rows: Rows) -> str:
    """Both tables as Markdown."""
    lines = [
        "| generator | problem | family | −ELBO | RMSE of images | RMSE of paths | repetitions |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in summarise(rows):
        cells = [_with_error(line, "neg_elbo", 1), _with_error(line, "rmse_image", 4)]
        cells.append(_with_error(line, "rmse_latent", 3))
        head = [line["generator"], line["problem"], line["family"]]
        lines.append("| " + " | ".join([*head, *cells, str(line["repetitions"])]) + " |")
    lines += [
        "",
        "| generator | problem | −ELBO of | below that of | by | in | t | p (one-sided) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in verdicts(rows):
        t = "" if line["t"] is None else f"{line['t']:.1f}"
        p = "" if line["p"] is None else f"{line['p']:.2g}"
        cells = [line["generator"], line["problem"], line["family"], line["against"]]
        cells += [_with_error(line, "gain", 1), line["won"], t, p]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def student_above(t: float, freedom: int) -> float:
    """P(T > t) for Student's distribution.

    >>> round(student_above(2.776, 4), 3), round(student_above(-2.776, 4), 3)
    (0.025, 0.975)
    """
    from jax.scipy.special import betainc

    tail = 0.5 * float(betainc(freedom / 2, 0.5, freedom / (freedom + t * t)))
    return tail if t > 0 else 1.0 - tail


def _with_error(line: dict[str, Any], column: str, digits: int) -> str:
    error = line[f"{column}_se"]
    told = f"{line[column]:.{digits}f}"
    return told if error is None else f"{told} ± {error:.{digits}f}"


def _standard_error(values: np.ndarray) -> float | None:
    if len(values) < 2:
        return None
    return float(values.std(ddof=1) / len(values) ** 0.5)


def _of(rows: Rows, generator: str, problem: str, family: str) -> dict[int, dict[str, Any]]:
    name = (generator, problem, family)
    return {
        row["repetition"]: row
        for row in rows
        if (row["generator"], row["problem"], row["family"]) == name
    }


def _problems(rows: Rows) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["generator"], row["problem"]) for row in rows))


def _families(rows: Rows) -> list[str]:
    order = ["convex", "mean field", "linear", "coupled"]
    return sorted({row["family"] for row in rows}, key=order.index)
