"""Takes finished cells; gives Table 1 and Table 2 as rows and as Markdown, beside the paper's."""

from __future__ import annotations

from typing import Any

import numpy as np

from asvi import tasks
from asvi.cli.bench import published_tables as paper
from asvi.cli.bench.protocol import COLUMNS

__all__ = ["table1", "table2", "to_markdown"]

Cells = dict[tuple[str, str], dict[str, Any]]


def table1(cells: Cells) -> list[dict[str, Any]]:
    """One row per cell: -ELBO over the seeds, its gap to -log Z, and the paper's figure."""
    rows = []
    for (task_name, family), cell in cells.items():
        values = np.array(cell["neg_elbo"], float)
        fine = values[np.isfinite(values)]
        floor = -tasks.get(task_name).log_evidence
        printed = paper.TABLE_1.get(task_name, {}).get(family)
        row = {
            "task": task_name,
            "family": family,
            "seeds": len(values),
            "failed_seeds": int(len(values) - len(fine)),
            "neg_elbo": float(fine.mean()) if len(fine) else None,
            "sd": float(fine.std(ddof=1)) if len(fine) > 1 else None,
            "best": float(fine.min()) if len(fine) else None,
            "floor": floor,
            "gap": float(fine.mean() - floor) if len(fine) else None,
            "paper": printed[0] if printed else None,
            "paper_sd": printed[1] if printed else None,
            "device": cell["device"],
        }
        if "seconds" in cell:
            row["first_seconds"] = cell["seconds"][0]
            row["later_seconds"] = float(np.median(cell["seconds"][1:] or cell["seconds"]))
            row["worst_gap"] = float(fine.max() - floor) if len(fine) else None
        if printed and len(fine):
            row["distance_in_paper_sds"] = abs(row["neg_elbo"] - printed[0]) / printed[1]
        rows.append(row)
    return rows


def table2(cells: Cells) -> list[dict[str, Any]]:
    """One row per cell: errors of means and standard deviations in units of the true sd."""
    rows = []
    for (task_name, family), cell in cells.items():
        row: dict[str, Any] = {
            "task": task_name,
            "family": family,
            "truth": tasks.get(task_name).moments.method,
        }
        for key in sorted(k for k in cell if k.startswith(("mean_error_", "sd_error_"))):
            values = np.array(cell[key], float)
            fine = values[np.isfinite(values)]
            row[key] = float(fine.mean()) if len(fine) else None
            row[f"{key}_over_seeds"] = float(fine.std(ddof=1)) if len(fine) > 1 else None
        printed = paper.TABLE_2.get(task_name, {}).get(family)
        row["paper_mean_error"], row["paper_sd_error"] = printed or (None, None)
        rows.append(row)
    return rows


def to_markdown(rows: list[dict[str, Any]], kind: str) -> str:
    """Tasks down, families across; ``kind`` is ``"table1"`` or ``"table2"``."""
    task_names = list(dict.fromkeys(row["task"] for row in rows))
    families = [f for f in COLUMNS if any(row["family"] == f for row in rows)]
    cells = {(row["task"], row["family"]): row for row in rows}
    show = _show_elbo if kind == "table1" else _show_errors
    head = ["task", *(["-log Z"] if kind == "table1" else ["truth"])]
    head += [COLUMNS[f].title for f in families]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name in task_names:
        task = tasks.get(name)
        known = f"{-task.log_evidence:.2f}" if kind == "table1" else task.moments.method
        row = [show(cells[name, f]) if (name, f) in cells else "–" for f in families]
        lines.append("| " + " | ".join([name, known, *row]) + " |")
    return "\n".join(lines)


def _show_elbo(row: dict[str, Any]) -> str:
    if row["neg_elbo"] is None:
        return "all seeds failed"
    spread = f" ± {row['sd']:.2f}" if row["sd"] is not None else ""
    failed = f", {row['failed_seeds']} seeds failed" if row["failed_seeds"] else ""
    printed = (
        f"<br>paper {row['paper']:g} ± {row['paper_sd']:g}" if row["paper"] is not None else ""
    )
    if "worst_gap" in row:
        seconds = f"{row['first_seconds']:.0f} s, then {row['later_seconds']:.0f} s"
        printed = f"<br>worst {row['worst_gap']:.3f}; {seconds}"
        return f"**{row['neg_elbo']:.3f}** (gap {row['gap']:.3f}{failed}){printed}"
    star = "" if "cpu" in row["device"].lower() else "\\*"
    return f"**{row['neg_elbo']:.2f}**{spread}{star} (gap {row['gap']:.2f}{failed}){printed}"


def _show_errors(row: dict[str, Any]) -> str:
    draws = sorted({int(k.split("_")[2]) for k in row if k.startswith("mean_error_")})
    parts = [
        f"M {row[f'mean_error_{n}']:.2f}, SD {row[f'sd_error_{n}']:.2f} ({n} draws)"
        for n in draws
        if row[f"mean_error_{n}"] is not None
    ]
    if row["paper_mean_error"] is not None:
        parts.append(f"paper {row['paper_mean_error']:g}, {row['paper_sd_error']:g}")
    return "<br>".join(parts) or "all seeds failed"
