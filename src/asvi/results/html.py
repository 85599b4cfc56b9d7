"""Takes a Fit; gives one self-contained HTML page: table, verdict and pictures."""

from __future__ import annotations

import base64
import html
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from asvi.fitting.archive import check_writable
from asvi.results import plot
from asvi.results.display import in_html
from asvi.results.fit import Fit

__all__ = ["pictures", "write_html"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1b1b; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; border-radius: 4px; }
img { max-width: 100%; height: auto; display: block; }
"""


def pictures(fit: Fit) -> dict[str, Any]:
    """The figures of a report by title; those that there is something to show in."""
    latent, is_loaded = fit.program.latent, not fit.problem.arguments.has_data
    drawn: dict[str, Any] = {}
    if np.isfinite(np.asarray(fit.losses, float)).sum() > 1:
        drawn["ELBO"] = plot.losses(fit)
    drawn["Posterior and prior"] = plot.prior_posterior(fit)
    if any(site.is_discrete for site in latent):
        drawn["Probabilities of a discrete site"] = plot.probabilities(fit)
    drawn["Prior weights"] = plot.prior_weights(fit)
    drawn["Strongest dependencies"] = plot.pairs(fit)
    drawn["Sites; dashed: dependencies that the family misses"] = plot.graph(fit)
    if any(site.shape and site.shape[0] > 1 for site in latent):
        drawn["Bands"] = plot.series(fit)
    if not is_loaded and fit.program.observed:
        drawn["Posterior predictive check"] = plot.ppc(fit)
    return drawn


def write_html(fit: Fit, path: str | Path, title: str = "asvi fit") -> None:
    """Write the report; everything, pictures included, is in the one file."""
    check_writable(path)
    is_judged = fit.correction is not None or fit.problem.arguments.has_data
    diagnosis = str(fit.diagnose()) if is_judged else fit.stored_diagnosis
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        in_html(fit),
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
    plt.close(figure)
    return base64.b64encode(buffer.getvalue()).decode()
