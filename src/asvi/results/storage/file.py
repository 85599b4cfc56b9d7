"""Takes a fit; gives a file that holds it in an open format, and the fit back from such a file.

The file has the parameters and the few arrays of the model's arguments that the guide's draws
depend on (covariates, not data): a loaded posterior draws without the training data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version as asvi_version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from asvi.errors import ModelError, StoredFitError
from asvi.families.protocol import OwnObject, family_class
from asvi.fitting.archive import read_file, write_file
from asvi.fitting.correction.result import Correction
from asvi.fitting.details import details_from
from asvi.fitting.outcome import Outcome
from asvi.fitting.problem import Problem
from asvi.program.addresses import body_address
from asvi.results.posterior import Posterior
from asvi.results.storage.arguments import (
    arguments_from_json,
    arguments_that_draws_need,
    recorded_draw,
)
from asvi.results.storage.draws import correction_from_file, correction_to_file

__all__ = ["load", "model_path_of", "save"]

KIND = "an asvi fit"
FORMAT = 3  #: format
READABLE = (2, 3)  #: format
_NUMBERS = ("elbo", "elbo_se", "converged", "message", "seconds")


def save(
    path: str | Path,
    posterior: Posterior,
    run: Any,
    correction: Correction | None,
    about: dict[str, Any],
) -> None:
    """Write parameters, what is needed to draw, corrected draws, and the run's own account."""
    problem = posterior.problem
    arguments, kept, draws = arguments_that_draws_need(posterior)
    header = {
        "kind": KIND,
        "format": FORMAT,
        "family": _family_to_json(problem.family),
        "sites": _fingerprint(problem),
        "arguments": arguments,
        "draws": {"digest": draws, "versions": _versions()},
        "run": _numbers_of(run),
        "about": about,
    }
    arrays: dict[str, Any] = {}
    if correction is not None:
        header["correction"], arrays = correction_to_file(correction)
    for name, value in posterior.params.items():
        leaves = jax.tree.leaves(value)
        if hasattr(value, "shape"):
            arrays[f"params/{name}"] = value
        else:  # a network of the model's own
            arrays |= {f"params/{name}#{i}": leaf for i, leaf in enumerate(leaves)}
    arrays["losses"] = run.losses
    arrays |= {f"arguments/{i}": array for i, array in kept.items()}
    write_file(path, header, arrays)


def load(
    path: str | Path, model: Callable, family: Any, args: tuple, kwargs: dict[str, Any]
) -> tuple[Outcome, dict[str, Any]]:
    """What was found, for ``model`` at these arguments, or at enough of them to draw."""
    header, stored = read_file(path, KIND)
    if header.get("format") not in READABLE:
        raise StoredFitError(
            f"{path} has format {header.get('format')}; this version reads format {FORMAT}.\n"
            "Load it with the version of asvi that wrote it, or call asvi.fit again."
        )
    family = _family_from_json(header["family"], path) if family is None else family
    given = bool(args or kwargs)
    if not given:
        args, kwargs = arguments_from_json(header["arguments"], stored, path)
    try:
        problem = Problem(model, family, args, kwargs, check=given)
    except ModelError as error:
        name = getattr(model, "__name__", "the model given")
        raise StoredFitError(
            f"{path} belongs to another model: {name} cannot be called as the saved one was "
            f"({str(error).splitlines()[0]})"
        ) from error
    problem.arguments.has_data = given
    found = _fingerprint(problem)
    if found != header["sites"]:
        there, here = set(header["sites"]), set(found)
        differs = sorted(there ^ here)[:4] or ["the order of the sites"]
        raise StoredFitError(
            f"{path} belongs to another model; differing sites: {'; '.join(differs)}.\n"
            "Give asvi.load the model that was fitted."
        )
    params = _params(problem, stored, path)
    draws = header["draws"]
    if draws["versions"] == _versions() and draws["digest"] != recorded_draw(problem, params):
        raise StoredFitError(
            f"{path} belongs to another model: its sites are the same, and what is computed from "
            "them is not. A number that the model reads (a global, a default, an attribute, an "
            "argument) has changed since.\nGive asvi.load the model and data as they were fitted."
        )
    numbers = dict(header["run"])
    info = {"skipped_steps": numbers.pop("skipped_steps"), **numbers.pop("info")}
    outcome = Outcome(
        losses=stored["losses"],
        params=params,
        num_steps=numbers.pop("steps"),
        run=details_from(info),
        problem=problem,
        family_reason=info.get("family", ""),
        correction=correction_from_file(header.get("correction"), stored),
        **numbers,
    )
    return outcome, header["about"]


def _numbers_of(run: Any) -> dict[str, Any]:
    """A run's own account; the names are those of the format."""
    info = {**vars(run.run), "family": run.family_reason}
    found = {name: _plain(getattr(run, name)) for name in _NUMBERS}
    counts = {"steps": run.num_steps, "skipped_steps": run.run.skipped_steps}
    return {**found, **counts, "info": _plain(info)}


def _versions() -> list[str]:
    """Of what decides how a model is recorded."""
    return [jax.__version__, numpyro.__version__, asvi_version("asvi")]


def _params(problem: Problem, stored: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    """The file's parameters, where they are those of this problem."""
    params, differs = {}, []

    def read(name: str, example: Any) -> jax.Array:
        value = stored.get(f"params/{name}")
        if value is None or np.shape(value) != np.shape(example):
            differs.append(name)
            return example
        return jnp.asarray(value)

    # constrained: a simplex has one number more than what is optimised for it
    blank = jax.ShapeDtypeStruct((problem.size,), problem.dtype)
    for name, example in jax.eval_shape(problem.params, blank).items():
        if hasattr(example, "shape"):
            params[name] = read(name, example)
        else:
            leaves, tree = jax.tree.flatten(example)
            found = [read(f"{name}#{i}", leaf) for i, leaf in enumerate(leaves)]
            params[name] = jax.tree.unflatten(tree, found)
    if differs:
        more = " and more" if len(differs) > 3 else ""
        raise StoredFitError(
            f"{path} was written with another family, or by another version of asvi whose family "
            f"had other parameters: {', '.join(differs[:3])}{more}.\n"
            "Load it with the family and the version that wrote it, or call asvi.fit again."
        )
    return params


def model_path_of(path: str | Path) -> str | None:
    """Where the model of a stored fit was found, if it was said."""
    return read_file(path, KIND)[0].get("about", {}).get("model_path")


def _fingerprint(problem: Problem) -> list[str]:
    return [
        f"{body_address(s.bodies)}{s.name} {type(s.distribution).__name__} {tuple(s.shape)}"
        for s in problem.program.sites
    ]


# ---------------------------------------------------------------------------- families, arguments


def _family_to_json(family: Any) -> Any:
    if family is None:
        return None
    if isinstance(family, Mapping):
        return {"sites": {pattern: _family_to_json(f) for pattern, f in family.items()}}
    settings = {
        name: {"own": value.name}
        if isinstance(value, OwnObject)
        else _family_to_json(value)
        if hasattr(value, "config")
        else value
        for name, value in family.config().items()
    }
    return {"class": type(family).__name__, "settings": settings}


def _family_from_json(stored: Any, path: Any) -> Any:
    if stored is None:
        return None
    if "sites" in stored:
        return {pattern: _family_from_json(f, path) for pattern, f in stored["sites"].items()}
    known = family_class(stored["class"])
    if known is None:
        raise StoredFitError(
            f"{path} was fitted with the family {stored['class']}, which is not one of asvi's own "
            "and is not defined in this process.\nDefine its class first, or give the family: "
            f"asvi.load({str(path)!r}, model, family={stored['class']}(...))"
        )
    settings = {}
    for name, value in stored["settings"].items():
        if isinstance(value, dict) and "own" in value:
            raise StoredFitError(
                f"{path} was fitted with {value['own']} of your own, whose weights it has, and not "
                "the code.\nWrite instead:\n    "
                f"asvi.load({str(path)!r}, model, family=Amortized({value['own']}=..., ...))"
            )
        settings[name] = _family_from_json(value, path) if isinstance(value, dict) else value
    return known.from_config(settings)


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return x.item() if isinstance(x, np.generic) else x
