"""Takes a name of 0.1; gives the name of today, and says so, for one version more.

All old names stand here, in one table for each kind; :mod:`asvi.results.old_calls` puts them to
work.
"""

from __future__ import annotations

from typing import NamedTuple

from asvi.errors import warn_user

__all__ = ["ARGUMENTS", "ATTRIBUTES", "GONE_IN", "MODULES", "NAMES", "OPTIONS", "Moved", "say"]

GONE_IN = "0.3"


class Moved(NamedTuple):
    """Where a module is today, and what its names are there that have changed."""

    to: str
    renamed: dict[str, str] = {}
    is_public: bool = False
    """A second path of the module, for good: nothing is said."""


MODULES = {
    "plot": Moved("asvi.results.plot", is_public=True),
    "alignment": Moved("asvi.program.dependence.alignment"),
    "compiling": Moved("asvi.program.compiling"),
    "diagnose": Moved("asvi.fitting.diagnostics.report"),
    "explain": Moved("asvi.results.explanation"),
    "in_numpy": Moved("asvi.density.numpy_backend"),
    "inference_data": Moved("asvi.results.inference_data"),
    "interpretation": Moved("asvi.program.control_flow.interpretation", {"Frame": "Body"}),
    "posterior": Moved("asvi.results.posterior"),
    "psis": Moved(
        "asvi.fitting.correction.pareto_smoothing",
        {"Smoothed": "SmoothedWeights", "smooth": "pareto_smooth"},
    ),
    "report": Moved("asvi.results.html"),
    "stored": Moved("asvi.results.storage.file"),
}

#: Options of :func:`asvi.fit`, and how each is written today.
OPTIONS = {
    "key": "rng_key",
    "progress": "progress_bar",
    "steps": "Training(num_steps=...)",
    "draws": "Training(num_particles=...)",
    "restarts": "Training(num_restarts=...)",
    "optimizer": "Training(optimizer=...)",
    "tolerance": "Training(elbo_tolerance=...)",
    "amortize": "family=Amortized(plate=...)",
}

#: Arguments of methods and functions, by the names of these.
ARGUMENTS = {
    "Posterior.sample": {"key": "rng_key", "shape": "sample_shape"},
    "Posterior.quantiles": {"draws": "num_samples"},
    "Posterior.resample": {"key": "rng_key", "n": "num_samples", "draws": "num_proposals"},
    "Posterior.predictive": {"key": "rng_key", "draws": "num_samples"},
    "Posterior.elbo": {"key": "rng_key", "draws": "num_samples"},
    "Posterior.importance": {"key": "rng_key", "draws": "num_samples"},
    "Posterior.nuts_init": {"key": "rng_key"},
    "Fit.to_arviz": {"draws": "num_samples", "key": "rng_key"},
    "AutoASVI.quantiles": {"num_draws": "num_samples"},
    "plot.prior_posterior": {"sites": "var_names", "most": "max_subplots", "draws": "num_samples"},
    "plot.probabilities": {"site": "var_names", "draws": "num_samples"},
    "plot.pairs": {"most": "max_subplots", "draws": "num_samples"},
    "plot.series": {"site": "var_names", "draws": "num_samples"},
    "plot.ppc": {"site": "var_names", "draws": "num_samples"},
}

#: Attributes, by class; a dotted name leads on.
ATTRIBUTES = {
    "asvi.results.fitted.Fit": {
        "steps": "num_steps",
        "skipped_steps": "run.skipped_steps",
        "details": "run",
        "info": "run",
    },
    "asvi.fitting.diagnostics.report.Report": {
        "draws": "num_samples",
        "shift": "mean_shift_sd",
        "skipped": "skipped_share",
    },
}

#: What a module has under another name today; a path that begins with ``asvi.`` is a whole one.
NAMES = {
    "asvi": {"in_units": "natural_units", "register_substitution": "register_stand_in"},
    "asvi.families": {
        "WholeFamily": "JointFamily",
        "ContextFamily": "Family",
        "AR1": "baselines.AR1",
        "LinearCoupling": "baselines.LinearCoupling",
        "InverseAutoregressiveFlow": "baselines.InverseAutoregressiveFlow",
        "MultivariateNormal": "baselines.MultivariateNormal",
        "register_parameters": "asvi.register_parameters",
        "register_substitution": "asvi.register_stand_in",
    },
    "asvi.plot": {
        "marginals": "prior_posterior",
        "predictive_check": "ppc",
        "bands": "series",
        "elbo_trace": "losses",
    },
}


def say(old: str, new: str) -> None:
    """Warn that a name has another today."""
    warn_user(f"`{old}` is now `{new}`; `{old}` goes in {GONE_IN}.", FutureWarning)
