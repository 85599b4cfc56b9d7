"""Takes a posterior; gives ArviZ data (0.x and 1.x): groups, names of axes, labels, attributes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from asvi.errors import AsviError, DataWarning, warn_user
from asvi.results.axes import Axes, dimensions
from asvi.results.groups import GROUPS, Content, minibatched, prior_draws
from asvi.results.posterior import Posterior

__all__ = ["dimensions", "minibatched", "observed_data", "prior_draws", "to_arviz"]


def to_arviz(
    posterior: Posterior,
    run: Any,
    num_samples: int,
    key: jax.Array,
    groups: Iterable[str] | None = None,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str | None]] | None = None,
) -> Any:
    """An ``InferenceData`` (ArviZ 0.x) or ``DataTree`` (1.x); see :meth:`asvi.Fit.to_arviz`."""
    if num_samples < 1:
        raise AsviError(f"num_samples is {num_samples}; a posterior has at least 1 draw.")
    wanted = _wanted(groups)
    with posterior.problem.bound.changes.one_call():
        content = Content(posterior, num_samples, key)
        arrays = {name: getattr(content, name)() for name in GROUPS if name in wanted}
        axes = content.axes()
    axes.rename(dims or {})
    axes.take_coords(coords or {})
    if content.left_out:
        warn_user(
            f"{', '.join(content.left_out)}: in a subsampled plate, so that each draw has another "
            "random minibatch. Left out of the ArviZ data, whose rows would not be of one member.",
            DataWarning,
        )
    return _in_arviz({n: _dataset(n, x, axes, content, run) for n, x in arrays.items() if x})


def _wanted(groups: Iterable[str] | None) -> tuple[str, ...]:
    if groups is None:
        return GROUPS
    groups = (groups,) if isinstance(groups, str) else tuple(groups)
    unknown = [name for name in groups if name not in GROUPS]
    if unknown:
        raise AsviError(f"groups: there is no {unknown[0]!r}; there are {', '.join(GROUPS)}.")
    return groups


def _dataset(
    name: str, arrays: dict[str, np.ndarray], axes: Axes, content: Content, run: Any
) -> Any:
    """A group as a data set of xarray."""
    import xarray

    lead = () if name in ("observed_data", "constant_data") else ("chain", "draw")
    variables, coords = {}, {}
    for variable, array in arrays.items():
        shape = array.shape[len(lead) :]
        if name == "constant_data":
            own = axes.of_length(variable, shape, content.named_axes)
        else:
            own = axes.of_array(variable, shape, from_left=name != "observed_data")
        variables[variable] = ((*lead, *own), array)
        for axis, length in zip((*lead, *own), array.shape, strict=True):
            coords[axis] = axes.coords(axis, length)
    renamed = {n: f"{n}_data" for n in variables if n in coords}
    variables = {renamed.get(n, n): x for n, x in variables.items()}
    return xarray.Dataset(variables, coords, _attributes(name, run))


def _attributes(group: str, run: Any) -> dict[str, Any]:
    """What ArviZ's schema asks for, and what asvi knows of the fit."""
    found: dict[str, Any] = {
        "created_at": datetime.now(UTC).isoformat(),
        "creation_library": "asvi",
        "creation_library_version": version("asvi"),
        "creation_library_language": "Python",
        "inference_library": "asvi",
        "inference_library_version": version("asvi"),
    }
    if group in ("posterior", "sample_stats"):
        found["sampling_time"] = float(run.seconds)
    if group == "posterior":
        found |= {"elbo": float(run.elbo), "elbo_se": float(run.elbo_se)}
        if run.log_evidence is not None:
            evidence, error = float(run.log_evidence), float(run.log_evidence_se)
            found |= {"log_evidence": evidence, "log_evidence_se": error}
            found["log_marginal_likelihood"] = evidence  # as PyMC calls it
    return found


def _in_arviz(groups: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # 0.23 announces 1.0 at import
        import arviz
    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.InferenceData(**groups)
    from xarray import DataTree

    def plain(data: Any) -> Any:
        # A name in a tree may not have a slash, which `handlers.scope` puts there.
        names = {n: n.replace("/", ".") for n in {*data.variables, *data.dims} if "/" in n}
        return data.rename(names) if names else data

    return DataTree.from_dict({name: plain(data) for name, data in groups.items()})


def observed_data(posterior: Posterior) -> dict[str, np.ndarray]:
    """The data of every observed site that are the same for all draws."""
    return Content(posterior, 1, jax.random.key(0)).observed_data()
