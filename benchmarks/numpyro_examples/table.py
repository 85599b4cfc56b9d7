"""Takes stored fits; gives a table: a line a model, and what went wrong where something did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.numpyro_examples.reference import is_trusted
from benchmarks.numpyro_examples.suite import SUITE, THEMES
from benchmarks.race.summary import LARGEST_MEAN_ERROR, LARGEST_SD_ERROR
from benchmarks.race.tables import Table

Row = dict[str, Any]

HEAD = (
    "model",
    "theme",
    "asvi (s)",
    "NUTS (s)",
    "worst mean (sd)",
    "of",
    "worst sd",
    "of ",
    "verdict",
    "NUTS R-hat",
    "NUTS effective draws",
    "right",
)

ABOUT = """# Models of the kinds in NumPyro's examples

`asvi.fit(model, *data)` with nothing set, beside one chain of NUTS: 1,000 steps of warm-up, 4,000
draws. Both on one core, in a fresh process, compilation included. Errors are those of the worst
number among all latent ones, against NUTS's moments: which has errors of its own, of about one in
the root of its effective draws. *Right* is within 0.1 sd and 10% of an sd; it is not told where
NUTS did not mix (R-hat above 1.02, fewer than 300 effective draws, or divergences in more than
0.5% of them).
"""


def is_right(row: Row) -> bool:
    """Whether the errors are small, of a fit with a reference."""
    mean, sd = row["mean_error"], row["sd_error"]
    small = mean is not None and mean <= LARGEST_MEAN_ERROR
    return small and sd is not None and sd <= LARGEST_SD_ERROR


def line(name: str, fits: dict[str, Row]) -> Row:
    ours, nuts = fits.get("asvi"), fits.get("nuts")
    extra = nuts["extra"] if nuts and nuts["status"] == "answered" else None
    told = None
    if ours and ours["status"] != "answered":
        told = "no"
    elif ours and ours["mean_error_of"] and extra:
        told = ("yes" if is_right(ours) else "no") if is_trusted(extra) else "NUTS did not mix"
    values = (
        name,
        THEMES[name],
        ours and ours["first_seconds"],
        nuts and (nuts["first_seconds"] if extra else nuts["status"]),
        ours and ours["mean_error"],
        ours and ours["mean_error_of"],
        ours and ours["sd_error"],
        ours and ours["sd_error_of"],
        ours and (ours["verdict"] or ours["status"]),
        extra and extra["r_hat"],
        extra and float(round(extra["effective_draws"])),
        told,
    )
    return dict(zip(HEAD, values, strict=True))


def notes(name: str, fits: dict[str, Row]) -> list[str]:
    """Why there is no answer, or why the verdict is not good."""
    found = []
    for method, row in fits.items():
        if row["status"] != "answered":
            found.append(f"- {name}, {method}: {row['status']}, {row['message']}")
        elif row["extra"].get("reasons"):
            found.append(f"- {name}: {row['verdict']}: {'; '.join(row['extra']['reasons'])}")
    return found


def write(rows: list[Row], results: Path) -> str:
    """The table, stored as ``table.md``."""
    by_name: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_name.setdefault(row["problem"], {})[row["method"]] = row
    fitted = {name: by_name[name] for name in SUITE if name in by_name}
    lines = [line(name, fits) for name, fits in fitted.items()]
    judged = [one for one in lines if one["right"] in ("yes", "no")]
    right = sum(one["right"] == "yes" for one in judged)
    wrong = sum(one["right"] == "no" and one["verdict"] == "good" for one in judged)
    text = ABOUT + f"\n{right} of {len(judged)} are right; {wrong} are wrong and called good.\n\n"
    text += Table(HEAD, lines).markdown()
    told = [note for name, fits in fitted.items() for note in notes(name, fits)]
    if told:
        text += "\n".join(["", "What was said:", "", *told, ""])
    (results / "table.md").write_text(text)
    return text
