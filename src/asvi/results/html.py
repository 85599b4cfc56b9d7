"""Takes a Fit; gives one self-contained HTML page: table, verdict and pictures."""

from __future__ import annotations

import base64
import html
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from asvi.fitting.archive import check_writable
from asvi.results import plot
from asvi.results.fit import Fit

__all__ = ["pictures", "write_html"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1b1b; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; border-radius: 4px; }
img { max-width: 100%; height: auto; display: block; }
.verdict { padding: .6rem .9rem; border-left: 5px solid #888; background: #f5f5f5; }
.good { border-color: #2b8a3e; } .usable { border-color: #e8a200; } .not { border-color: #c92a2a; }
"""


def pictures(fit: Fit) -> dict[str, Any]:
    """The figures of a report by title; those that need data only where there are data."""
    drawn: dict[str, Any] = {
        "ELBO": plot.elbo_trace(fit),
        "Posterior and prior": plot.marginals(fit),
        "Prior weights": plot.prior_weights(fit),
        "Strongest dependencies": plot.pairs(fit),
        "Sites; dashed: dependencies that the family misses": plot.graph(fit),
    }
    if any(site.shape and site.shape[0] > 1 for site in fit.problem.program.latent):
        drawn["Bands"] = plot.bands(fit)
    if fit.problem.arguments.has_data and any(
        site.kind == "observed" for site in fit.problem.program.sites
    ):
        drawn["Posterior predictive check"] = plot.predictive_check(fit)
    return drawn


def write_html(fit: Fit, path: str | Path, title: str = "asvi fit") -> None:
    """Write the report; everything, pictures included, is in the one file."""
    check_writable(path)
    diagnosis = str(fit.diagnose()) if fit.problem.arguments.has_data else fit.stored_diagnosis
    verdict = next(
        (line.removeprefix("verdict: ") for line in diagnosis.splitlines() if line), "unknown"
    )
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="verdict {verdict.split()[0]}">Verdict: <b>{html.escape(verdict)}</b></p>',
        f"<h2>Summary</h2><pre>{html.escape(str(fit))}</pre>",
        f"<h2>Diagnosis</h2><pre>{html.escape(diagnosis)}</pre>",
        f"<h2>Explanation</h2><pre>{html.escape(str(fit.explain()))}</pre>",
    ]
    for name, axes in pictures(fit).items():
        parts.append(f"<h2>{html.escape(name)}</h2>")
        parts.append(f'<img alt="{html.escape(name)}" src="data:image/png;base64,{_png(axes)}">')
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}'
        f"</title><style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>"
    )
    Path(path).write_text(page, encoding="utf-8")


def _png(axes: Any) -> str:
    figure = np.ravel(axes)[0].figure
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return base64.b64encode(buffer.getvalue()).decode()
